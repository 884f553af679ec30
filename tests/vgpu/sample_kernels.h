/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Kernels that the virtual GPU's tests run: a few that are right, and for each kind of bug one
 * that has it. */

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

__global__ void k_fill(float *out, float value, unsigned n);
__global__ void k_add_one(float *x, unsigned n);
__global__ void k_where(unsigned *out); /* block-, thread indices, lane by lane */

/* Sum of n floats by a block: shuffles, then shared memory (one float a warp). 'bug' takes away:
 * 1 the barrier, 2 nothing, but lane 7 leaves first, 3 lane 5's shuffle is another one */
__global__ void k_sum(const float *x, float *out, unsigned n, int bug);

/* out[i] = x[n - 1 - i] within each block's 256, copied by cp.async.  bug: 1 the wait comes too
 * late, 2 no barrier, 3 no commit before the wait, 4 no wait */
__global__ void k_reverse(const float *x, float *out, int bug);

/* A block of 32 threads: C[16][8] = A B with B given transposed ([8][k]), operands by ldmatrix. */
__global__ void k_mma_tf32(const float *a, const float *b, float *c);  /* k = 8 */
__global__ void k_mma_f16(const __half *a, const __half *b, float *c); /* k = 16 */
__global__ void k_mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c);
__global__ void k_transpose(const unsigned short *in, unsigned short *out); /* four 8 x 8 */

__global__ void k_atomics(unsigned *sum, unsigned *most, int *least, float *total);
__global__ void k_votes(unsigned *out);
__global__ void k_shuffles(int *out);                 /* 4 x 32: idx, up, down, xor */
__global__ void k_neighbours(unsigned *out, int bug); /* bug: no __syncwarp */

/* One bug each, for launches that must end with a report. */
__global__ void k_bad_store(float *x, size_t at);
__global__ void k_bad_load(const float *x, float *out);
__global__ void k_bad_shared(unsigned at);
__global__ void
k_bad_barrier(int kind);              /* 0 two lines meet, 1 half of the block, a shuffle waits */
__global__ void k_bad_mask(int kind); /* 0 own lane missing, 1 ended lane, 2 other source lane */
/* 0 rows not aligned, 1 no barrier after the copy of others, 2 no barrier before the next copy */
__global__ void k_bad_ldmatrix(const float *x, int kind);
