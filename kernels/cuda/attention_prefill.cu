/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_prefill.cu - attention of spans of several rows: flash attention (arXiv:2307.08691),
 * causal and windowed, over the paged cache.
 *
 * A span's rows x the heads that share a KV head are its query rows, 16 x group at most; a warp
 * takes a tile of 16 of them (attention.cuh), a block up to four warps that share one KV head's
 * keys and values: group 1 has one warp a block, 2 two, more have four.  KV blocks pass through
 * two buffers of shared memory by cp.async, the next one's copy running while this one is
 * computed; one barrier a KV block (a buffer is filled again only after the barrier that follows
 * its last use).  A warp leaves out KV blocks that none of its rows sees.
 *
 * Bytes: 4 head_dim a position, KV head and block of warps, mostly out of L2 (spans of a sequence
 * read the same cache).  Flops: 4 head_dim a pair of query row and position.  Bound: tensor cores
 * for groups of 4 and more; for 1 and 2, L2 bandwidth.  With 2048 rows attention is a twentieth of
 * an 8 B model's flops.  A soft cap makes one special function a score three: on an A100 3 / 16 of
 * a multiprocessor's cycle, beside 1 / 4 for the score's products (head_dim 128).
 * Shared memory: a query tile a warp and 2 x 2 x 32 x (HD + 8) halves, HD = 64, 128, 256.
 *
 * occupancy: prefill threads=128 shared=101376 blocks=1
 */
#include "kernels/cuda/attention.cuh"

static constexpr uint32_t WARPS_MAX = 4;

template <uint32_t HD> struct prefill_shape {
    static constexpr uint32_t STAGE_BYTES = 2 * head_shape<HD>::BLOCK_BYTES;
    static constexpr uint32_t TILES_AT = 2 * STAGE_BYTES;
    static constexpr uint32_t shared(uint32_t n_warps)
    {
        return TILES_AT + n_warps * head_shape<HD>::TILE_BYTES;
    }
};

/* Positions that query rows first .. first + n - 1 of the span see. */
static __device__ __forceinline__ struct sight
sight_of(const struct k_attend &a, const struct k_span &span, uint32_t first, uint32_t n)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    uint32_t end = min(first + n, span.n_rows * group);
    struct sight s = {{1, 1}, {0, 0}};

    if (first < end) {
        s.first[0] = first_seen(a, span.position + first / group);
        s.last[0] = span.position + (end - 1) / group;
    }
    return s;
}

template <uint32_t HD>
static __device__ __forceinline__ void copy_stage(const struct k_attend &a, const uint32_t *blocks,
                                                  uint32_t kv_head, uint32_t block,
                                                  const struct sight &all, unsigned char *stage)
{
    copy_block<HD>(a, blocks, kv_head, block, a.kv.k_offset, all.first[0], all.last[0],
                   (__half *)stage, threadIdx.x, blockDim.x);
    copy_block<HD>(a, blocks, kv_head, block, a.kv.v_offset, all.first[0], all.last[0],
                   (__half *)(stage + head_shape<HD>::BLOCK_BYTES), threadIdx.x, blockDim.x);
    ptx_cp_async_commit();
}

/* The tile's rows to the output. */
template <uint32_t HD>
static __device__ __forceinline__ void put_rows(const struct k_attend &a, const struct k_span &span,
                                                uint32_t kv_head, uint32_t first,
                                                const struct attended<HD> &s)
{
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    uint32_t g = threadIdx.x % WARP / 4;
    uint32_t t = threadIdx.x % 4;

#pragma unroll
    for (uint32_t row = 0; row < 2; row++) {
        uint32_t query = first + g + 8 * row;
        size_t at = span.first_row + query / group;
        float *out = a.out + (at * a.n_heads + kv_head * group + query % group) * a.kv.head_dim;

        if (query >= span.n_rows * group)
            continue;
#pragma unroll
        for (uint32_t i = 0; i < HD / 8; i++)
            if (i * 8 < a.kv.head_dim)
                *(float2 *)(out + i * 8 + 2 * t) = make_float2(
                        s.out[i][2 * row] / s.total[row], s.out[i][2 * row + 1] / s.total[row]);
    }
}

