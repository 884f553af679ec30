/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that go row by row, packing and block copies, on a GPU against the reference.
 */
#include "tests/support.h"

#include <math.h>

#include "kernels/ref/ref.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

enum { ROWS = 3 };

static const float tolerance = 2e-6F;
static const struct k_cuda_shape small = {
        .rows_max = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 8, .n_sms = 4};

/* Values about 1, so that their mean is not 0. */
static void check_norm(uint32_t n, const struct norm_variant *v, bool picked)
{
    static const uint32_t ids[ROWS] = {4, 0, 2};
    struct gpu g = gpu_new(&small);
    struct random r = {n};
    size_t bytes = (size_t)ROWS * n * sizeof(float);
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)5 * n, -2, 4);
    CLEANUP(mem_freep) float *w = random_floats(&r, n, 0.5F, 2);
    CLEANUP(mem_freep) float *b = random_floats(&r, n, -2, 2);
    CLEANUP(mem_freep) float *want = test_alloc(1, bytes);
    CLEANUP(mem_freep) float *got = NULL;
    struct k_norm a = {.x = x,
                       .row_ids = picked ? ids : NULL,
                       .kind = v->kind,
                       .weight = v->weighted ? w : NULL,
                       .bias = v->biased ? b : NULL,
                       .eps = 1e-5F,
                       .n = n,
                       .n_rows = ROWS,
                       .out = {.n = n, .f32 = want}};

    k_ref_norm(&a, 0, ROWS);
    a.x = gpu_upload(&g, x, (size_t)5 * n * sizeof(float));
    a.row_ids = picked ? gpu_upload(&g, ids, sizeof(ids)) : NULL;
    a.weight = v->weighted ? gpu_upload(&g, w, n * sizeof(float)) : NULL;
    a.bias = v->biased ? gpu_upload(&g, b, n * sizeof(float)) : NULL;
    a.out.f32 = gpu_alloc(&g, bytes);
    assert_int_equal(k_cuda_norm(&g.k, &a), 0);
    got = gpu_download(&g, a.out.f32, bytes);
    gpu_worst(got, want, (size_t)ROWS * n, NULL, v->weighted ? tolerance : 0);
    gpu_free(&g);
}

static void norms(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++) {
        for (size_t v = 0; v < n_norm_variants; v++)
            check_norm(row_widths[i], &norm_variants[v], true);
        check_norm(row_widths[i], &(struct norm_variant){.weighted = true}, false);
    }
}

static void check_norm_add(uint32_t n, const struct norm_variant *v)
{
    struct gpu g = gpu_new(&small);
    struct random r = {n};
    size_t bytes = (size_t)ROWS * n * sizeof(float);
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)ROWS * n, -3, 3);
    CLEANUP(mem_freep) float *y = random_floats(&r, (size_t)ROWS * n, -2, 4);
    CLEANUP(mem_freep) float *w = random_floats(&r, n, 0.5F, 2);
    CLEANUP(mem_freep) float *b = random_floats(&r, n, -2, 2);
    CLEANUP(mem_freep) float *got = NULL;
    struct k_norm_add a = {.y = y,
                           .kind = v->kind,
                           .weight = v->weighted ? w : NULL,
                           .bias = v->biased ? b : NULL,
                           .eps = 1e-6F,
                           .n = n,
                           .n_rows = ROWS};
    float *on_device = gpu_upload(&g, x, bytes);

    a.x = x;
    k_ref_norm_add(&a, 0, ROWS);
    a.x = on_device;
    a.y = gpu_upload(&g, y, bytes);
    a.weight = v->weighted ? gpu_upload(&g, w, n * sizeof(float)) : NULL;
    a.bias = v->biased ? gpu_upload(&g, b, n * sizeof(float)) : NULL;
    assert_int_equal(k_cuda_norm_add(&g.k, &a), 0);
    got = gpu_download(&g, on_device, bytes);
    gpu_worst(got, x, (size_t)ROWS * n, NULL, tolerance);
    gpu_free(&g);
}

static void norms_added(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++)
        for (size_t v = 0; v < n_norm_variants; v++)
            check_norm_add(row_widths[i], &norm_variants[v]);
}

