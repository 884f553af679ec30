/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c - attention over the paged float16 KV cache.
 *
 * One item is a span of rows and one KV head with the query heads that share it.  The KV blocks
 * that any row of the span sees are walked in order; a block's keys and values are widened to
 * float32 once, on the stack, and used by all rows and heads of the item.
 *
 * Per query and block: 32 scores (keys are stored transposed, so a lane is a position and a score
 * is a plain chain of fma over the head's dimensions), capped where the model asks for it, the
 * running maximum, 32 weights, then the values scaled in (lanes are dimensions, one fma a
 * position).  Blocks lie at absolute positions and the chain is the same for every row, so a row's
 * bits do not depend on its span.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes_math.h"

enum {
    VECTORS = K_BLOCK / LANES, /* of scores */
    HEADS_MAX = 8,             /* query heads at a time */
    QUERIES_MAX = K_SPAN_ROWS * HEADS_MAX,
    WIDTH = 64, /* output dimensions held in registers */
};

/* A block's keys [head_dim][K_BLOCK] and values [K_BLOCK][head_dim] of one head. */
struct tile {
    float k[K_HEAD_DIM_MAX * K_BLOCK];
    float v[K_HEAD_DIM_MAX * K_BLOCK];
};

/* One row's one head. */
struct query {
    const float *q;
    float *out;    /* the weighted sum so far */
    uint32_t from; /* positions it sees */
    uint32_t to;
    float best;  /* greatest score so far */
    float total; /* sum of weights so far, relative to best */
};

static void widen(const uint8_t *from, float *to, uint32_t n)
{
    const uint16_t *half = (const uint16_t *)(const void *)from;

    for (uint32_t i = 0; i < n; i += LANES)
        lanes_store(to + i, lanes_from_half(half + i));
}

static void load_tile(const struct k_kv *kv, uint32_t block, uint32_t head, struct tile *t)
{
    uint32_t n = kv->head_dim * K_BLOCK;
    const uint8_t *at = (const uint8_t *)kv->base + block * kv->block_bytes;

    widen(at + kv->k_offset + (size_t)head * n * sizeof(uint16_t), t->k, n);
    widen(at + kv->v_offset + (size_t)head * n * sizeof(uint16_t), t->v, n);
}

/* Scores of n_queries (1 or 2, a constant at each call: two keep the multipliers busy). */
static inline __attribute__((always_inline)) void score(const float *k, const float *const *q,
                                                        uint32_t n_queries, uint32_t n, float scale,
                                                        float (*s)[K_BLOCK])
{
    lanes sum[2][VECTORS];

    for (uint32_t u = 0; u < n_queries; u++)
        for (int j = 0; j < VECTORS; j++)
            sum[u][j] = lanes_all(0);
    for (uint32_t i = 0; i < n; i++)
        for (int j = 0; j < VECTORS; j++) {
            lanes key = lanes_load(k + (size_t)i * K_BLOCK + (size_t)j * LANES);

            for (uint32_t u = 0; u < n_queries; u++)
                sum[u][j] = lanes_fma(key, lanes_all(q[u][i]), sum[u][j]);
        }
    for (uint32_t u = 0; u < n_queries; u++)
        for (int j = 0; j < VECTORS; j++)
            lanes_store(s[u] + (size_t)j * LANES, lanes_mul(sum[u][j], lanes_all(scale)));
}

static void cap_scores(float *s, float cap)
{
    for (int j = 0; j < VECTORS; j++) {
        lanes x = lanes_load(s + (size_t)j * LANES);

        x = lanes_tanh(lanes_div(x, lanes_all(cap)));
        lanes_store(s + (size_t)j * LANES, lanes_mul(x, lanes_all(cap)));
    }
}

/* Scores to weights relative to the new maximum; lanes outside lo .. hi become 0.  Returns what
 * the sum so far must be scaled by. */
static float weigh(struct query *u, float *s, uint32_t lo, uint32_t hi)
{
    lanes sum[VECTORS];
    lanes best;
    float old = u->best;
    float scale;

    for (uint32_t i = 0; i < K_BLOCK; i++)
        s[i] = i < lo || i > hi ? -INFINITY : s[i];
    best = lanes_load(s);
    for (int j = 1; j < VECTORS; j++)
        best = lanes_max(best, lanes_load(s + (size_t)j * LANES));
    u->best = fmaxf(old, lanes_greatest(best));
    for (int j = 0; j < VECTORS; j++) {
        lanes x = lanes_load(s + (size_t)j * LANES);

        lanes_store(s + (size_t)j * LANES, lanes_exp(lanes_sub(x, lanes_all(u->best))));
    }
    for (uint32_t i = 0; i < K_BLOCK; i++)
        s[i] = i < lo || i > hi ? 0 : s[i];
    for (int j = 0; j < VECTORS; j++)
        sum[j] = lanes_load(s + (size_t)j * LANES);
    {
        float pair[LANES];

        lanes_store(pair, lanes_exp(lanes_all(old - u->best)));
        scale = pair[0];
    }
    u->total = u->total * scale +
               lanes_sum(lanes_add(lanes_add(sum[0], sum[1]), lanes_add(sum[2], sum[3])));
    return scale;
}

/* out = out x scale + sum of weights x values, dimensions 0 .. n - 1 of rows of length stride. */
static void blend(float *out, const float *v, uint32_t n, uint32_t stride, const float *weights,
                  uint32_t lo, uint32_t hi, float scale)
{
    lanes sum[WIDTH / LANES];

    for (uint32_t j = 0; j < n / LANES; j++)
        sum[j] = lanes_mul(lanes_load(out + (size_t)j * LANES), lanes_all(scale));
    for (uint32_t p = lo; p <= hi; p++) {
        lanes w = lanes_all(weights[p]);

        for (uint32_t j = 0; j < n / LANES; j++)
            sum[j] = lanes_fma(lanes_load(v + (size_t)p * stride + (size_t)j * LANES), w, sum[j]);
    }
    for (uint32_t j = 0; j < n / LANES; j++)
        lanes_store(out + (size_t)j * LANES, sum[j]);
}

/* Take the block's scores of a query into its sum. */
static void query_tile(const struct k_attend *a, struct query *u, const struct tile *t,
                       uint32_t base, float *s)
{
    uint32_t n = a->kv.head_dim;
    uint32_t lo = u->from > base ? u->from - base : 0;
    uint32_t hi = u->to - base < K_BLOCK - 1 ? u->to - base : K_BLOCK - 1;
    float scale;

    if (a->soft_cap != 0)
        cap_scores(s, a->soft_cap);
    scale = weigh(u, s, lo, hi);
    for (uint32_t d = 0; d < n; d += WIDTH) {
        if (n - d >= WIDTH) /* the constant lets the sums stay in registers */
            blend(u->out + d, t->v + d, WIDTH, n, s, lo, hi, scale);
        else
            blend(u->out + d, t->v + d, n - d, n, s, lo, hi, scale);
    }
}

static bool sees(const struct query *u, uint32_t base)
{
    return u->to >= base && u->from < base + K_BLOCK;
}

/* All queries that see the block, two at a time. */
static void queries_tile(const struct k_attend *a, struct query *queries, uint32_t n_queries,
                         const struct tile *t, uint32_t base)
{
    uint32_t n = a->kv.head_dim;
    struct query *pair[2];
    const float *q[2];
    float s[2][K_BLOCK];
    uint32_t n_pair = 0;

    for (uint32_t i = 0; i < n_queries; i++) {
        if (sees(&queries[i], base)) {
            q[n_pair] = queries[i].q;
            pair[n_pair++] = &queries[i];
        }
        if (n_pair == 2) {
            score(t->k, q, 2, n, a->scale, s);
            query_tile(a, pair[0], t, base, s[0]);
            query_tile(a, pair[1], t, base, s[1]);
            n_pair = 0;
        }
    }
    if (n_pair == 1) {
        score(t->k, q, 1, n, a->scale, s);
        query_tile(a, pair[0], t, base, s[0]);
    }
}

static void finish(const struct query *u, uint32_t n)
{
    lanes factor = lanes_all(1 / u->total);

    for (uint32_t i = 0; i < n; i += LANES)
        lanes_store(u->out + i, lanes_mul(lanes_load(u->out + i), factor));
}

/* Query heads first .. first + n_heads - 1 of one KV head, all rows of the span. */
static void attend_heads(const struct k_attend *a, const struct k_span *span, uint32_t kv_head,
                         uint32_t first, uint32_t n_heads, struct tile *t)
{
    uint32_t n = a->kv.head_dim;
    const uint32_t *blocks = a->seqs[span->seq].blocks;
    uint32_t last = span->position + span->n_rows - 1;
    struct query queries[QUERIES_MAX];
    uint32_t n_queries = 0;
    uint32_t from = last;

    for (uint32_t r = 0; r < span->n_rows; r++)
        for (uint32_t h = 0; h < n_heads; h++) {
            size_t at = (((size_t)span->first_row + r) * a->n_heads + first + h) * n;
            uint32_t to = span->position + r;
            struct query u = {.q = a->q + at, .out = a->out + at, .to = to, .best = -INFINITY};

            u.from = a->window != 0 && to >= a->window ? to - a->window + 1 : 0;
            from = u.from < from ? u.from : from;
            memset(u.out, 0, n * sizeof(*u.out));
            queries[n_queries++] = u;
        }
    for (uint32_t b = from / K_BLOCK; b <= last / K_BLOCK; b++) {
        load_tile(&a->kv, blocks[b], kv_head, t);
        queries_tile(a, queries, n_queries, t, b * K_BLOCK);
    }
    for (uint32_t i = 0; i < n_queries; i++)
        finish(&queries[i], n);
}

void LANES_NAME(k_attend)(const struct k_attend *a, uint32_t first, uint32_t end)
{
    uint32_t n_kv = a->kv.n_kv_heads;
    uint32_t group = a->n_heads / n_kv;
    struct tile t;

    for (uint32_t item = first; item < end; item++)
        for (uint32_t h = 0; h < group; h += HEADS_MAX) {
            uint32_t n = group - h < HEADS_MAX ? group - h : HEADS_MAX;

            attend_heads(a, &a->spans[item / n_kv], item % n_kv, item % n_kv * group + h, n, &t);
        }
}
