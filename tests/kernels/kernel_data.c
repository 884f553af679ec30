/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kernel_data.h"

#include "kernels/half.h"
#include "tests/support.h"

const enum k_type all_types[] = {K_F32,  K_F16,  K_BF16, K_Q4_0, K_Q4_1, K_Q5_0,
                                 K_Q5_1, K_Q8_0, K_Q4_K, K_Q5_K, K_Q6_K};
const size_t n_all_types = sizeof(all_types) / sizeof(all_types[0]);

void *test_alloc(size_t n, size_t size)
{
    void *p = mem_aligned(64, n * size + 64);

    assert_non_null(p);
    return p;
}

/* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014) */
uint32_t random_u32(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (uint32_t)(z >> 32);
}

float random_float(struct random *r, float low, float high)
{
    return low + (high - low) * ((float)(random_u32(r) >> 8) * 0x1p-24F);
}

float *random_floats(struct random *r, size_t n, float low, float high)
{
    float *p = test_alloc(n, sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = random_float(r, low, high);
    return p;
}

static void put_half(uint8_t *at, float x)
{
    uint16_t h = k_float_to_half(x);

    memcpy(at, &h, sizeof(h));
}

/* One block: any bytes, then the scales where the format has them. */
static void random_block(struct random *r, enum k_type type, uint8_t *b)
{
    float x = random_float(r, -1, 1);
    uint32_t bits = k_to_bits(x);

    for (uint32_t i = 0; i < k_block_bytes(type); i++)
        b[i] = (uint8_t)random_u32(r);
    if (type == K_F32)
        memcpy(b, &x, sizeof(x));
    else if (type == K_F16)
        put_half(b, x);
    else if (type == K_BF16)
        memcpy(b, (const uint8_t *)&bits + 2, 2);
    else
        put_half(b + (type == K_Q6_K ? 208 : 0), random_float(r, 0.001F, 0.02F));
    if (type == K_Q4_1 || type == K_Q5_1 || type == K_Q4_K || type == K_Q5_K)
        put_half(b + 2, random_float(r, -0.02F, 0.02F));
    for (uint32_t i = 2; type == K_Q8_0 && i < 34; i++)
        b[i] = b[i] == 0x80 ? 0x81 : b[i];
}

void *random_matrix(struct random *r, enum k_type type, uint32_t n_in, uint32_t n_out)
{
    size_t n = (size_t)n_out * (n_in / k_block_len(type));
    uint8_t *p = test_alloc(n, k_block_bytes(type));

    for (size_t i = 0; i < n; i++)
        random_block(r, type, p + i * k_block_bytes(type));
    return p;
}

struct k_matrix packed_matrix(const struct k_ops *ops, enum k_type type, uint32_t n_in,
                              uint32_t n_out, const void *stored, void **ret_memory)
{
    struct k_pack pack = {.type = type, .n_in = n_in, .n_out = n_out, .stored = stored};
    struct k_matrix m = {.type = type, .n_in = n_in, .n_out = n_out, .data = stored};

    *ret_memory = NULL;
    if (!ops->packed_bytes)
        return m;
    pack.packed = test_alloc(1, ops->packed_bytes(type, n_in, n_out));
    ops->pack(&pack, 0, (n_out + K_TILE - 1) / K_TILE);
    *ret_memory = pack.packed;
    m.data = pack.packed;
    return m;
}

struct k_act act_new(uint32_t n_rows, uint32_t n)
{
    size_t groups = (size_t)n_rows * ((n + K_GROUP - 1) / K_GROUP);
    struct k_act a = {
            .n = n,
            .f32 = test_alloc((size_t)n_rows * n, sizeof(float)),
            .q = test_alloc(groups, K_GROUP),
            .scale = test_alloc(groups, sizeof(float)),
            .total = test_alloc(groups, sizeof(int32_t)),
            .sum = test_alloc(groups, sizeof(float)),
    };

    return a;
}

void act_free(struct k_act *a)
{
    mem_free(a->f32);
    mem_free(a->q);
    mem_free(a->scale);
    mem_free(a->total);
    mem_free(a->sum);
}
