/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_decode.cu - attention of spans of one row: the cache streams through once.
 *
 * A block of four warps takes one KV head of one span and one split of its KV blocks; the query
 * heads that share the KV head are one tile of 16 rows (attention.cuh).  Warp w takes the split's
 * KV blocks w, w + 4, ...: its keys and its values have one buffer each, and cp.async fills one
 * while the other is used:
 *
 *     keys of b here -> scores -> start keys of b + 4 -> values of b here -> outputs -> start
 *     values of b + 4
 *
 * so a warp waits for itself only.  At the end the four states (greatest score, total, outputs)
 * meet in shared memory, where the buffers were.  With one split that is the result; with more, the
 * splits' states go to scratch and combine() puts them together, in order.
 *
 * Splits are as many as fill the device (from the counts: the kernel finds out how long each
 * sequence is), KV blocks are dealt out evenly, at least four to a split; an empty split says so.
 *
 * Bytes: 4 n_kv_heads head_dim a position (keys and values, float16); 8 + 4 head_dim a split and
 * head.  Flops: 4 x 16 / group times what group heads need, on tensor cores that idle otherwise.
 * A soft cap costs an exponential and a reciprocal a score, again on units that wait for memory.
 * Bound: memory bandwidth, when three blocks' buffers (head_dim 128: 3 x 70 KiB) are in flight.
 * Shared memory: the query tile, then 4 x 2 x 32 x (HD + 8) halves, HD = 64, 128, 256.
 *
 * occupancy: decode threads=128 shared=144128 blocks=1
 * occupancy: combine threads=128 shared=0 blocks=16
 */
#include "kernels/cuda/attention.cuh"

static constexpr uint32_t WARPS = 4;
static constexpr uint32_t THREADS = WARPS * WARP;
static constexpr uint32_t SPLIT_BLOCKS_MIN = 4;

template <uint32_t HD> struct decode_shape {
    static constexpr uint32_t WARP_BYTES = 2 * head_shape<HD>::BLOCK_BYTES;
    static constexpr uint32_t STATES_AT = head_shape<HD>::TILE_BYTES;
    /* best and total of each warp's 16 rows, behind the buffers */
    static constexpr uint32_t TOTALS_AT = STATES_AT + WARPS * WARP_BYTES;
    static constexpr uint32_t SHARED = TOTALS_AT + WARPS * TILE_ROWS * (uint32_t)sizeof(float2);
};

struct decode_args {
    struct k_attend a;
    uint32_t n_splits;
    float *outs;    /* [n_spans][n_heads][n_splits][head_dim] */
    float2 *totals; /* [n_spans][n_heads][n_splits]: best, total */
};

/* KV blocks of this split. */
struct part {
    uint32_t begin;
    uint32_t end;
    uint32_t first; /* positions that the row sees */
    uint32_t last;
};

static __device__ __forceinline__ struct part part_of(const struct k_attend &a, uint32_t position,
                                                      uint32_t split, uint32_t n_splits)
{
    struct part p;
    uint32_t first_block;
    uint32_t n;
    uint32_t each;

    p.first = first_seen(a, position);
    p.last = position;
    first_block = p.first / K_BLOCK;
    n = position / K_BLOCK - first_block + 1;
    each = max(divide_up(n, n_splits), SPLIT_BLOCKS_MIN);
    p.begin = first_block + min(split * each, n);
    p.end = first_block + min((split + 1) * each, n);
    return p;
}

/* This warp's KV blocks.  The barriers of the warp order its lanes' copies and reads as the memory
 * model asks for; that ldmatrix and mma wait for all lanes is no order of memory. */
