/* SPDX-License-Identifier: Apache-2.0
 *
 * round.cu - float32 rows as bfloat16, for products that a library makes.
 *
 * One thread two neighbouring values; blocks walk over all rows.  Bytes: 6 a value.  Flops: none.
 * Bound: memory.  Rows of an odd length end with a single value.
 *
 * occupancy: round_rows threads=256 shared=0 blocks=8
 */
#include <cuda_bf16.h>

#include "kernels/cuda/launch.cuh"

enum { THREADS = 256 };

struct round_args {
    const float *x;
    __nv_bfloat16 *out;
    uint32_t n;
    uint32_t stride;
};

/* blockIdx.y: the row */
static __global__ __launch_bounds__(THREADS) void round_rows(struct round_args a)
{
    const float *x = a.x + (size_t)blockIdx.y * a.n;
    __nv_bfloat16 *out = a.out + (size_t)blockIdx.y * a.stride;
    uint32_t i = 2 * (blockIdx.x * THREADS + threadIdx.x);

    if (i < a.n)
        out[i] = __float2bfloat16_rn(x[i]);
    if (i + 1 < a.n)
        out[i + 1] = __float2bfloat16_rn(x[i + 1]);
}

extern "C" int k_cuda_round(const struct k_cuda *c, const float *x, uint32_t n, uint32_t n_rows,
                            void *out, uint32_t stride)
{
    struct round_args args = {};

    args.x = x;
    args.out = (__nv_bfloat16 *)out;
    args.n = n;
    args.stride = stride;
    return launch(c, round_rows, dim3(divide_up(n, 2 * THREADS), n_rows), THREADS, 0, args);
}
