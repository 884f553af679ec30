/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

/* What decode and prefill share: one warp, 16 query rows, one KV block of 32 positions at a time.
 *
 * A query row is a head of a row of activations; the heads that share a KV head are packed into
 * the same tile (row i of the tile is head i % group of row i / group), so a cache element that was
 * loaded serves all of them.  Scores and outputs are mma.sync m16n8k16 of float16 with float32
 * sums: scores = Q K^T with K [position][dim] as the column operand, outputs = P V with V
 * [position][dim] read transposed, P being the scores' own registers (a score tile's output
 * fragment is the next product's input fragment).
 *
 * HD is head_dim rounded up to 64, 128 or 256; pieces of 16 dims that a head does not have are
 * skipped, the rest of the last piece is zeros.  In shared memory a row takes HD + 8 halves, an
 * odd multiple of 16 bytes, so that ldmatrix has no bank conflicts. */

static constexpr uint32_t TILE_ROWS = 16;
static constexpr float LOG2_E = 1.4426950408889634F;

template <uint32_t HD> struct head_shape {
    static constexpr uint32_t STRIDE = HD + 8; /* halves */
    static constexpr uint32_t TILE_BYTES = TILE_ROWS * STRIDE * 2;
    static constexpr uint32_t BLOCK_BYTES = K_BLOCK * STRIDE * 2; /* keys or values of a block */
};

/* Online softmax (arXiv:1805.02867) of the rows g and g + 8 that a lane holds, in base 2. */
template <uint32_t HD> struct attended {
    float out[HD / 8][4]; /* mma output tiles of 8 dims */
    float best[2];
    float total[2]; /* of this lane's positions only, until it ends */
};

/* What the rows g and g + 8 of the tile see: first .. last; none when first > last. */
struct sight {
    uint32_t first[2];
    uint32_t last[2];
};

/* The first position that a row at 'position' sees. */
__device__ __forceinline__ uint32_t first_seen(const struct k_attend &a, uint32_t position)
{
    return a.window != 0 && position >= a.window ? position - a.window + 1 : 0;
}

template <uint32_t HD> __device__ __forceinline__ void attended_init(struct attended<HD> *s)
{
#pragma unroll
    for (uint32_t i = 0; i < HD / 8; i++)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            s->out[i][j] = 0;
    for (uint32_t i = 0; i < 2; i++) {
        s->best[i] = -INFINITY;
        s->total[i] = 0;
    }
}

/* Query rows of a span into a tile, times scale and log2(e), as halves; thread 'thread' of
 * n_threads.  first: the tile's first query row. */
template <uint32_t HD>
__device__ __forceinline__ void load_queries(const struct k_attend &a, const struct k_span &span,
                                             uint32_t kv_head, uint32_t first, __half *tile,
                                             uint32_t thread, uint32_t n_threads)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    float factor = a.scale * LOG2_E;

    for (uint32_t i = thread; i < TILE_ROWS * HD; i += n_threads) {
        uint32_t query = first + i / HD;
        uint32_t dim = i % HD;
        float x = 0;

        if (query < span.n_rows * group && dim < a.kv.head_dim) {
            size_t row = span.first_row + query / group;

            x = a.q[(row * a.n_heads + kv_head * group + query % group) * a.kv.head_dim + dim];
        }
        tile[i / HD * head_shape<HD>::STRIDE + dim] = __float2half_rn(x * factor);
    }
}

/* Start copying a head's keys or values (at: k_offset or v_offset) of one block.  Positions not
 * in first .. last, which nobody may have written, and dims that the head has not become zeros. */
template <uint32_t HD>
__device__ __forceinline__ void copy_block(const struct k_attend &a, const uint32_t *blocks,
                                           uint32_t kv_head, uint32_t block, uint64_t at,
                                           uint32_t first, uint32_t last, __half *to,
                                           uint32_t thread, uint32_t n_threads)
{
    constexpr uint32_t n_pieces = HD / 8;
    const unsigned char *memory =
            (const unsigned char *)a.kv.base + blocks[block] * a.kv.block_bytes + at;
    const __half *from = (const __half *)memory + (size_t)kv_head * K_BLOCK * a.kv.head_dim;

#pragma unroll 4
    for (uint32_t i = thread; i < K_BLOCK * n_pieces; i += n_threads) {
        uint32_t position = block * K_BLOCK + i / n_pieces;
        uint32_t dim = i % n_pieces * 8;
        bool valid = position >= first && position <= last && dim < a.kv.head_dim;

        ptx_cp_async16(to + i / n_pieces * head_shape<HD>::STRIDE + dim,
                       valid ? from + i / n_pieces * a.kv.head_dim + dim : from, valid);
    }
}

/* scores[j]: tile of the block's positions 8j .. 8j + 7.  Unrolled by four pieces only: with all of
 * 256 dims in flight the loads take the registers that outputs need. */
