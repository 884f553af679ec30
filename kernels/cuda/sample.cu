/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.cu - one row of logits to one token, without putting the row in order.
 *
 * One block of 1024 threads a row; every pass streams the row in 16-byte loads, four of them in
 * flight a thread.  A token's place in the order (greater logit first, then lower id) is one
 * unsigned number, its rank; a filter is the last rank it keeps.
 *
 *   best     the least rank; +INFINITY or no number makes it 0.  Greedy rows are done.
 *   top_k,   find_cut(): tokens are counted (top_k), or their weights summed (top_p), in 2048
 *   top_p    buckets of neighbouring logits; the tokens of the bucket in which the sum passes the
 *            goal, few as a rule, go to the row's scratch list; among them the rank is found 11
 *            bits at a time by the same counting.
 *   draw     the sums of the 32 warps' ranges of ids tell in which one u x total is passed, then
 *            the sums of its threads' pieces, then the piece is walked.
 *
 * Weights are integers, exp((logit - best) / temperature) x 2^44: their sums are exact, so nothing
 * depends on the order of additions, and equals the reference's float64 sums to 2^-44 a token.
 * n_vocab below 2^20 keeps sums below 2^64.
 *
 * Additions to shared buckets are gathered in a register while the bucket stays the same: most of
 * a vocabulary lies in the last one, and 64-bit additions to one address would queue up.
 *
 * Bytes: the row 1 time (greedy), 2 (no filter), 4 (top_p), 6 (both), out of L2 but for the first.
 * Flops: 10 a value a pass.  Bound: latency of one multiprocessor's loads, about 5 us a MB a pass.
 * Shared memory: 2048 x 8 bytes of buckets, 32 x 8 of partial sums.
 *
 * occupancy: sample threads=1024 shared=16664 blocks=1
 */
#include <math.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

typedef unsigned long long sum_t; /* what atomicAdd() has */

static constexpr uint32_t THREADS = 1024;
static constexpr uint32_t WARPS = THREADS / WARP;
static constexpr uint32_t BUCKET_BITS = 11;
static constexpr uint32_t BUCKETS = 1U << BUCKET_BITS;
static constexpr uint32_t ID_BITS = 20;
static constexpr uint32_t RANK_BITS = 32 + ID_BITS;
static constexpr uint32_t LEVELS = divide_up(RANK_BITS, BUCKET_BITS);
static constexpr uint32_t LOADS = 4;
static constexpr float COLDEST = 1e-6F;   /* temperatures below count as 0 */
static constexpr float BUCKET_RANGE = 20; /* logits further from the best share the last bucket */
static constexpr float WEIGHT_ONE = 0x1p44F;
/* Beyond the rank of any finite logit (ids stay below 2^ID_BITS - 1), before those of -INFINITY. */
static constexpr sum_t KEEP_FINITE = (0xff800000ULL << ID_BITS) - 1;

struct choice {
    sum_t before; /* the sum over the buckets before */
    uint32_t bucket;
    int32_t token;
    uint32_t n_listed;
};

struct shared_memory {
    sum_t buckets[BUCKETS];
    sum_t parts[WARPS];
    struct choice choice;
};

struct row {
    const float *logits;
    struct k_candidate *list; /* [n] */
    struct shared_memory *shared;
    uint32_t n;
    float best;
    float inverse; /* 1 / temperature */
    float min_p;
    sum_t cut; /* the last rank that is kept */
};

/* Less is earlier.  Adding 0 makes one zero of two. */
static __device__ __forceinline__ sum_t rank_of(float logit, uint32_t id)
{
    uint32_t bits = __float_as_uint(logit + 0.0F);
    uint32_t up = bits & 0x80000000U ? ~bits : bits | 0x80000000U; /* in the order of floats */

    return (sum_t)~up << ID_BITS | id;
}

