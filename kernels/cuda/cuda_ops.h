/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA backend's C ABI.  The args are those of kernels.h, and every pointer in them is device
 * memory, 16-byte aligned, except the args structs themselves and struct k_matrix.  A function
 * queues its kernels on the stream and returns: a cudaError_t as int, 0 when they are queued.  It
 * allocates nothing and waits for nothing, and its grid depends on the counts in the args alone,
 * so it can be captured into a graph.  Any thread, one at a time for one k_cuda.
 *
 * What differs from kernels.h:
 *   k_act       only .f32 is written and read
 *   k_matrix    .data is what k_cuda_pack() made
 *   k_kv        float16, head_dim a multiple of 8 and at most K_CUDA_HEAD_MAX, both offsets and
 *               block_bytes multiples of 16.  Keys are [n_kv_heads][K_BLOCK][head_dim], as values
 *               are: a position's key is read in 16-byte pieces.  As large as the host's.
 *   k_attend    at most K_CUDA_GROUP_MAX heads share a KV head
 *   k_sample    n_vocab below 2^20; scratch is used by rows that filter
 *
 * A graph for n rows serves fewer when the rest is marked, and then left out: a token INT32_MIN
 * (embed), a seq_of or a slot UINT32_MAX (store, sample), a span of no rows (attend), an adjustment
 * of zeros.  Other ops compute whatever such rows hold.
 *
 * Precision: float32, but products of more than K_CUDA_STREAM_ROWS rows, whose factors are
 * rounded to tf32 (10 bits of mantissa), and attention, whose queries (times scale) and weights
 * are rounded to float16; all sums are float32. */
enum {
    K_CUDA_HEAD_MAX = 256,
    K_CUDA_GROUP_MAX = 16,
    K_CUDA_STREAM_ROWS =
            8, /* up to here a matmul streams the weights, beyond it multiplies tiles */
    K_CUDA_SPLITS_MAX = 64, /* pieces that one sequence's cache is cut into */
};

/* What a launch needs besides its args. */
struct k_cuda {
    void *stream;  /* cudaStream_t */
    void *scratch; /* device memory, 16-byte aligned; ops of one stream share it */
    size_t scratch_bytes;
    uint32_t n_sms; /* the device's multiprocessors */
};

/* Once a device, with that device current: kernels that use more than 48 KiB of shared memory say
 * so.  Returns a cudaError_t. */
int k_cuda_init(void);

/* Scratch for any op of these sizes. */
struct k_cuda_shape {
    uint32_t rows_max; /* of any op */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_sms;
};
size_t k_cuda_scratch_bytes(const struct k_cuda_shape *s);

size_t k_cuda_packed_bytes(enum k_type type, uint32_t n_in, uint32_t n_out);
/* stored and packed: device memory.  Every byte of packed is written.  stored is of whole rows,
 * aligned to 4 bytes for float32, to 2 for the rest. */
int k_cuda_pack(const struct k_cuda *c, const struct k_pack *a);

/* A packed matrix of float16 or bfloat16 is row-major, as libraries read it: this many values from
 * one row to the next, those beyond n_in zero. */
static inline uint32_t k_cuda_row_stride(uint32_t n_in)
{
    return (n_in + K_GROUP - 1) / K_GROUP * K_GROUP;
}
/* Rows [n_rows][n] of float32 as bfloat16, 'stride' values from one row to the next. */
int k_cuda_round(const struct k_cuda *c, const float *x, uint32_t n, uint32_t n_rows, void *out,
                 uint32_t stride);

int k_cuda_embed(const struct k_cuda *c, const struct k_embed *a);
int k_cuda_norm(const struct k_cuda *c, const struct k_norm *a);
int k_cuda_norm_add(const struct k_cuda *c, const struct k_norm_add *a);
int k_cuda_matmul(const struct k_cuda *c, const struct k_matmul *a);
int k_cuda_angles(const struct k_cuda *c, const struct k_angles *a);
int k_cuda_store(const struct k_cuda *c, const struct k_store *a);
int k_cuda_attend(const struct k_cuda *c, const struct k_attend *a);
int k_cuda_gate(const struct k_cuda *c, const struct k_gate *a);
int k_cuda_adjust(const struct k_cuda *c, const struct k_adjust *a);
int k_cuda_sample(const struct k_cuda *c, const struct k_sample *a);
int k_cuda_gather(const struct k_cuda *c, const struct k_gather *a);

/* Copy whole KV blocks: block from[i] to block to[i].  No block is in both lists. */
struct k_kv_copy {
    void *base;
    uint64_t block_bytes;
    const uint32_t *from; /* [n] */
    const uint32_t *to;   /* [n] */
    uint32_t n;
};
int k_cuda_kv_copy(const struct k_cuda *c, const struct k_kv_copy *a);

#ifdef __cplusplus
}
#endif
