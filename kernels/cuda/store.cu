/* SPDX-License-Identifier: Apache-2.0
 *
 * store.cu - between the projections and attention: norm of each head, rotation, and the write of
 * keys and values into the paged cache.
 *
 * One warp a head of a row (queries, then keys, then values), four warps a block.  Lane l takes
 * the rotated pairs l, l + 32, ... and then the values that are not rotated; the sum of squares
 * goes over the same values, so that no lane ever reads what another one writes, and queries can
 * be turned in place.
 *
 * Bytes a row: 4 (2 n_heads + 2 n_kv_heads) head_dim of activations and 4 n_kv_heads head_dim of
 * cache.  Flops: under 10 a value.  Bound: launch latency when decoding, memory bandwidth when
 * prefilling.
 *
 * occupancy: store threads=128 shared=0 blocks=12
 */
#include <math.h>

#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"

enum { WARPS = 4 };

/* One head: where it is, how it changes, where it goes. */
struct head {
    const float *from;
    float *to_f32;
    __half *to_half; /* one of the two */
    const float *weight;
    const float *angles; /* NULL: not rotated */
};

static __device__ __forceinline__ void put(const struct head *h, uint32_t i, float x)
{
    if (h->to_f32)
        h->to_f32[i] = x;
    else
        h->to_half[i] = __float2half_rn(x);
}

static __device__ __forceinline__ uint32_t first_of_pair(enum k_rope rope, uint32_t pair)
{
    return rope == K_ROPE_PAIRS ? 2 * pair : pair;
}

static __device__ void process(const struct k_store *a, const struct head *h)
{
    uint32_t lane = threadIdx.x % WARP;
    uint32_t n_pairs = h->angles ? a->n_freqs : 0;
    uint32_t apart = a->rope == K_ROPE_PAIRS ? 1 : a->n_freqs;
    uint32_t n = a->kv.head_dim;
    float factor = 1;

    if (h->weight) {
        float sum = 0;

        for (uint32_t p = lane; p < n_pairs; p += WARP) {
            uint32_t i = first_of_pair(a->rope, p);

            sum += h->from[i] * h->from[i] + h->from[i + apart] * h->from[i + apart];
        }
        for (uint32_t i = 2 * n_pairs + lane; i < n; i += WARP)
            sum += h->from[i] * h->from[i];
        factor = 1 / sqrtf(warp_sum(sum) / (float)n + a->eps);
    }
    for (uint32_t p = lane; p < n_pairs; p += WARP) {
        uint32_t i = first_of_pair(a->rope, p);
        float x = h->from[i];
        float y = h->from[i + apart];
        float c = h->angles[p];
        float s = h->angles[a->n_freqs + p];

        if (h->weight) {
            x = x * factor * h->weight[i];
            y = y * factor * h->weight[i + apart];
        }
        put(h, i, x * c - y * s);
        put(h, i + apart, y * c + x * s);
    }
    for (uint32_t i = 2 * n_pairs + lane; i < n; i += WARP)
        put(h, i, h->weight ? h->from[i] * factor * h->weight[i] : h->from[i]);
}

/* blockIdx.y: the row */
static __global__ __launch_bounds__(WARPS *WARP) void store(struct k_store a)
{
    uint32_t item = blockIdx.x * WARPS + threadIdx.x / WARP;
    uint32_t row = blockIdx.y;
    uint32_t n = a.kv.head_dim;
    struct head h = {};

    if (a.seq_of[row] == UINT32_MAX || item >= a.n_heads + 2 * a.kv.n_kv_heads)
        return;
    h.angles = a.angles + (size_t)row * 2 * a.n_freqs;
    if (item < a.n_heads) {
        float *q = a.q + ((size_t)row * a.n_heads + item) * n;

        h.from = q;
        h.to_f32 = q;
        h.weight = a.q_weight;
    } else {
        bool value = item >= a.n_heads + a.kv.n_kv_heads;
        uint32_t kv_head = (item - a.n_heads) % a.kv.n_kv_heads;
        uint32_t position = a.positions[row];
        uint64_t id = a.seqs[a.seq_of[row]].blocks[position / K_BLOCK];
        unsigned char *block = (unsigned char *)a.kv.base + id * a.kv.block_bytes;
        size_t at = ((size_t)kv_head * K_BLOCK + position % K_BLOCK) * n;

        h.from = (value ? a.v : a.k) + ((size_t)row * a.kv.n_kv_heads + kv_head) * n;
        h.to_half = (__half *)(block + (value ? a.kv.v_offset : a.kv.k_offset)) + at;
        if (value)
            h.angles = nullptr;
        else
            h.weight = a.k_weight;
    }
    process(&a, &h);
}

extern "C" int k_cuda_store(const struct k_cuda *c, const struct k_store *a)
{
    uint32_t items = a->n_heads + 2 * a->kv.n_kv_heads;

    return launch(c, store, dim3(divide_up(items, WARPS), a->n_rows), WARPS * WARP, 0, *a);
}