/* fn(id, logit) for first <= id < end, dealt out to n_workers threads. */
template <class Fn>
static __device__ __forceinline__ void each(const float *logits, uint32_t first, uint32_t end,
                                            uint32_t worker, uint32_t n_workers, const Fn &fn)
{
    const float *x = logits + first;
    uint32_t n = end - first;
    uint32_t n_vectors = (uintptr_t)x % sizeof(float4) == 0 ? n / 4 : 0;

    for (uint32_t i = worker; i < n_vectors; i += LOADS * n_workers) {
        float4 v[LOADS];

#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++)
            if (i + j * n_workers < n_vectors)
                v[j] = ((const float4 *)x)[i + j * n_workers];
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            uint32_t id = first + (i + j * n_workers) * 4;

            if (i + j * n_workers >= n_vectors)
                continue;
            fn(id, v[j].x);
            fn(id + 1, v[j].y);
            fn(id + 2, v[j].z);
            fn(id + 3, v[j].w);
        }
    }
    for (uint32_t i = n_vectors * 4 + worker; i < n; i += n_workers)
        fn(first + i, x[i]);
}

static __device__ __forceinline__ sum_t least_of_block(sum_t x, sum_t *parts)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x = min(x, __shfl_xor_sync(all_lanes, x, distance));
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    x = parts[threadIdx.x % WARP];
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x = min(x, __shfl_xor_sync(all_lanes, x, distance));
    __syncthreads(); /* parts can be used again */
    return x;
}

static __device__ __forceinline__ sum_t scan_warp(sum_t x)
{
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        sum_t below = __shfl_up_sync(all_lanes, x, distance);

        if (threadIdx.x % WARP >= distance)
            x += below;
    }
    return x;
}

/* The sum over this thread and those before; *total: over all.  parts can be used again after the
 * caller's next barrier. */
static __device__ __forceinline__ sum_t scan_block(sum_t x, sum_t *parts, sum_t *total)
{
    uint32_t warp = threadIdx.x / WARP;
    sum_t sums;
    sum_t before;

    x = scan_warp(x);
    if (threadIdx.x % WARP == WARP - 1)
        parts[warp] = x;
    __syncthreads();
    sums = scan_warp(parts[threadIdx.x % WARP]);
    before = __shfl_sync(all_lanes, sums, (int)(warp == 0 ? 0 : warp - 1));
    *total = __shfl_sync(all_lanes, sums, WARP - 1);
    return x + (warp == 0 ? 0 : before);
}

static __device__ __forceinline__ float weight_of(const struct row &r, float logit)
{
    return expf((logit - r.best) * r.inverse);
}

static __device__ __forceinline__ sum_t fixed(float weight)
{
    return (sum_t)(weight * WEIGHT_ONE);
}

/* What find_cut() adds up, until it reaches a goal. */
struct measure {
    bool counts;  /* tokens; else weights */
    sum_t goal;   /* 0: not known yet */
    double share; /* goal as a share of all */
};

static __device__ __forceinline__ sum_t measured(const struct row &r, const struct measure &m,
                                                 float logit)
{
    return m.counts ? 1 : fixed(weight_of(r, logit));
}

/* The bucket of a logit: monotone, for any temperature. */
static __device__ __forceinline__ uint32_t bucket_of(const struct row &r, const struct measure &m,
                                                     float logit)
{
    float below = (r.best - logit) * (m.counts ? 1 : r.inverse);
    float at = below * ((BUCKETS - 1) / BUCKET_RANGE);

    return at < (float)(BUCKETS - 1) ? (uint32_t)at : BUCKETS - 1;
}

/* Additions to buckets, gathered while they go to the same one. */
struct gathered {
    sum_t *buckets;
    sum_t sum;
    uint32_t bucket;
};

static __device__ __forceinline__ void gathered_flush(struct gathered *g)
{
    if (g->sum != 0)
        atomicAdd(&g->buckets[g->bucket], g->sum);
    g->sum = 0;
}

static __device__ __forceinline__ void gathered_add(struct gathered *g, uint32_t bucket, sum_t x)
{
    if (bucket != g->bucket)
        gathered_flush(g);
    g->bucket = bucket;
    g->sum += x;
}

static __device__ __forceinline__ void clear_buckets(struct shared_memory *s)
{
    for (uint32_t i = threadIdx.x; i < BUCKETS; i += THREADS)
        s->buckets[i] = 0;
    __syncthreads();
}

/* The bucket in which the sum reaches the goal; what is before it is taken off the goal.  All
 * additions are behind a barrier. */
