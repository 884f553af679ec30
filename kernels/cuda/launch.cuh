/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_ops.h"

/* What every .cu shares: how a kernel is queued, and sums over a warp and a block. */

enum { WARP = 32 };
static constexpr uint32_t all_lanes = 0xffffffffU;

/* Queue a kernel that takes one struct by value.  An empty grid is nothing to do. */
template <class Args>
int launch(const struct k_cuda *c, void (*kernel)(Args), dim3 grid, uint32_t n_threads,
           size_t shared_bytes, const Args &args)
{
    cudaLaunchConfig_t config = {};

    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return 0;
    config.gridDim = grid;
    config.blockDim = dim3(n_threads, 1, 1);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)c->stream;
    return (int)cudaLaunchKernelEx(&config, kernel, args);
}

template <class Args> int allow_shared(void (*kernel)(Args), size_t bytes)
{
    return (int)cudaFuncSetAttribute((const void *)kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* a / b rounded up; on both sides of the launch */
__host__ __device__ constexpr uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* The sum over the warp, in every lane. */
__device__ __forceinline__ float warp_sum(float x)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(all_lanes, x, distance);
    return x;
}

/* The sum over a block of whole warps, in every thread.  parts: shared, WARP floats, not in use.
 * Always the same order. */
__device__ __forceinline__ float block_sum(float x, float *parts)
{
    uint32_t n_warps = blockDim.x / WARP;

    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % WARP < n_warps ? parts[threadIdx.x % WARP] : 0);
}