static void check_gate(uint32_t n, enum k_gate_kind kind, float range)
{
    struct gpu g = gpu_new(&small);
    struct random r = {n};
    size_t bytes = (size_t)ROWS * n * sizeof(float);
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)ROWS * n, -range, range);
    CLEANUP(mem_freep) float *u = random_floats(&r, (size_t)ROWS * n, -3, 3);
    CLEANUP(mem_freep) float *want = test_alloc(1, bytes);
    CLEANUP(mem_freep) float *got = NULL;
    struct k_gate a = {
            .kind = kind, .gate = x, .up = u, .n = n, .n_rows = ROWS, .out = {.n = n, .f32 = want}};

    k_ref_gate(&a, 0, ROWS);
    a.gate = gpu_upload(&g, x, bytes);
    a.up = gpu_upload(&g, u, bytes);
    a.out.f32 = gpu_alloc(&g, bytes);
    assert_int_equal(k_cuda_gate(&g.k, &a), 0);
    got = gpu_download(&g, a.out.f32, bytes);
    gpu_worst(got, want, (size_t)ROWS * n, NULL, tolerance);
    gpu_free(&g);
}

static void gates(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++) {
        check_gate(row_widths[i], K_GATE_SILU, 4);
        check_gate(row_widths[i], K_GATE_GELU_TANH, 4);
    }
    check_gate(64, K_GATE_SILU, 200);
    check_gate(64, K_GATE_GELU_TANH, 20);
}

static void angles(void **state)
{
    enum { N = 40, N_ROWS = 9 };
    struct gpu g = gpu_new(&small);
    float freqs[N];
    uint32_t positions[N_ROWS];
    CLEANUP(mem_freep) float *want = test_alloc((size_t)N_ROWS * 2 * N, sizeof(float));
    CLEANUP(mem_freep) float *got = NULL;
    struct k_angles a = {
            .positions = positions, .freqs = freqs, .n_freqs = N, .n_rows = N_ROWS, .out = want};

    (void)state;
    for (int i = 0; i < N; i++)
        freqs[i] = powf(10000, -(float)i / N);
    for (uint32_t i = 0; i < N_ROWS; i++)
        positions[i] = i * i * i * 200;
    k_ref_angles(&a, 0, N_ROWS);
    a.positions = gpu_upload(&g, positions, sizeof(positions));
    a.freqs = gpu_upload(&g, freqs, sizeof(freqs));
    a.out = gpu_alloc(&g, sizeof(float) * N_ROWS * 2 * N);
    assert_int_equal(k_cuda_angles(&g.k, &a), 0);
    got = gpu_download(&g, a.out, sizeof(float) * N_ROWS * 2 * N);
    gpu_worst(got, want, (size_t)N_ROWS * 2 * N, NULL, tolerance);
    gpu_free(&g);
}

/* Columns of several ranks, the last one's fewer, put in order. */
static void check_gather(uint32_t n, uint32_t n_part)
{
    struct gpu g = gpu_new(&small);
    struct random r = {n};
    uint32_t n_parts = (n + n_part - 1) / n_part;
    size_t n_values = (size_t)n_parts * ROWS * n_part;
    CLEANUP(mem_freep) float *parts = random_floats(&r, n_values, -1, 1);
    CLEANUP(mem_freep) float *want = test_alloc((size_t)ROWS * n, sizeof(float));
    CLEANUP(mem_freep) float *got = NULL;
    struct k_gather a = {.parts = parts, .out = want, .n_part = n_part, .n = n, .n_rows = ROWS};

    k_ref_gather(&a, 0, ROWS);
    a.parts = gpu_upload(&g, parts, n_values * sizeof(float));
    a.out = gpu_alloc(&g, (size_t)ROWS * n * sizeof(float));
    assert_int_equal(k_cuda_gather(&g.k, &a), 0);
    got = gpu_download(&g, a.out, (size_t)ROWS * n * sizeof(float));
    assert_memory_equal(got, want, (size_t)ROWS * n * sizeof(float));
    gpu_free(&g);
}

static void gathers(void **state)
{
    (void)state;
    check_gather(10, 4);
    check_gather(700, 256);
    check_gather(64, 64);
    check_gather(1, 3);
}