static __device__ uint32_t choose_bucket(struct shared_memory *s, struct measure *m)
{
    uint32_t i = threadIdx.x * (BUCKETS / THREADS);
    sum_t low = s->buckets[i];
    sum_t high = s->buckets[i + 1];
    sum_t total;
    sum_t end = scan_block(low + high, s->parts, &total);
    sum_t begin = end - low - high;

    if (m->goal == 0)
        m->goal = max((sum_t)ceil(m->share * (double)total), 1ULL);
    m->goal = min(m->goal, total);
    if (begin < m->goal && m->goal <= end) { /* one thread */
        bool in_low = m->goal <= begin + low;

        s->choice.bucket = in_low ? i : i + 1;
        s->choice.before = in_low ? begin : begin + low;
    }
    __syncthreads();
    m->goal -= s->choice.before;
    return s->choice.bucket;
}

/* The kept tokens of a bucket into the list. */
static __device__ __forceinline__ uint32_t list_bucket(const struct row &r, const struct measure &m,
                                                       uint32_t bucket)
{
    struct choice *choice = &r.shared->choice;

    if (threadIdx.x == 0)
        choice->n_listed = 0;
    __syncthreads();
    each(r.logits, 0, r.n, threadIdx.x, THREADS, [&](uint32_t id, float logit) {
        if (rank_of(logit, id) <= r.cut && bucket_of(r, m, logit) == bucket) {
            struct k_candidate *c = &r.list[atomicAdd(&choice->n_listed, 1U)];

            c->logit = logit;
            c->id = id;
        }
    });
    __syncthreads();
    return choice->n_listed;
}

/* The rank of the token, in the order of those kept, with which the sum reaches the goal. */
static __device__ sum_t find_cut(const struct row &r, struct measure m)
{
    struct gathered g = {r.shared->buckets, 0, 0};
    sum_t rank = 0; /* its upper bits, as far as they are known */
    uint32_t bucket;
    uint32_t n;

    clear_buckets(r.shared);
    each(r.logits, 0, r.n, threadIdx.x, THREADS, [&](uint32_t id, float logit) {
        if (rank_of(logit, id) <= r.cut)
            gathered_add(&g, bucket_of(r, m, logit), measured(r, m, logit));
    });
    gathered_flush(&g);
    __syncthreads();
    bucket = choose_bucket(r.shared, &m);
    n = list_bucket(r, m, bucket);
    for (uint32_t level = LEVELS; level-- > 0;) {
        uint32_t shift = level * BUCKET_BITS;

        clear_buckets(r.shared);
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            sum_t other = rank_of(r.list[i].logit, r.list[i].id);

            if (other >> (shift + BUCKET_BITS) == rank)
                gathered_add(&g, (uint32_t)(other >> shift) % BUCKETS,
                             measured(r, m, r.list[i].logit));
        }
        gathered_flush(&g);
        __syncthreads();
        rank = rank << BUCKET_BITS | choose_bucket(r.shared, &m);
    }
    return rank;
}

/* The weight of a token, 0 when a filter drops it. */
static __device__ __forceinline__ sum_t kept_weight(const struct row &r, uint32_t id, float logit)
{
    float w = weight_of(r, logit);

    return rank_of(logit, id) <= r.cut && w >= r.min_p ? fixed(w) : 0;
}

