/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_kernels.cu - see sample_kernels.h.  They are launched as the product does it, by
 * cudaLaunchKernelEx(), and are nobody's example of speed.
 */
#include "tests/vgpu/sample_kernels.h"

#include "kernels/cuda/ptx.cuh"

__device__ static unsigned global_index()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void k_fill(float *out, float value, unsigned n)
{
    if (global_index() < n)
        out[global_index()] = value;
}

__global__ void k_add_one(float *x, unsigned n)
{
    if (global_index() < n)
        x[global_index()] += 1.0f;
}

__global__ void k_where(unsigned *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

__global__ void k_sum(const float *x, float *out, unsigned n, int bug)
{
    float *part = (float *)ptx_shared(), sum = 0;
    unsigned t = threadIdx.x, lane = t % 32;
    for (unsigned i = t; i < n; i += blockDim.x)
        sum += x[i];
    if (bug == 2 && lane == 7)
        return;
    for (int by = 16; by > 0; by /= 2) {
        if (bug == 3 && lane == 5)
            sum += __shfl_down_sync(0xffffffffu, sum, unsigned(by));
        else
            sum += __shfl_xor_sync(0xffffffffu, sum, by);
    }
    if (lane == 0)
        part[t / 32] = sum;
    if (bug != 1)
        __syncthreads();
    sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++)
        sum += part[i];
    out[t] = sum;
}

__global__ void k_reverse(const float *x, float *out, int bug)
{
    float *tile = (float *)ptx_shared();
    unsigned t = threadIdx.x, base = blockIdx.x * 256;
    if (t < 64)
        ptx_cp_async16(tile + 4 * t, x + base + 4 * t, true);
    if (bug != 3)
        ptx_cp_async_commit();
    if (bug != 1 && bug != 4)
        ptx_cp_async_wait<0>();
    if (bug != 2)
        __syncthreads();
    out[base + t] = tile[255 - t];
    if (bug == 3)
        ptx_cp_async_commit();
    if (bug == 1 || bug == 3)
        ptx_cp_async_wait<0>();
}

__device__ static void load_tiles(const void *a, const void *b, unsigned char *shared)
{
    /* A: 16 rows of 32 bytes, B: 8 rows of 32 bytes, as they come */
    unsigned t = threadIdx.x;
    ptx_cp_async16(shared + 16 * t, (const unsigned char *)a + 16 * t, true);
    ptx_cp_async16(shared + 512 + 16 * t, (const unsigned char *)b + (t < 16 ? 16 * t : 0), t < 16);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
}

__device__ static void store_c(const float d[4], float *c)
{
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    c[8 * g + 2 * t] = d[0];
    c[8 * g + 2 * t + 1] = d[1];
    c[8 * (g + 8) + 2 * t] = d[2];
    c[8 * (g + 8) + 2 * t + 1] = d[3];
}

/* Rows of 32 bytes: matrix m holds rows 8 (m % 2) .., bytes 16 (m / 2) .. */
__device__ static const unsigned char *row_of_a(const unsigned char *shared)
{
    unsigned lane = threadIdx.x, m = lane / 8;
    return shared + 32 * (8 * (m % 2) + lane % 8) + 16 * (m / 2);
}

__device__ static const unsigned char *row_of_b(const unsigned char *shared)
{
    unsigned lane = threadIdx.x, m = lane / 8;
    return shared + 512 + 32 * (lane % 8) + 16 * (m % 2);
}

__global__ void k_mma_tf32(const float *a, const float *b, float *c)
{
    float d[4] = {};
    uint32_t fa[4], fb[4];
    load_tiles(a, b, ptx_shared());
    ptx_ldmatrix_x4(fa, row_of_a(ptx_shared()));
    ptx_ldmatrix_x4(fb, row_of_b(ptx_shared()));
    for (uint32_t &f : fa)
        f = ptx_to_tf32(__uint_as_float(f));
    for (uint32_t &f : fb)
        f = ptx_to_tf32(__uint_as_float(f));
    ptx_mma_tf32(d, fa, fb);
    store_c(d, c);
}

__global__ void k_mma_f16(const __half *a, const __half *b, float *c)
{
    float d[4] = {};
    uint32_t fa[4], fb[4];
    load_tiles(a, b, ptx_shared());
    ptx_ldmatrix_x4(fa, row_of_a(ptx_shared()));
    ptx_ldmatrix_x4(fb, row_of_b(ptx_shared()));
    ptx_mma_f16(d, fa, fb);
    store_c(d, c);
}

