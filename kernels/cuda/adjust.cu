/* SPDX-License-Identifier: Apache-2.0
 *
 * adjust.cu - penalties, biases and masks on rows of logits.
 *
 * A block of 256 threads has 8192 neighbouring tokens of a row to itself and takes from the row's
 * lists the entries that fall among them: every block of a row reads the lists, nobody else writes
 * its logits, and a barrier between the steps is all that orders them.  Ids within a list differ,
 * so a list's entries are one a thread.  The mask goes by tokens: the lanes of a warp share a word
 * of it and write neighbours.
 *
 * Bytes a row: 36 a block; 12 n_seen + 8 n_biases a block, out of L2 but for the first; 8 a logit
 * that the lists name; n_vocab / 8 of mask and 4 a token that it forbids.  Flops: none to speak of.
 * Bound: launch latency, but for masks that forbid most of a large vocabulary over many rows, which
 * write it once: memory bandwidth.
 *
 * occupancy: adjust threads=256 shared=0 blocks=8
 */
#include <math.h>

#include "kernels/cuda/launch.cuh"

static constexpr uint32_t THREADS = 256;
static constexpr uint32_t TOKENS = 8192; /* a block's; whole words of a mask */

/* A block's tokens. */
struct range {
    float *logits;
    uint32_t first; /* id */
    uint32_t n;
};

static __device__ __forceinline__ float penalised(const struct k_adjustment &row,
                                                  const struct k_seen &seen, float logit)
{
    if (seen.n_prompt > 0 || seen.n_output > 0)
        logit = logit > 0 ? logit / row.repetition : logit * row.repetition;
    if (seen.n_output > 0)
        logit -= row.presence + row.frequency * (float)seen.n_output;
    return logit;
}

static __device__ __forceinline__ void penalise(const struct k_adjustment &row,
                                                const struct k_seen *list, const struct range &t)
{
    for (uint32_t i = threadIdx.x; i < row.n_seen; i += THREADS) {
        struct k_seen seen = list[row.first_seen + i];
        uint32_t at = seen.id - t.first; /* below 'first' it wraps around */

        if (at < t.n)
            t.logits[at] = penalised(row, seen, t.logits[at]);
    }
}

static __device__ __forceinline__ void add_biases(const struct k_adjustment &row,
                                                  const struct k_bias *list, const struct range &t)
{
    for (uint32_t i = threadIdx.x; i < row.n_biases; i += THREADS) {
        struct k_bias bias = list[row.first_bias + i];
        uint32_t at = bias.id - t.first;

        if (at < t.n)
            t.logits[at] += bias.value;
    }
}

static __device__ __forceinline__ void forbid(const uint32_t *mask, const struct range &t)
{
    for (uint32_t i = threadIdx.x; i < t.n; i += THREADS)
        if ((mask[(t.first + i) / 32] >> (i % 32) & 1) == 0)
            t.logits[i] = -INFINITY;
}

/* blockIdx: range of tokens, row */
static __global__ __launch_bounds__(THREADS) void adjust(struct k_adjust a)
{
    struct k_adjustment row = a.rows[blockIdx.y];
    struct range t;

    if (row.n_seen == 0 && row.n_biases == 0 && !row.masked)
        return;
    t.first = blockIdx.x * TOKENS;
    t.n = min(a.n_vocab - t.first, TOKENS);
    t.logits = a.logits + (size_t)blockIdx.y * a.n_vocab + t.first;
    penalise(row, a.seen, t);
    __syncthreads();
    add_biases(row, a.biases, t);
    __syncthreads();
    if (row.masked)
        forbid(a.masks + (size_t)row.mask * divide_up(a.n_vocab, 32), t);
}

extern "C" int k_cuda_adjust(const struct k_cuda *c, const struct k_adjust *a)
{
    return launch(c, adjust, dim3(divide_up(a->n_vocab, TOKENS), a->n_rows), THREADS, 0, *a);
}