template <uint32_t HD>
static __device__ __forceinline__ void
attend_part(const struct k_attend &a, const uint32_t *blocks, const struct part &p,
            uint32_t kv_head, const __half *queries, __half *buffer, struct attended<HD> *s)
{
    uint32_t lane = threadIdx.x % WARP;
    struct sight sight = {{p.first, p.first}, {p.last, p.last}};
    __half *keys = buffer;
    __half *values = buffer + head_shape<HD>::BLOCK_BYTES / sizeof(__half);
    uint32_t b = p.begin + threadIdx.x / WARP;

    if (b < p.end)
        copy_block<HD>(a, blocks, kv_head, b, a.kv.k_offset, p.first, p.last, keys, lane, WARP);
    ptx_cp_async_commit();
    if (b < p.end)
        copy_block<HD>(a, blocks, kv_head, b, a.kv.v_offset, p.first, p.last, values, lane, WARP);
    ptx_cp_async_commit();
    for (; b < p.end; b += WARPS) {
        uint32_t next = b + WARPS;
        float scores[4][4];

        ptx_cp_async_wait<1>();
        __syncwarp(all_lanes);
        score_block<HD>(queries, keys, a.kv.head_dim, scores);
        __syncwarp(all_lanes);
        if (next < p.end)
            copy_block<HD>(a, blocks, kv_head, next, a.kv.k_offset, p.first, p.last, keys, lane,
                           WARP);
        ptx_cp_async_commit();
        if (a.soft_cap != 0)
            cap_scores(a.soft_cap, scores);
        weigh<HD>(sight, b, scores, s);
        ptx_cp_async_wait<1>();
        __syncwarp(all_lanes);
        add_values<HD>(scores, values, a.kv.head_dim, s);
        __syncwarp(all_lanes);
        if (next < p.end)
            copy_block<HD>(a, blocks, kv_head, next, a.kv.v_offset, p.first, p.last, values, lane,
                           WARP);
        ptx_cp_async_commit();
    }
    attended_end<HD>(s);
}

/* The warp's state to where its buffers were: [16][HD] floats. */
template <uint32_t HD>
static __device__ __forceinline__ void put_state(const struct attended<HD> &s, float *outs,
                                                 float2 *totals)
{
    uint32_t g = threadIdx.x % WARP / 4;
    uint32_t t = threadIdx.x % 4;

#pragma unroll
    for (uint32_t row = 0; row < 2; row++) {
#pragma unroll
        for (uint32_t i = 0; i < HD / 8; i++)
            *(float2 *)(outs + (g + 8 * row) * HD + i * 8 + 2 * t) =
                    make_float2(s.out[i][2 * row], s.out[i][2 * row + 1]);
        if (t == 0)
            totals[g + 8 * row] = make_float2(s.best[row], s.total[row]);
    }
}

/* The weight of one of several states in their sum. */
static __device__ __forceinline__ float share(float2 state, float best)
{
    return state.x == -INFINITY ? 0 : exp2f(state.x - best);
}

/* The warps' states together, to the output or to scratch. */
template <uint32_t HD>
static __device__ void put_part(const struct decode_args &d, const struct k_span &span,
                                uint32_t kv_head, const unsigned char *shared)
{
    using shape = decode_shape<HD>;
    const float2 *totals = (const float2 *)(shared + shape::TOTALS_AT);
    uint32_t n = d.a.kv.head_dim;
    uint32_t group = d.a.n_heads / d.a.kv.n_kv_heads;

    for (uint32_t i = threadIdx.x; i < group * n; i += THREADS) {
        uint32_t row = i / n;
        uint32_t head = kv_head * group + row;
        float best = -INFINITY;
        float total = 0;
        float out = 0;

        for (uint32_t w = 0; w < WARPS; w++)
            best = fmaxf(best, totals[w * TILE_ROWS + row].x);
        for (uint32_t w = 0; w < WARPS; w++) {
            const float *outs = (const float *)(shared + shape::STATES_AT + w * shape::WARP_BYTES);
            float2 state = totals[w * TILE_ROWS + row];
            float weight = share(state, best);

            total += weight * state.y;
            out += weight * outs[row * HD + i % n];
        }
        if (d.n_splits == 1) {
            d.a.out[((size_t)span.first_row * d.a.n_heads + head) * n + i % n] = out / total;
        } else {
            size_t at = ((size_t)blockIdx.z * d.a.n_heads + head) * d.n_splits + blockIdx.x;

            d.outs[at * n + i % n] = out;
            if (i % n == 0)
                d.totals[at] = make_float2(best, total);
        }
    }
}