/* What the lane's two rows of the tile see. */
static __device__ __forceinline__ struct sight rows_sight(const struct k_attend &a,
                                                          const struct k_span &span, uint32_t first)
{
    uint32_t g = threadIdx.x % WARP / 4;
    struct sight s = sight_of(a, span, first + g, 1);
    struct sight other = sight_of(a, span, first + g + 8, 1);

    s.first[1] = other.first[0];
    s.last[1] = other.last[0];
    return s;
}

/* blockIdx: tiles of the span, KV head, span */
template <uint32_t HD>
static __global__ __launch_bounds__(WARPS_MAX *WARP) void prefill(struct k_attend a)
{
    using shape = prefill_shape<HD>;
    struct k_span span = a.spans[blockIdx.z];
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    uint32_t n_warps = blockDim.x / WARP;
    uint32_t block_first = blockIdx.x * n_warps * TILE_ROWS; /* query row */
    uint32_t first = block_first + threadIdx.x / WARP * TILE_ROWS;
    unsigned char *shared = ptx_shared();
    __half *queries = (__half *)(shared + shape::TILES_AT) +
                      threadIdx.x / WARP * (head_shape<HD>::TILE_BYTES / (uint32_t)sizeof(__half));
    const uint32_t *blocks;
    struct attended<HD> s;
    struct sight all;  /* what the block sees */
    struct sight tile; /* the warp */
    struct sight mine; /* the lane's two rows */
    uint32_t begin;

    if (span.n_rows < 2 || block_first >= span.n_rows * group) /* none, or decode's */
        return;
    blocks = a.seqs[span.seq].blocks;
    all = sight_of(a, span, block_first, n_warps * TILE_ROWS);
    tile = sight_of(a, span, first, TILE_ROWS);
    mine = rows_sight(a, span, first);
    begin = all.first[0] / K_BLOCK;
    copy_stage<HD>(a, blocks, blockIdx.y, begin, all, shared);
    load_queries<HD>(a, span, blockIdx.y, first, queries, threadIdx.x % WARP, WARP);
    attended_init<HD>(&s);
    for (uint32_t b = begin; b <= all.last[0] / K_BLOCK; b++) {
        unsigned char *stage = shared + (b - begin) % 2 * shape::STAGE_BYTES;
        unsigned char *other = shared + (b - begin + 1) % 2 * shape::STAGE_BYTES;

        ptx_cp_async_wait<0>();
        __syncthreads();
        if (b < all.last[0] / K_BLOCK)
            copy_stage<HD>(a, blocks, blockIdx.y, b + 1, all, other);
        if (tile.first[0] < (b + 1) * K_BLOCK && tile.last[0] >= b * K_BLOCK) {
            float scores[4][4];

            score_block<HD>(queries, (__half *)stage, a.kv.head_dim, scores);
            if (a.soft_cap != 0)
                cap_scores(a.soft_cap, scores);
            weigh<HD>(mine, b, scores, &s);
            add_values<HD>(scores, (__half *)(stage + head_shape<HD>::BLOCK_BYTES), a.kv.head_dim,
                           &s);
        }
    }
    attended_end<HD>(&s);
    put_rows<HD>(a, span, blockIdx.y, first, s);
}

template <uint32_t HD> static int launch_prefill(const struct k_cuda *c, const struct k_attend &a)
{
    uint32_t n_tiles = divide_up(K_SPAN_ROWS * (a.n_heads / a.kv.n_kv_heads), TILE_ROWS);
    uint32_t n_warps = n_tiles < WARPS_MAX ? n_tiles : WARPS_MAX;
    dim3 grid(divide_up(n_tiles, n_warps), a.kv.n_kv_heads, a.n_spans);

    return launch(c, prefill<HD>, grid, n_warps * WARP, prefill_shape<HD>::shared(n_warps), a);
}

int prefill_launch(const struct k_cuda *c, const struct k_attend *a)
{
    if (a->kv.head_dim <= 64)
        return launch_prefill<64>(c, *a);
    if (a->kv.head_dim <= 128)
        return launch_prefill<128>(c, *a);
    return launch_prefill<256>(c, *a);
}

int prefill_init(void)
{
    int r = allow_shared(prefill<128>, prefill_shape<128>::shared(WARPS_MAX));

    return r ? r : allow_shared(prefill<256>, prefill_shape<256>::shared(WARPS_MAX));
}