/* Philox4x32-10's first two words as a number in [0, 1): k_uniform() of kernels.h. */
static __device__ double uniform(const struct k_sampling &s)
{
    uint32_t c[4] = {s.position, s.choice, 0, 0};
    uint32_t key[2] = {(uint32_t)s.seed, (uint32_t)(s.seed >> 32)};

    for (int i = 0; i < 10; i++) {
        uint32_t high_0 = __umulhi(0xD2511F53U, c[0]);
        uint32_t high_2 = __umulhi(0xCD9E8D57U, c[2]);
        uint32_t low_0 = 0xD2511F53U * c[0];
        uint32_t low_2 = 0xCD9E8D57U * c[2];

        c[0] = high_2 ^ c[1] ^ key[0];
        c[1] = low_2;
        c[2] = high_0 ^ c[3] ^ key[1];
        c[3] = low_0;
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    return (double)(((sum_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

/* The first token of first .. end - 1 with which the running sum exceeds 'goal'. */
static __device__ int32_t walk(const struct row &r, uint32_t first, uint32_t end, sum_t goal)
{
    sum_t sum = 0;

    for (uint32_t id = first; id < end; id++) {
        sum += kept_weight(r, id, r.logits[id]);
        if (sum > goal)
            return (int32_t)id;
    }
    return -1;
}

/* Walk the kept tokens upward by id until the sum of weights exceeds u x all. */
static __device__ int32_t draw(const struct row &r, double u)
{
    struct choice *choice = &r.shared->choice;
    uint32_t lane = threadIdx.x % WARP;
    uint32_t warp = threadIdx.x / WARP;
    uint32_t a_warp = divide_up(r.n, WARPS * 4) * 4; /* ids; whole vectors */
    uint32_t piece = divide_up(a_warp, THREADS);
    uint32_t first = min(warp * a_warp, r.n);
    sum_t sum = 0;
    sum_t total;
    sum_t goal;
    sum_t end;

    each(r.logits, first, min(first + a_warp, r.n), lane, WARP,
         [&](uint32_t id, float logit) { sum += kept_weight(r, id, logit); });
    end = scan_block(sum, r.shared->parts, &total);
    goal = min((sum_t)(u * (double)total), total - 1);
    /* which warp's range: between what its first lane starts from and its last lane ends with */
    sum = __shfl_sync(all_lanes, end - sum, 0);
    end = __shfl_sync(all_lanes, end, WARP - 1);
    if (lane == 0 && sum <= goal && goal < end) {
        choice->bucket = warp;
        choice->before = sum;
    }
    __syncthreads();
    goal -= choice->before;
    first = choice->bucket * a_warp;
    end = min(first + a_warp, r.n); /* of the range */
    first = min(first + threadIdx.x * piece, (uint32_t)end);
    end = min(first + piece, (uint32_t)end); /* of the piece */
    sum = 0;
    for (uint32_t id = first; id < end; id++)
        sum += kept_weight(r, id, r.logits[id]);
    total = scan_block(sum, r.shared->parts, &total);
    if (total - sum <= goal && goal < total)
        choice->token = walk(r, first, (uint32_t)end, goal - (total - sum));
    __syncthreads();
    return choice->token;
}

static __device__ int32_t sample_row(struct row r, const struct k_sampling &s)
{
    sum_t best = KEEP_FINITE;
    uint32_t id;

    each(r.logits, 0, r.n, threadIdx.x, THREADS, [&](uint32_t i, float logit) {
        best = min(best, logit < INFINITY ? rank_of(logit, i) : 0);
    });
    best = least_of_block(best, r.shared->parts);
    id = (uint32_t)best & ((1U << ID_BITS) - 1);
    if (best == 0 || best == KEEP_FINITE)
        return -1;
    if (s.temperature < COLDEST)
        return (int32_t)id;
    r.best = r.logits[id];
    r.inverse = 1 / s.temperature;
    r.min_p = s.min_p;
    r.cut = KEEP_FINITE;
    if (s.top_k != 0 && s.top_k < r.n)
        r.cut = find_cut(r, {true, s.top_k, 0});
    if (s.top_p < 1)
        r.cut = find_cut(r, {false, 0, (double)s.top_p});
    return draw(r, uniform(s));
}

static __global__ __launch_bounds__(THREADS) void sample(struct k_sample a)
{
    struct row r = {};
    int32_t token;

    if (a.slots && a.slots[blockIdx.x] == UINT32_MAX)
        return;
    r.logits = a.logits + (size_t)blockIdx.x * a.n_vocab;
    r.list = a.scratch + (size_t)blockIdx.x * a.n_vocab;
    r.shared = (struct shared_memory *)ptx_shared();
    r.n = a.n_vocab;
    token = sample_row(r, a.params[blockIdx.x]);
    if (threadIdx.x != 0)
        return;
    a.out[blockIdx.x] = token;
    if (a.last)
        a.last[a.slots[blockIdx.x]] = token;
}

extern "C" int k_cuda_sample(const struct k_cuda *c, const struct k_sample *a)
{
    if (a->n_vocab >= 1U << ID_BITS)
        return (int)cudaErrorInvalidValue;
    return launch(c, sample, dim3(a->n_rows), THREADS, sizeof(struct shared_memory), *a);
}
