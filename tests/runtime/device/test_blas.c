/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by cuBLASLt, rounded inputs and all, against plain loops; on the virtual GPU its twin.
 */
#include "runtime/device/blas.h"

#include <cuda_runtime_api.h>
#include <math.h>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/half.h"
#include "tests/kernels/kernel_data.h"
#include "tests/support.h"

static void *to_gpu(cudaStream_t stream, const void *host, size_t bytes)
{
    void *p = NULL;

    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    return p;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits = k_to_bits(f);

    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static void check(struct blas *blas, cudaStream_t stream, uint32_t n_rows, uint32_t n_in,
                  uint32_t n_out, bool add)
{
    struct random r = {n_rows + n_in + n_out};
    uint32_t stride = k_cuda_row_stride(n_in);
    CLEANUP(mem_freep) float *x = random_floats(&r, n_rows * n_in, -2, 2);
    CLEANUP(mem_freep) float *w = random_floats(&r, n_out * n_in, -1, 1);
    CLEANUP(mem_freep) float *y = random_floats(&r, n_rows * n_out, -1, 1);
    float *got = test_alloc((size_t)n_rows * n_out, sizeof(*got));
    uint16_t *w16 = test_alloc((size_t)n_out * stride, sizeof(*w16));
    uint16_t *nothing = test_alloc((size_t)n_rows * stride, sizeof(*nothing));
    struct k_cuda k = {.stream = stream};
    struct blas_product p = {.n_rows = n_rows,
                             .n_in = n_in,
                             .n_out = n_out,
                             .x_stride = stride,
                             .w_stride = stride,
                             .add = add,
                             .stream = stream};
    void *x_there = to_gpu(stream, x, (size_t)n_rows * n_in * sizeof(*x)), *x16, *w_there, *y_there;
    struct err err = {0};

    for (uint32_t o = 0; o < n_out; o++)
        for (uint32_t i = 0; i < n_in; i++)
            w16[(size_t)o * stride + i] = to_bf16(w[(size_t)o * n_in + i]);
    p.x = x16 = to_gpu(stream, nothing, (size_t)n_rows * stride * sizeof(*nothing));
    p.w = w_there = to_gpu(stream, w16, (size_t)n_out * stride * sizeof(*w16));
    p.y = y_there = to_gpu(stream, y, (size_t)n_rows * n_out * sizeof(*y));
    assert_int_equal(k_cuda_round(&k, x_there, n_in, n_rows, x16, stride), cudaSuccess);
    assert_ok(blas_multiply(blas, &p, &err), &err);
    assert_int_equal(cudaMemcpyAsync(got, y_there, (size_t)n_rows * n_out * sizeof(*got),
                                     cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    for (uint32_t a = 0; a < n_rows; a++)
        for (uint32_t o = 0; o < n_out; o++) {
            double sum = add ? (double)y[(size_t)a * n_out + o] : 0, size = 1;

            for (uint32_t i = 0; i < n_in; i++) {
                double term = (double)k_bf16_to_float(to_bf16(x[(size_t)a * n_in + i])) *
                              (double)k_bf16_to_float(w16[(size_t)o * stride + i]);

                sum += term;
                size += fabs(term);
            }
            assert_true(fabs((double)got[(size_t)a * n_out + o] - sum) <= 1e-5 * size);
        }
    assert_int_equal(cudaFree(x_there) | cudaFree(x16) | cudaFree(w_there) | cudaFree(y_there), 0);
    mem_free(got);
    mem_free(w16);
    mem_free(nothing);
}

static void products_are_what_loops_give(void **state)
{
    static const uint32_t sizes[][3] = {{1, 8, 1},    {64, 96, 33},   {65, 40, 64},
                                        {70, 33, 17}, {128, 256, 50}, {3, 1, 5}};
    struct blas *blas = NULL;
    cudaStream_t stream;
    struct err err;

    (void)state;
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_ok(blas_new(&blas, &err), &err);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int add = 0; add < 2; add++)
            check(blas, stream, sizes[i][0], sizes[i][1], sizes[i][2], add != 0);
    blas_free(blas);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

static int make_blas(struct err *err)
{
    struct blas *b = NULL;
    int r = blas_new(&b, err);

    blas_free(b);
    return r;
}

static void blas_survives_every_oom(void **state)
{
    struct err err;

    (void)state;
    mem_sweep(make_blas(&err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(products_are_what_loops_give),
            cmocka_unit_test(blas_survives_every_oom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