/* Rows of a packed table, and every way to name one. */
static void check_embed(enum k_type type, uint32_t n_in)
{
    enum { N_OUT = 32, N = 8, FIRST = 100 }; /* whole quads: a row more is beyond the matrix */
    static const int32_t tokens[N] = {100, 115, INT32_MIN, 131, 99, 132, -1, -1};
    static const uint32_t slots[N] = {9, 9, 9, 9, 9, 9, 1, 0};
    static const int32_t last[2] = {-1, 118};
    struct gpu g = gpu_new(&small);
    struct random r = {type + n_in};
    CLEANUP(mem_freep) void *stored = random_matrix(&r, type, n_in, N_OUT);
    CLEANUP(mem_freep) float *want = test_alloc((size_t)N * n_in, sizeof(float));
    CLEANUP(mem_freep) float *got = NULL;
    struct k_matrix plain = {.type = type, .n_in = n_in, .n_out = N_OUT, .data = stored};
    struct k_matrix packed = gpu_matrix(&g, type, n_in, N_OUT, stored);
    struct k_embed a = {.table = &plain,
                        .first = FIRST,
                        .tokens = tokens,
                        .slots = slots,
                        .last = last,
                        .scale = 1.5F,
                        .out = want,
                        .n_rows = N};

    k_ref_embed(&a, 0, 2);
    a.out = want + (size_t)3 * n_in;
    a.tokens = tokens + 3;
    a.slots = slots + 3;
    k_ref_embed(&a, 0, N - 3);
    a.table = &packed;
    a.tokens = gpu_upload(&g, tokens, sizeof(tokens));
    a.slots = gpu_upload(&g, slots, sizeof(slots));
    a.last = gpu_upload(&g, last, sizeof(last));
    a.out = gpu_alloc(&g, (size_t)N * n_in * sizeof(float));
    assert_int_equal(k_cuda_embed(&g.k, &a), 0);
    got = gpu_download(&g, a.out, (size_t)N * n_in * sizeof(float));
    for (uint32_t i = 0; i < n_in; i++) { /* the row that is padding is not written */
        uint32_t bits;

        memcpy(&bits, got + (size_t)2 * n_in + i, sizeof(bits));
        assert_int_equal(bits, UINT32_MAX);
        got[(size_t)2 * n_in + i] = want[(size_t)2 * n_in + i] = 0;
    }
    gpu_worst(got, want, (size_t)N * n_in, NULL, tolerance);
    gpu_free(&g);
}

static void embeds(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_all_types; t++) {
        check_embed(all_types[t], 256);
        check_embed(all_types[t], 2304); /* an odd number of scales, and more than one block */
    }
    for (size_t t = 0; t < 3; t++)
        check_embed(all_types[t], 7);
    for (size_t t = 3; t < 8; t++)
        check_embed(all_types[t], 32);
}

/* Every byte of the packed form is written, whatever was there. */
static void check_packed_whole(enum k_type type, uint32_t n_in)
{
    enum { N_OUT = 5 };
    struct gpu g = gpu_new(&small);
    struct random r = {type};
    size_t bytes = k_cuda_packed_bytes(type, n_in, N_OUT);
    CLEANUP(mem_freep) void *stored = random_matrix(&r, type, n_in, N_OUT);
    CLEANUP(mem_freep) uint8_t *zeros = test_alloc(1, bytes);
    CLEANUP(mem_freep) uint8_t *first = NULL;
    CLEANUP(mem_freep) uint8_t *second = NULL;
    size_t stored_bytes = (size_t)N_OUT * (n_in / k_block_len(type)) * k_block_bytes(type);
    struct k_pack a = {.type = type,
                       .n_in = n_in,
                       .n_out = N_OUT,
                       .stored = gpu_upload(&g, stored, stored_bytes),
                       .packed = gpu_alloc(&g, bytes)}; /* of ones */

    assert_int_equal(k_cuda_pack(&g.k, &a), 0);
    first = gpu_download(&g, a.packed, bytes);
    a.packed = gpu_upload(&g, zeros, bytes);
    assert_int_equal(k_cuda_pack(&g.k, &a), 0);
    second = gpu_download(&g, a.packed, bytes);
    assert_memory_equal(first, second, bytes);
    gpu_free(&g);
}

static void packing_writes_every_byte(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_all_types; t++) {
        check_packed_whole(all_types[t], 768); /* an odd number of blocks of 256 */
        if (k_block_len(all_types[t]) <= 32)
            check_packed_whole(all_types[t], 96);
    }
}

