/* SPDX-License-Identifier: Apache-2.0
 *
 * Products on a GPU against the reference, both from the same float32 activations.
 *
 * Tolerance.  Up to K_CUDA_STREAM_ROWS rows all is float32: 2^-16 of the sum of magnitudes, where a
 * weight's magnitude counts as at least 1/8, since a quantised weight's offset cancels.  Beyond,
 * both factors are rounded to tf32: 2^-10 (2 x 2^-11) of the sum of magnitudes more.
 */
#include "tests/support.h"

#include <math.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

static const float stream_tolerance = 0x1p-16F;
static const float tile_tolerance = 0x1p-10F;

struct bench {
    enum k_type type;
    struct matmul_shape s;
    void *stored;
    float *x;
    float *reference; /* [rows][n_out] */
    float *bound;
};

static struct k_cuda_shape sized(uint32_t n_rows, uint32_t n_sms)
{
    return (struct k_cuda_shape){
            .rows_max = n_rows, .n_heads = 1, .n_kv_heads = 1, .head_dim = 8, .n_sms = n_sms};
}

static void make_reference(struct bench *b)
{
    struct k_matrix w = {
            .type = b->type, .n_in = b->s.n_in, .n_out = b->s.n_out, .data = b->stored};
    struct k_matmul a = {
            .in = {.n = b->s.n_in, .f32 = b->x}, .n_rows = b->s.n_rows, .n_mats = 1, .w = {&w}};
    CLEANUP(mem_freep) float *row = test_alloc(b->s.n_in, sizeof(*row));
    size_t row_bytes = (size_t)b->s.n_in / k_block_len(b->type) * k_block_bytes(b->type);

    b->reference = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    b->bound = test_alloc((size_t)b->s.n_rows * b->s.n_out, sizeof(float));
    a.out[0] = b->reference;
    k_ref_ops()->matmul(&a, 0, k_matmul_items(&a));
    for (uint32_t o = 0; o < b->s.n_out; o++) {
        k_dequantise(b->type, (uint8_t *)b->stored + o * row_bytes, b->s.n_in, row);
        for (uint32_t r = 0; r < b->s.n_rows; r++) {
            float sum = 0;
            float least = 0;

            for (uint32_t i = 0; i < b->s.n_in; i++) {
                float x = fabsf(b->x[(size_t)r * b->s.n_in + i]);

                sum += fabsf(row[i]) * x;
                least += fmaxf(fabsf(row[i]), 0.125F) * x;
            }
            b->bound[(size_t)r * b->s.n_out + o] =
                    stream_tolerance * least +
                    (b->s.n_rows > K_CUDA_STREAM_ROWS ? tile_tolerance * sum : 0) + 1e-30F;
        }
    }
}

static struct bench bench_new(enum k_type type, struct matmul_shape s)
{
    struct random r = {s.n_in * 31 + s.n_out};
    struct bench b = {.type = type, .s = s};

    b.x = random_floats(&r, (size_t)s.n_rows * s.n_in, -2, 2);
    b.stored = random_matrix(&r, type, s.n_in, s.n_out);
    make_reference(&b);
    return b;
}

static void bench_free(struct bench *b)
{
    mem_free(b->stored);
    mem_free(b->x);
    mem_free(b->reference);
    mem_free(b->bound);
}

