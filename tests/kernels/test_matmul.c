/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix kernels: against the reference over a table of shapes, and bit for bit against each
 * other, against one row alone, and against any division into items.
 *
 * The reference multiplies the quantised activations (q x scale), so what is left between it and
 * a cpu backend is the rounding of sums and of scales that layout.h rounds to float16: at most
 * 2^-10 of the sum of magnitudes.
 */
#include "tests/support.h"

#include <math.h>

#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

static const float tolerance = 0x1p-10F;

struct bench {
    enum k_type type;
    struct matmul_shape s;
    void *stored;
    struct k_act act; /* packed by the first cpu backend */
    float *reference; /* [rows][n_out] */
    float *bound;     /* tolerance x sum of magnitudes */
};

static void pack_rows(const struct k_ops *ops, const float *x, uint32_t n_rows, struct k_act *act)
{
    struct k_norm a = {.x = x, .n = act->n, .n_rows = n_rows, .out = *act};

    ops->norm(&a, 0, n_rows);
}

static void make_reference(struct bench *b)
{
    struct k_matrix w = {
            .type = b->type, .n_in = b->s.n_in, .n_out = b->s.n_out, .data = b->stored};
    struct k_matmul a = {.in = b->act, .n_rows = b->s.n_rows, .n_mats = 1, .w = {&w}};
    CLEANUP(mem_freep) float *row = test_alloc(b->s.n_in, sizeof(*row));
    size_t row_bytes = b->s.n_in / k_block_len(b->type) * k_block_bytes(b->type);

    b->reference = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    b->bound = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    a.out[0] = b->reference;
    k_ref_ops()->matmul(&a, 0, k_matmul_items(&a));
    for (uint32_t o = 0; o < b->s.n_out; o++) {
        k_dequantise(b->type, (uint8_t *)b->stored + o * row_bytes, b->s.n_in, row);
        for (uint32_t r = 0; r < b->s.n_rows; r++) {
            float sum = 0;

            for (uint32_t i = 0; i < b->s.n_in; i++)
                sum += fabsf(row[i] * b->act.f32[(size_t)r * b->s.n_in + i]);
            /* mins and values may cancel: their own magnitudes count */
            b->bound[(size_t)r * b->s.n_out + o] = tolerance * (4 * sum + 1);
        }
    }
}

/* All of a block's bytes the same but its scales, which become 2^-6. */
static void fill_blocks(enum k_type type, void *stored, size_t n_blocks, int byte)
{
    uint32_t bytes = k_block_bytes(type);
    uint32_t n_halves =
            type == K_Q4_1 || type == K_Q5_1 || type == K_Q4_K || type == K_Q5_K ? 2 : 1;
    uint8_t *scale = (uint8_t *)stored + (type == K_Q6_K ? 208 : 0);

    memset(stored, byte, n_blocks * bytes);
    for (size_t i = 0; i < n_blocks; i++)
        for (uint32_t h = 0; h < n_halves; h++) {
            scale[i * bytes + h * 2] = 0;
            scale[i * bytes + h * 2 + 1] = 0x24;
        }
}

/* fill: bytes of every block, and the sign of all activations; -1: random data. */
static struct bench bench_new(enum k_type type, struct matmul_shape s, int fill, float sign)
{
    struct random r = {s.n_in * 31 + s.n_out};
    struct bench b = {.type = type, .s = s};
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)s.n_rows * s.n_in, -2, 2);

    b.stored = random_matrix(&r, type, s.n_in, s.n_out);
    if (fill >= 0)
        fill_blocks(type, b.stored, (size_t)s.n_out * s.n_in / k_block_len(type), fill);
    for (size_t i = 0; fill >= 0 && i < (size_t)s.n_rows * s.n_in; i++)
        x[i] = sign;
    b.act = act_new(s.n_rows, s.n_in);
    pack_rows(k_cpu_ops(0), x, s.n_rows, &b.act);
    for (size_t i = 0; k_block_len(type) > 1 && i < (size_t)s.n_rows * s.n_in; i++)
        b.act.f32[i] = (float)b.act.q[i] * b.act.scale[i / K_GROUP];
    make_reference(&b);
    return b;
}

static void bench_free(struct bench *b)
{
    mem_free(b->stored);
    act_free(&b->act);
    mem_free(b->reference);
    mem_free(b->bound);
}

/* The product by a backend, the items dealt in pieces of 'piece'. */
static float *product(const struct k_ops *ops, const struct bench *b, uint32_t piece)
{
    void *memory;
    struct k_matrix w = packed_matrix(ops, b->type, b->s.n_in, b->s.n_out, b->stored, &memory);
    float *out = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    struct k_matmul a = {.in = b->act, .n_rows = b->s.n_rows, .n_mats = 1, .w = {&w}, .out = {out}};
    uint32_t n = k_matmul_items(&a);

    for (uint32_t i = 0; i < n; i += piece)
        ops->matmul(&a, i, i + piece < n ? i + piece : n);
    mem_free(memory);
    return out;
}

/* The same, row by row. */
static float *product_by_rows(const struct k_ops *ops, const struct bench *b)
{
    float *out = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    size_t groups = (b->s.n_in + K_GROUP - 1) / K_GROUP;

    for (uint32_t r = 0; r < b->s.n_rows; r++) {
        struct bench one = *b;
        float *p;

        one.s.n_rows = 1;
        one.act.f32 += (size_t)r * b->s.n_in;
        one.act.q += r * groups * K_GROUP;
        one.act.scale += r * groups;
        one.act.total += r * groups;
        one.act.sum += r * groups;
        p = product(ops, &one, 1);
        memcpy(out + (size_t)r * b->s.n_out, p, b->s.n_out * sizeof(*out));
        mem_free(p);
    }
    return out;
}