template <uint32_t HD>
__device__ __forceinline__ void score_block(const __half *queries, const __half *keys,
                                            uint32_t head_dim, float scores[4][4])
{
    constexpr uint32_t stride = head_shape<HD>::STRIDE;
    uint32_t lane = threadIdx.x % WARP;
    const __half *q = queries + lane % 16 * stride + lane / 16 * 8;
    const __half *k = keys + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;

#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            scores[j][i] = 0;
#pragma unroll 4
    for (uint32_t dim = 0; dim < HD; dim += 16) {
        uint32_t rows[4];

        if (dim >= head_dim)
            continue;
        ptx_ldmatrix_x4(rows, q + dim);
#pragma unroll
        for (uint32_t j = 0; j < 4; j += 2) {
            uint32_t two[4];

            ptx_ldmatrix_x4(two, k + j * 8 * stride + dim);
            ptx_mma_f16(scores[j], rows, two);
            ptx_mma_f16(scores[j + 1], rows, two + 2);
        }
    }
}

/* cap x tanh(score / cap), of scores that are in base 2.  1 - 2 / (1 + e^2x) loses 2^-23 of cap
 * near 0, far below what queries in float16 lose. */
__device__ __forceinline__ void cap_scores(float cap, float scores[4][4])
{
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            scores[j][i] = cap * LOG2_E -
                           __fdividef(cap * (2 * LOG2_E), 1 + exp2f(scores[j][i] * (2 / cap)));
}

/* Scores into weights, the state scaled to the new greatest score.  block: its number. */
template <uint32_t HD>
__device__ __forceinline__ void weigh(const struct sight &sight, uint32_t block, float scores[4][4],
                                      struct attended<HD> *s)
{
    uint32_t at = block * K_BLOCK + threadIdx.x % 4 * 2; /* position of scores[0][0] */

#pragma unroll
    for (uint32_t row = 0; row < 2; row++) {
        float best = s->best[row];
        float shrink;

#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t position = at + j * 8 + i;
                float *score = &scores[j][2 * row + i];

                if (position < sight.first[row] || position > sight.last[row])
                    *score = -INFINITY;
                best = fmaxf(best, *score);
            }
        best = fmaxf(best, __shfl_xor_sync(all_lanes, best, 1));
        best = fmaxf(best, __shfl_xor_sync(all_lanes, best, 2));
        /* a row that has seen nothing yet: any number will do, but infinity */
        shrink = exp2f(s->best[row] - (best == -INFINITY ? 0 : best));
        s->best[row] = best;
        best = best == -INFINITY ? 0 : best;
        s->total[row] *= shrink;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float weight = exp2f(scores[j][2 * row + i] - best);

                scores[j][2 * row + i] = weight;
                s->total[row] += weight;
            }
#pragma unroll
        for (uint32_t i = 0; i < HD / 8; i++) {
            s->out[i][2 * row] *= shrink;
            s->out[i][2 * row + 1] *= shrink;
        }
    }
}

__device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    return __half_as_ushort(__float2half_rn(low)) |
           (uint32_t)__half_as_ushort(__float2half_rn(high)) << 16;
}

/* out += weights x values */
template <uint32_t HD>
__device__ __forceinline__ void add_values(const float weights[4][4], const __half *values,
                                           uint32_t head_dim, struct attended<HD> *s)
{
    constexpr uint32_t stride = head_shape<HD>::STRIDE;
    uint32_t lane = threadIdx.x % WARP;
    const __half *v = values + (lane % 8 + lane / 8 % 2 * 8) * stride + lane / 16 * 8;

#pragma unroll
    for (uint32_t part = 0; part < 2; part++) { /* 16 positions each */
        const float *low = weights[2 * part];
        const float *high = weights[2 * part + 1];
        uint32_t rows[4] = {two_halves(low[0], low[1]), two_halves(low[2], low[3]),
                            two_halves(high[0], high[1]), two_halves(high[2], high[3])};

#pragma unroll
        for (uint32_t dim = 0; dim < HD; dim += 16) {
            uint32_t two[4];

            if (dim >= head_dim)
                continue;
            ptx_ldmatrix_x4_trans(two, v + part * 16 * stride + dim);
            ptx_mma_f16(s->out[dim / 8], rows, two);
            ptx_mma_f16(s->out[dim / 8 + 1], rows, two + 2);
        }
    }
}

/* The totals over all positions, in every lane of the row. */
template <uint32_t HD> __device__ __forceinline__ void attended_end(struct attended<HD> *s)
{
    for (uint32_t row = 0; row < 2; row++) {
        s->total[row] += __shfl_xor_sync(all_lanes, s->total[row], 1);
        s->total[row] += __shfl_xor_sync(all_lanes, s->total[row], 2);
    }
}

/* Spans of one row, and spans of more: the halves of k_cuda_attend(). */
int decode_launch(const struct k_cuda *c, const struct k_attend *a);
int prefill_launch(const struct k_cuda *c, const struct k_attend *a);
int decode_init(void);
int prefill_init(void);
size_t decode_scratch_bytes(const struct k_cuda_shape *s);