static void packed_sizes(void **state)
{
    (void)state;
    /* what kernels/cuda/packed.cuh promises, per weight of a large matrix */
    assert_int_equal(k_cuda_packed_bytes(K_F32, 4096, 4096), (size_t)4096 * 4096 * 4);
    assert_int_equal(k_cuda_packed_bytes(K_BF16, 4096, 4096), (size_t)4096 * 4096 * 2);
    assert_int_equal(k_cuda_packed_bytes(K_Q4_0, 4096, 4096), (size_t)4096 * 4096 / 32 * 18);
    assert_int_equal(k_cuda_packed_bytes(K_Q5_1, 4096, 4096), (size_t)4096 * 4096 / 32 * 24);
    assert_int_equal(k_cuda_packed_bytes(K_Q8_0, 4096, 4096), (size_t)4096 * 4096 / 32 * 34);
    assert_int_equal(k_cuda_packed_bytes(K_Q4_K, 4096, 4096), (size_t)4096 * 4096 / 256 * 148);
    assert_int_equal(k_cuda_packed_bytes(K_Q6_K, 4096, 4096), (size_t)4096 * 4096 / 256 * 210);
    assert_int_equal(k_cuda_packed_bytes(K_F32, 1, 1), 4 * 32 * 4);
    assert_int_equal(k_cuda_packed_bytes((enum k_type)99, 64, 64), 0);
}

static void blocks_are_copied(void **state)
{
    enum { BYTES = 5 * 4096 + 16, N_BLOCKS = 6 };
    static const uint32_t from[] = {5, 0};
    static const uint32_t to[] = {1, 3};
    struct gpu g = gpu_new(&small);
    CLEANUP(mem_freep) uint8_t *blocks = test_alloc(N_BLOCKS, BYTES);
    CLEANUP(mem_freep) uint8_t *got = NULL;
    struct random r = {1};
    struct k_kv_copy a = {.block_bytes = BYTES, .n = 2};

    (void)state;
    for (size_t i = 0; i < (size_t)N_BLOCKS * BYTES; i++)
        blocks[i] = (uint8_t)random_u32(&r);
    a.base = gpu_upload(&g, blocks, (size_t)N_BLOCKS * BYTES);
    a.from = gpu_upload(&g, from, sizeof(from));
    a.to = gpu_upload(&g, to, sizeof(to));
    assert_int_equal(k_cuda_kv_copy(&g.k, &a), 0);
    for (size_t i = 0; i < a.n; i++)
        memcpy(blocks + (size_t)to[i] * BYTES, blocks + (size_t)from[i] * BYTES, BYTES);
    got = gpu_download(&g, a.base, (size_t)N_BLOCKS * BYTES);
    assert_memory_equal(got, blocks, (size_t)N_BLOCKS * BYTES);
    gpu_free(&g);
}

/* A launch of no blocks would be an error. */
static void no_rows_are_nothing(void **state)
{
    struct gpu g = gpu_new(&small);
    struct k_matrix table = {.type = K_F32, .n_in = 64, .n_out = 4};

    (void)state;
    assert_int_equal(k_cuda_norm(&g.k, &(struct k_norm){.n = 64}), 0);
    assert_int_equal(k_cuda_norm_add(&g.k, &(struct k_norm_add){.n = 64}), 0);
    assert_int_equal(k_cuda_gate(&g.k, &(struct k_gate){.n = 64}), 0);
    assert_int_equal(k_cuda_gather(&g.k, &(struct k_gather){.n = 64, .n_part = 32}), 0);
    assert_int_equal(k_cuda_angles(&g.k, &(struct k_angles){.n_freqs = 32}), 0);
    assert_int_equal(k_cuda_embed(&g.k, &(struct k_embed){.table = &table}), 0);
    assert_int_equal(k_cuda_kv_copy(&g.k, &(struct k_kv_copy){.block_bytes = 64}), 0);
    gpu_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(norms),
            cmocka_unit_test(norms_added),
            cmocka_unit_test(gates),
            cmocka_unit_test(angles),
            cmocka_unit_test(gathers),
            cmocka_unit_test(embeds),
            cmocka_unit_test(packing_writes_every_byte),
            cmocka_unit_test(packed_sizes),
            cmocka_unit_test(blocks_are_copied),
            cmocka_unit_test(no_rows_are_nothing),
    };

    return gpu_run_tests(tests);
}
