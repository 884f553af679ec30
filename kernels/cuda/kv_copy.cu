/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_copy.cu - copies of whole KV blocks, for sequences that share a beginning and then part.
 *
 * A row of blocks (blockIdx.y) per copied KV block, 256 threads each, 16 bytes a thread at a
 * time, grid-strided.  Bytes: 2 block_bytes a copy; no flops; bound by memory bandwidth.
 *
 * occupancy: kv_copy threads=256 shared=0 blocks=6
 */
#include "kernels/cuda/launch.cuh"

static constexpr uint32_t THREADS = 256;
static constexpr uint64_t BLOCKS_MAX = 64;

static __global__ __launch_bounds__(THREADS) void kv_copy(struct k_kv_copy a)
{
    const uint4 *from =
            (const uint4 *)((unsigned char *)a.base + a.from[blockIdx.y] * a.block_bytes);
    uint4 *to = (uint4 *)((unsigned char *)a.base + a.to[blockIdx.y] * a.block_bytes);

    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < a.block_bytes / sizeof(*to);
         i += (uint64_t)gridDim.x * THREADS)
        to[i] = from[i];
}

extern "C" int k_cuda_kv_copy(const struct k_cuda *c, const struct k_kv_copy *a)
{
    uint64_t blocks = (a->block_bytes / sizeof(uint4) + THREADS - 1) / THREADS;
    uint32_t n = (uint32_t)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);

    return launch(c, kv_copy, dim3(n, a->n), THREADS, 0, *a);
}