static void set(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* The first n_rows rows' product. */
static float *product(struct gpu *g, const struct bench *b, uint32_t n_rows)
{
    size_t bytes = (size_t)n_rows * b->s.n_out * sizeof(float);
    struct k_matrix w = gpu_matrix(g, b->type, b->s.n_in, b->s.n_out, b->stored);
    struct k_matmul a = {.in = {.n = b->s.n_in}, .n_rows = n_rows, .n_mats = 1, .w = {&w}};

    a.in.f32 = gpu_upload(g, b->x, (size_t)n_rows * b->s.n_in * sizeof(float));
    a.out[0] = gpu_alloc(g, bytes);
    assert_int_equal(k_cuda_matmul(&g->k, &a), 0);
    return gpu_download(g, a.out[0], bytes);
}

static void check_bench(const struct bench *b, uint32_t n_sms)
{
    struct k_cuda_shape shape = sized(b->s.n_rows, n_sms);
    struct gpu g = gpu_new(&shape);
    CLEANUP(mem_freep) float *got = product(&g, b, b->s.n_rows);

    gpu_worst(got, b->reference, (size_t)b->s.n_rows * b->s.n_out, b->bound, 0);
    gpu_free(&g);
}

static void check(enum k_type type, struct matmul_shape s)
{
    struct bench b = bench_new(type, s);

    check_bench(&b, 4);
    bench_free(&b);
}

static void all_types_and_shapes(void **state)
{
    (void)state;
    for (size_t t = 0; t < n_all_types; t++)
        for (size_t s = 0; s < n_matmul_shapes; s++)
            check(all_types[t], matmul_shapes[s]);
    for (size_t t = 0; t < 3; t++)
        for (size_t s = 0; s < n_float_shapes; s++)
            check(all_types[t], float_shapes[s]);
    for (size_t t = 0; t < 3; t++) /* half a step of inputs is left over */
        check(all_types[t], (struct matmul_shape){.n_in = 92, .n_out = 8, .n_rows = 16});
    for (size_t t = 3; t < 8; t++) { /* blocks of 32 */
        check(all_types[t], (struct matmul_shape){.n_in = 576, .n_out = 19, .n_rows = 11});
        check(all_types[t], (struct matmul_shape){.n_in = 32, .n_out = 5, .n_rows = 1});
        check(all_types[t], (struct matmul_shape){.n_in = 96, .n_out = 8, .n_rows = 16});
    }
}

/* Every width of tile, with rows and outputs over; the largest one. */
static void tiles(void **state)
{
    static const struct matmul_shape shapes[] = {
            {256, 65, 16}, {256, 63, 32}, {256, 130, 33},
            {256, 70, 64}, {256, 70, 65}, {256, 9, 130},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check(K_BF16, shapes[i]);
        check(K_Q4_K, shapes[i]);
    }
    check(K_F16, (struct matmul_shape){37, 70, 17});
    check(K_Q4_0, (struct matmul_shape){512, 256, 128});
    check(K_F32, (struct matmul_shape){512, 256, 128});
}

/* With this much scratch, if it is not what k_cuda_scratch_bytes() says. */
static void check_scratch(const struct bench *b, uint32_t n_sms, size_t bytes)
{
    struct k_cuda_shape shape = sized(b->s.n_rows, n_sms);
    struct gpu g = gpu_new(&shape);
    CLEANUP(mem_freep) float *got = NULL;

    g.k.scratch = gpu_alloc(&g, bytes);
    g.k.scratch_bytes = bytes;
    got = product(&g, b, b->s.n_rows);
    gpu_worst(got, b->reference, (size_t)b->s.n_rows * b->s.n_out, b->bound, 0);
    gpu_free(&g);
}

/* The inputs cut into parts, whose sums are added: as many as the device and scratch allow. */
static void parts(void **state)
{
    struct bench b = bench_new(K_Q8_0, (struct matmul_shape){2048, 70, 20});

    (void)state;
    for (uint32_t n_sms = 1; n_sms <= 132; n_sms += n_sms < 4 ? 1 : 64)
        check_bench(&b, n_sms);
    for (size_t n = 1; n <= 7; n += 2) /* of halves of a part */
        check_scratch(&b, 132, n * 20 * 70 * sizeof(float) / 2);
    bench_free(&b);
}

/* A row's result does not depend on how many others there are, up to eight. */
static void rows_are_alone(void **state)
{
    struct bench b = bench_new(K_Q6_K, (struct matmul_shape){1024, 33, 8});
    struct k_cuda_shape shape = sized(8, 4);
    struct gpu g = gpu_new(&shape);
    CLEANUP(mem_freep) float *eight = product(&g, &b, 8);

    (void)state;
    for (uint32_t n = 1; n < 8; n++) {
        CLEANUP(mem_freep) float *fewer = product(&g, &b, n);

        assert_memory_equal(eight, fewer, (size_t)n * 33 * sizeof(float));
    }
    gpu_free(&g);
    bench_free(&b);
}

/* A row that is no number, as padding may be, leaves the others what they are. */
static void check_bad_row(enum k_type type, struct matmul_shape s)
{
    struct bench b = bench_new(type, s);
    struct k_cuda_shape shape = sized(s.n_rows, 4);
    struct gpu g = gpu_new(&shape);
    CLEANUP(mem_freep) float *got = NULL;

    set(b.x, s.n_in, NAN);
    got = product(&g, &b, s.n_rows);
    gpu_worst(got + s.n_out, b.reference + s.n_out, (size_t)(s.n_rows - 1) * s.n_out,
              b.bound + s.n_out, 0);
    gpu_free(&g);
    bench_free(&b);
}

static void bad_rows_are_alone(void **state)
{
    (void)state;
    check_bad_row(K_F32, (struct matmul_shape){92, 9, 17});
    check_bad_row(K_Q4_0, (struct matmul_shape){96, 70, 17});
    check_bad_row(K_BF16, (struct matmul_shape){33, 9, 17});
    check_bad_row(K_Q8_0, (struct matmul_shape){96, 9, 5});
}

/* No rows need no memory. */
static void no_rows_are_nothing(void **state)
{
    struct k_cuda_shape shape = sized(1, 4);
    struct gpu g = gpu_new(&shape);
    struct k_matrix w = {.type = K_Q8_0, .n_in = 256, .n_out = 8};
    struct k_matmul a = {.in = {.n = 256}, .n_mats = 1, .w = {&w}};

    (void)state;
    assert_int_equal(k_cuda_matmul(&g.k, &a), 0);
    gpu_free(&g);
}

/* The greatest and the least integers everywhere: nothing is lost when the offset cancels. */
static void extremes(void **state)
{
    static const int fills[] = {0x00, 0x0f, 0x7f, 0x81, 0xf0, 0xff};
    static const struct matmul_shape s = {.n_in = 512, .n_out = 16, .n_rows = 9};

    (void)state;
    for (size_t t = 3; t < n_all_types; t++)
        for (size_t f = 0; f < sizeof(fills) / sizeof(fills[0]); f++) {
            enum k_type type = all_types[t];
            struct bench b = {.type = type, .s = s};
            size_t n_blocks = (size_t)s.n_out * s.n_in / k_block_len(type);
            struct random r = {1};
            uint8_t *scale;

            b.s.n_rows = f % 2 == 0 ? 9 : 5;
            b.x = random_floats(&r, (size_t)s.n_rows * s.n_in, 1, 1.5F);
            b.stored = test_alloc(n_blocks, k_block_bytes(type));
            memset(b.stored, fills[f], n_blocks * k_block_bytes(type));
            scale = (uint8_t *)b.stored + (type == K_Q6_K ? 208 : 0);
            for (size_t i = 0; i < n_blocks; i++, scale += k_block_bytes(type)) {
                bool two = type == K_Q4_1 || type == K_Q5_1 || type == K_Q4_K || type == K_Q5_K;

                memcpy(scale, "\x00\x24\x00\x24", two ? 4 : 2); /* 2^-6 */
            }
            make_reference(&b);
            check_bench(&b, 4);
            bench_free(&b);
        }
}

/* Several matrices at once, adding to what is there; type: of the second, others are Q8_0. */
static void check_several(enum k_type type, uint32_t n_rows, uint32_t n_sms)
{
    static const uint32_t n_outs[K_MATMUL_MAX] = {17, 140, 66};
    struct k_cuda_shape shape = sized(n_rows, n_sms);
    struct gpu g = gpu_new(&shape);
    struct bench b[K_MATMUL_MAX];
    struct k_matrix w[K_MATMUL_MAX];
    struct k_matmul a = {.in = {.n = 1024}, .n_rows = n_rows, .n_mats = K_MATMUL_MAX, .add = true};

    for (int m = 0; m < K_MATMUL_MAX; m++) {
        size_t n = (size_t)n_rows * n_outs[m];
        CLEANUP(mem_freep) float *ones = test_alloc(n, sizeof(float));

        b[m] = bench_new(m == 1 ? type : K_Q8_0, (struct matmul_shape){1024, n_outs[m], n_rows});
        mem_free(b[m].x);
        b[m].x = random_floats(&(struct random){7}, (size_t)n_rows * 1024, -1, 1);
        mem_free(b[m].reference);
        mem_free(b[m].bound);
        make_reference(&b[m]);
        set(ones, n, 1);
        w[m] = gpu_matrix(&g, b[m].type, 1024, n_outs[m], b[m].stored);
        a.w[m] = &w[m];
        a.out[m] = gpu_upload(&g, ones, n * sizeof(float));
    }
    a.in.f32 = gpu_upload(&g, b[0].x, (size_t)n_rows * 1024 * sizeof(float));
    assert_int_equal(k_cuda_matmul(&g.k, &a), 0);
    for (int m = 0; m < K_MATMUL_MAX; m++) {
        size_t n = (size_t)n_rows * n_outs[m];
        CLEANUP(mem_freep) float *got = gpu_download(&g, a.out[m], n * sizeof(float));

        for (size_t i = 0; i < n; i++)
            got[i] -= 1;
        gpu_worst(got, b[m].reference, n, b[m].bound, 0);
        bench_free(&b[m]);
    }
    gpu_free(&g);
}

static void several_matrices_and_add(void **state)
{
    (void)state;
    check_several(K_Q4_1, 3, 4);
    check_several(K_Q4_1, 11, 1);
    check_several(K_Q4_1, 11, 16);
    check_several(K_Q8_0, 3, 4);
    check_several(K_Q8_0, 11, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(all_types_and_shapes),
            cmocka_unit_test(tiles),
            cmocka_unit_test(parts),
            cmocka_unit_test(rows_are_alone),
            cmocka_unit_test(bad_rows_are_alone),
            cmocka_unit_test(no_rows_are_nothing),
            cmocka_unit_test(extremes),
            cmocka_unit_test(several_matrices_and_add),
    };

    return gpu_run_tests(tests);
}
