/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The PTX instructions that CUDA C++ has no name for, one function each: the only place with
 * inline assembly.  For every function the comment gives the data each lane holds, as the PTX ISA
 * 9.0 document states it; lanes are written l, with g = l / 4 and t = l % 4. */

#include <stdint.h>

#include <cuda_runtime.h>

/* The block's dynamic shared memory, 128-byte aligned. */
__device__ __forceinline__ unsigned char *ptx_shared()
{
    extern __shared__ __align__(128) unsigned char ptx_shared_base[];

    return ptx_shared_base;
}

__device__ __forceinline__ uint32_t ptx_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes of read-only memory that nobody will read again soon: weights pass through. */
__device__ __forceinline__ uint4 ptx_load_stream(const void *p)
{
    uint4 v;

    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Copy 16 bytes from global to shared memory, both 16-byte aligned; zeros when !valid, and then
 * 'global' is not read.  Seen by this thread after ptx_cp_async_wait(), by others after a barrier
 * that follows it. */
__device__ __forceinline__ void ptx_cp_async16(void *shared, const void *global, bool valid)
{
    uint32_t bytes = valid ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx_shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}

/* Close this thread's group of copies. */
__device__ __forceinline__ void ptx_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N of this thread's groups are not done. */
template <int N> __device__ __forceinline__ void ptx_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8
 * (16 bytes in shared memory).  r[i] of lane l: elements 2t, 2t + 1 of row g of matrix i. */
__device__ __forceinline__ void ptx_ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

/* The same, each matrix transposed: r[i] of lane l has rows 2t, 2t + 1 of column g. */
__device__ __forceinline__ void ptx_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

/* Rounded to 10 bits of mantissa (nearest, ties away), as a float's bits. */
__device__ __forceinline__ uint32_t ptx_to_tf32(float x)
{
    uint32_t bits;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* d[16][8] += a[16][8] b[8][8], tf32.  a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4);
 * b: (t, g), (t + 4, g); d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). */
__device__ __forceinline__ void ptx_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d[16][8] += a[16][16] b[16][8], float16, summed in float32.  Each register holds two neighbours
 * along k: a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); b: (2t, g), (2t + 8, g); d as
 * above. */
__device__ __forceinline__ void ptx_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same in bfloat16. */
__device__ __forceinline__ void ptx_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