/* blockIdx: split, KV head, span */
template <uint32_t HD>
static __global__ __launch_bounds__(THREADS) void decode(struct decode_args d)
{
    using shape = decode_shape<HD>;
    struct k_span span = d.a.spans[blockIdx.z];
    unsigned char *shared = ptx_shared();
    __half *queries = (__half *)shared;
    unsigned char *buffer = shared + shape::STATES_AT + threadIdx.x / WARP * shape::WARP_BYTES;
    struct attended<HD> s;
    struct part p;

    if (span.n_rows != 1) /* none, or prefill's */
        return;
    p = part_of(d.a, span.position, blockIdx.x, d.n_splits);
    load_queries<HD>(d.a, span, blockIdx.y, 0, queries, threadIdx.x, THREADS);
    attended_init<HD>(&s);
    __syncthreads();
    attend_part<HD>(d.a, d.a.seqs[span.seq].blocks, p, blockIdx.y, queries, (__half *)buffer, &s);
    put_state<HD>(s, (float *)buffer,
                  (float2 *)(shared + shape::TOTALS_AT) + threadIdx.x / WARP * TILE_ROWS);
    __syncthreads();
    put_part<HD>(d, span, blockIdx.y, shared);
}

/* blockIdx: head, span */
static __global__ __launch_bounds__(THREADS) void combine(struct decode_args d)
{
    struct k_span span = d.a.spans[blockIdx.y];
    size_t at = ((size_t)blockIdx.y * d.a.n_heads + blockIdx.x) * d.n_splits;
    uint32_t n = d.a.kv.head_dim;
    float best = -INFINITY;

    if (span.n_rows != 1)
        return;
    for (uint32_t i = 0; i < d.n_splits; i++)
        best = fmaxf(best, d.totals[at + i].x);
    for (uint32_t dim = threadIdx.x; dim < n; dim += THREADS) {
        float total = 0;
        float out = 0;

        for (uint32_t i = 0; i < d.n_splits; i++) {
            float weight = share(d.totals[at + i], best);

            total += weight * d.totals[at + i].y;
            out += weight * d.outs[(at + i) * n + dim];
        }
        d.a.out[((size_t)span.first_row * d.a.n_heads + blockIdx.x) * n + dim] = out / total;
    }
}

/* About four blocks a multiprocessor, as far as scratch goes. */
static uint32_t splits_of(const struct k_cuda *c, const struct k_attend *a)
{
    uint32_t n = 4 * c->n_sms / (a->n_spans * a->kv.n_kv_heads);
    size_t bytes =
            (size_t)a->n_spans * a->n_heads * (a->kv.head_dim * sizeof(float) + sizeof(float2));

    n = n < (uint32_t)K_CUDA_SPLITS_MAX ? n : (uint32_t)K_CUDA_SPLITS_MAX;
    if (n > c->scratch_bytes / bytes)
        n = (uint32_t)(c->scratch_bytes / bytes);
    return n < 2 ? 1 : n;
}

template <uint32_t HD> static int launch_decode(const struct k_cuda *c, const struct decode_args &d)
{
    dim3 grid(d.n_splits, d.a.kv.n_kv_heads, d.a.n_spans);

    return launch(c, decode<HD>, grid, THREADS, decode_shape<HD>::SHARED, d);
}

int decode_launch(const struct k_cuda *c, const struct k_attend *a)
{
    struct decode_args d = {};
    int r;

    if (a->n_spans == 0)
        return 0;
    d.a = *a;
    d.n_splits = splits_of(c, a);
    d.totals = (float2 *)c->scratch;
    d.outs = (float *)(d.totals + (size_t)a->n_spans * a->n_heads * d.n_splits);
    if (a->kv.head_dim <= 64)
        r = launch_decode<64>(c, d);
    else if (a->kv.head_dim <= 128)
        r = launch_decode<128>(c, d);
    else
        r = launch_decode<256>(c, d);
    if (r == 0 && d.n_splits > 1)
        r = launch(c, combine, dim3(a->n_heads, a->n_spans), THREADS, 0, d);
    return r;
}

int decode_init(void)
{
    int r = allow_shared(decode<128>, decode_shape<128>::SHARED);

    return r ? r : allow_shared(decode<256>, decode_shape<256>::SHARED);
}

/* As many splits as splits_of() can want. */
size_t decode_scratch_bytes(const struct k_cuda_shape *s)
{
    size_t group = s->n_heads / s->n_kv_heads;
    size_t parts = (size_t)4 * s->n_sms + (size_t)s->rows_max * s->n_kv_heads;

    return parts * group * (s->head_dim * sizeof(float) + sizeof(float2));
}