static void check(enum k_type type, struct matmul_shape s, int fill, float sign)
{
    struct bench b = bench_new(type, s, fill, sign);
    size_t n = (size_t)s.n_rows * s.n_out;
    float *best = product(k_cpu_ops(0), &b, UINT32_MAX / 2);
    float *alone = product_by_rows(k_cpu_ops(0), &b);

    for (size_t i = 0; i < n; i++)
        if (!(fabsf(best[i] - b.reference[i]) <= b.bound[i]))
            fail_msg("type %d %u x %u: output %zu is %g, want %g within %g", (int)type, s.n_in,
                     s.n_out, i, (double)best[i], (double)b.reference[i], (double)b.bound[i]);
    assert_memory_equal(best, alone, n * sizeof(*best));
    for (unsigned k = 0; k_cpu_ops(k); k++) {
        float *other = product(k_cpu_ops(k), &b, 3);

        assert_memory_equal(best, other, n * sizeof(*best));
        mem_free(other);
    }
    mem_free(best);
    mem_free(alone);
    bench_free(&b);
}

static void all_types_and_shapes(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_all_types; t++)
        for (size_t s = 0; s < n_matmul_shapes; s++)
            check(all_types[t], matmul_shapes[s], -1, 0);
    for (size_t t = 0; t < 3; t++)
        for (size_t s = 0; s < n_float_shapes; s++)
            check(all_types[t], float_shapes[s], -1, 0);
    for (size_t t = 3; t < 8; t++) /* blocks of 32 */
        check(all_types[t], (struct matmul_shape){.n_in = 576, .n_out = 19, .n_rows = 11}, -1, 0);
}

/* The greatest integers everywhere, with one sign: no sum on the way may overflow. */
static void extremes_fit(void **state)
{
    static const int fills[] = {0x00, 0x0f, 0x7f, 0x81, 0xf0, 0xff};
    static const struct matmul_shape s = {.n_in = 512, .n_out = 16, .n_rows = 5};

    (void)state;
    for (size_t t = 3; t < n_all_types; t++)
        for (size_t f = 0; f < sizeof(fills) / sizeof(fills[0]); f++) {
            check(all_types[t], s, fills[f], 1);
            check(all_types[t], s, fills[f], -1);
        }
}

/* Several matrices at once, adding to what is there. */
static void several_matrices_and_add(void **state)
{
    struct random r = {5};
    struct k_act act = act_new(3, 64);
    CLEANUP(mem_freep) float *x = random_floats(&r, 3 * 64, -1, 1);
    CLEANUP(mem_freep) void *q8 = random_matrix(&r, K_Q8_0, 64, 17);
    CLEANUP(mem_freep) void *q4 = random_matrix(&r, K_Q4_1, 64, 40);

    (void)state;
    pack_rows(k_cpu_ops(0), x, 3, &act);
    for (unsigned k = 0; k_cpu_ops(k); k++) {
        const struct k_ops *ops = k_cpu_ops(k);
        CLEANUP(mem_freep) void *m1 = NULL;
        CLEANUP(mem_freep) void *m2 = NULL;
        struct k_matrix w1 = packed_matrix(ops, K_Q8_0, 64, 17, q8, &m1);
        struct k_matrix w2 = packed_matrix(ops, K_Q4_1, 64, 40, q4, &m2);
        float out1[2][3 * 17] = {0};
        float out2[2][3 * 40] = {0};
        struct k_matmul a = {.in = act, .n_rows = 3, .n_mats = 2, .w = {&w1, &w2}};

        assert_int_equal(k_matmul_items(&a), 2 + 3);
        a.out[0] = out1[0], a.out[1] = out2[0];
        ops->matmul(&a, 0, 5);
        for (int i = 0; i < 3 * 17; i++)
            out1[1][i] = 1;
        a.add = true;
        a.out[0] = out1[1], a.out[1] = out2[1];
        for (uint32_t i = 5; i-- > 0;)
            ops->matmul(&a, i, i + 1);
        for (int i = 0; i < 3 * 17; i++)
            assert_true(out1[1][i] == out1[0][i] + 1);
        assert_memory_equal(out2[0], out2[1], sizeof(out2[0]));
    }
    act_free(&act);
}

/* A row of the packed table is the stored row, up to the scales' rounding. */
static void embed_reads_packed_rows(void **state)
{
    static const int32_t tokens[] = {0, 15, 16, 32, 7};

    (void)state;
    for (size_t t = 0; t < n_all_types; t++) {
        struct random r = {t};
        CLEANUP(mem_freep) void *stored = random_matrix(&r, all_types[t], 256, 33);
        CLEANUP(mem_freep) void *memory = NULL;
        struct k_matrix packed =
                packed_matrix(k_cpu_ops(0), all_types[t], 256, 33, stored, &memory);
        struct k_matrix plain = {.type = all_types[t], .n_in = 256, .n_out = 33, .data = stored};
        float want[5 * 256];
        float got[5 * 256];
        struct k_embed a = {
                .table = &plain, .tokens = tokens, .scale = 1.5F, .out = want, .n_rows = 5};

        k_ref_ops()->embed(&a, 0, 5);
        a.table = &packed;
        a.out = got;
        k_cpu_ops(0)->embed(&a, 0, 5);
        for (int i = 0; i < 5 * 256; i++)
            assert_true(fabsf(got[i] - want[i]) <= tolerance * (fabsf(want[i]) + 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(all_types_and_shapes),
            cmocka_unit_test(extremes_fit),
            cmocka_unit_test(several_matrices_and_add),
            cmocka_unit_test(embed_reads_packed_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