__global__ void k_mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    float d[4] = {};
    uint32_t fa[4], fb[4];
    load_tiles(a, b, ptx_shared());
    ptx_ldmatrix_x4(fa, row_of_a(ptx_shared()));
    ptx_ldmatrix_x4(fb, row_of_b(ptx_shared()));
    ptx_mma_bf16(d, fa, fb);
    store_c(d, c);
}

__global__ void k_transpose(const unsigned short *in, unsigned short *out)
{
    uint32_t r[4];
    unsigned lane = threadIdx.x;
    ptx_cp_async16(ptx_shared() + 16 * lane, in + 8 * lane, true);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncwarp();
    ptx_ldmatrix_x4_trans(r, ptx_shared() + 16 * lane);
    for (unsigned m = 0; m < 4; m++) { /* two elements of row lane / 4 */
        out[64 * m + 2 * lane] = (unsigned short)(r[m] & 0xffff);
        out[64 * m + 2 * lane + 1] = (unsigned short)(r[m] >> 16);
    }
}

__global__ void k_atomics(unsigned *sum, unsigned *most, int *least, float *total)
{
    atomicAdd(sum, global_index());
    atomicMax(most, global_index());
    atomicMin(least, -(int)global_index());
    atomicAdd(total, 0.5f);
}

__global__ void k_votes(unsigned *out)
{
    unsigned lane = threadIdx.x;
    unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
    int any = __any_sync(0xffffffffu, lane == 9), all = __all_sync(0xffffffffu, lane < 31);
    unsigned half_mask = lane < 16 ? 0x0000ffffu : 0xffff0000u; /* two halves, side by side */
    unsigned in_half = __ballot_sync(half_mask, lane % 3 == 0);
    out[lane] = odd;
    out[32 + lane] = (unsigned)any << 1 | (unsigned)all;
    out[64 + lane] = in_half;
}

__global__ void k_shuffles(int *out)
{
    int lane = (int)threadIdx.x;
    out[lane] = __shfl_sync(0xffffffffu, 100 + lane, lane + 3, 8);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, 100 + lane, 2);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, 100 + lane, 5);
    out[96 + lane] = __shfl_xor_sync(0xffffffffu, 100 + lane, 6);
}

__global__ void k_neighbours(unsigned *out, int bug)
{
    unsigned *line = (unsigned *)ptx_shared(), lane = threadIdx.x;
    line[lane] = 7 * lane;
    if (!bug)
        __syncwarp();
    out[lane] = line[(lane + 1) % 32] + line[(lane + 31) % 32];
}

__global__ void k_bad_store(float *x, size_t at)
{
    if (threadIdx.x == 5)
        x[at] = 1.0f;
}

__global__ void k_bad_load(const float *x, float *out)
{
    *out = *x;
}

__global__ void k_bad_shared(unsigned at)
{
    if (threadIdx.x == 3)
        ptx_shared()[at] = 1;
}

__global__ void k_bad_barrier(int kind)
{
    unsigned t = threadIdx.x;
    if (kind == 0) {
        if (t < 32)
            __syncthreads();
        else
            __syncthreads();
    } else if (t < 32) {
        __syncthreads();
    } else if (t != 40) {
        __shfl_xor_sync(0xffffffffu, t, 1); /* lane 8 waits at the barrier instead */
    } else {
        __syncthreads();
    }
}

__global__ void k_bad_mask(int kind)
{
    unsigned lane = threadIdx.x;
    if (kind == 0)
        __syncwarp(0x0fffffffu);
    else if (kind == 1 && lane != 0)
        __ballot_sync(0xffffffffu, 1);
    else if (kind == 2 && lane < 8)
        __shfl_sync(0xffu, lane, 20);
}

__global__ void k_bad_ldmatrix(const float *x, int kind)
{
    unsigned char *mine = ptx_shared() + 16 * threadIdx.x;
    uint32_t r[4];
    for (int round = 0; round < 2; round++) {
        ptx_cp_async16(mine, x + 4 * threadIdx.x, true);
        ptx_cp_async_commit();
        ptx_cp_async_wait<0>();
        if (kind != 1)
            __syncwarp();
        ptx_ldmatrix_x4(r, kind == 0 ? mine + 8 : mine);
        if (kind != 2)
            __syncwarp();
    }
}
