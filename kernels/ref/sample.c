/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.c - one row of logits to one token.
 *
 * A filter is a cut in the order of tokens (greater logit first, then lower id), so its result is
 * the last token it keeps; the draw then walks the row in id order over what is not behind the
 * cut.  Finding the cut does not sort the row, which may have a quarter of a million entries:
 *   top_k   a heap of the k best so far, its root the worst of them; most entries need one
 *           comparison
 *   top_p   weights are summed in buckets of neighbouring logits; only the bucket in which the
 *           sum passes top_p is put in order
 * Both at once: top_p among the k in order.
 */
#include <math.h>
#include <stdbool.h>

#include "kernels/ref/ref.h"

enum { BUCKETS = 2048, LANES = 16 };

/* Temperatures below this count as 0. */
static const float coldest = 1e-6F;

/* Weights below e^-20 of the best share the last bucket. */
static const float bucket_range = 20;

struct row {
    const struct k_sampling *s;
    const float *logits;
    uint32_t n;
    float best;    /* greatest logit */
    float inverse; /* 1 / temperature */
};

/* a goes before b */
static bool before(struct k_candidate a, struct k_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Let heap[i] sink to its place in a heap whose root is the first in order, or the last. */
static void sift(struct k_candidate *heap, uint32_t n, uint32_t i, bool last_on_top)
{
    struct k_candidate moving = heap[i];

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= n)
            break;
        if (child + 1 < n && before(heap[child + 1], heap[child]) != last_on_top)
            child++;
        if (before(heap[child], moving) == last_on_top)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void heap_make(struct k_candidate *heap, uint32_t n, bool last_on_top)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(heap, n, i, last_on_top);
}

/* Take the root out; n is the count before. */
static struct k_candidate heap_pop(struct k_candidate *heap, uint32_t n, bool last_on_top)
{
    struct k_candidate top = heap[0];

    heap[0] = heap[n - 1];
    sift(heap, n - 1, 0, last_on_top);
    return top;
}

/* The best, lowest id first; -1 when a value is +INFINITY or no number, or all are -INFINITY.  Two
 * passes that the compiler can turn into vectors, then a search for where the maximum is. */
static int32_t best_of(const float *logits, uint32_t n)
{
    float most[LANES];
    float greatest = logits[0];
    uint32_t bad = 0;
    uint32_t i = 0;

    for (uint32_t j = 0; j < LANES; j++)
        most[j] = logits[0];
    for (i = 0; i < n; i++)
        bad |= !(logits[i] < INFINITY);
    for (i = 0; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (; i < n; i++)
        greatest = logits[i] > greatest ? logits[i] : greatest;
    for (uint32_t j = 0; j < LANES; j++)
        greatest = most[j] > greatest ? most[j] : greatest;
    if (bad || greatest == -INFINITY)
        return -1;
    for (i = 0; logits[i] != greatest;)
        i++;
    return (int32_t)i;
}

/* 0 for the best, else negative */
static float tempered(const struct row *r, float logit)
{
    return (logit - r->best) * r->inverse;
}

static double weight(const struct row *r, float logit)
{
    return (double)expf(tempered(r, logit));
}

/* The k best in order, and how many of them top_p keeps; the last of those. */
static struct k_candidate cut_top_k(const struct row *r, struct k_candidate *heap)
{
    uint32_t k = r->s->top_k;
    double total = 0;
    double sum = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < k; i++)
        heap[i] = (struct k_candidate){.logit = r->logits[i], .id = i};
    heap_make(heap, k, true);
    for (uint32_t i = k; i < r->n; i++) /* later ids lose ties: only a greater logit gets in */
        if (r->logits[i] > heap[0].logit) {
            heap[0] = (struct k_candidate){.logit = r->logits[i], .id = i};
            sift(heap, k, 0, true);
        }
    for (uint32_t left = k; left > 1; left--)
        heap[left - 1] = heap_pop(heap, left, true);
    for (uint32_t i = 0; i < k; i++)
        total += weight(r, heap[i].logit);
    do
        sum += weight(r, heap[kept++].logit);
    while (kept < k && sum < (double)r->s->top_p * total);
    return heap[kept - 1];
}

static uint32_t bucket_of(const struct row *r, float logit)
{
    float at = tempered(r, logit) * -((BUCKETS - 1) / bucket_range);

    return at < BUCKETS - 1 ? (uint32_t)at : BUCKETS - 1;
}

/* The last token of the fewest whose weights reach top_p of all. */
static struct k_candidate cut_top_p(const struct row *r, struct k_candidate *heap)
{
    double sums[BUCKETS] = {0};
    struct k_candidate last = {.logit = r->best, .id = 0};
    double total = 0;
    double sum = 0;
    uint32_t bucket = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->n; i++)
        sums[bucket_of(r, r->logits[i])] += weight(r, r->logits[i]);
    for (uint32_t b = 0; b < BUCKETS; b++)
        total += sums[b];
    while (bucket < BUCKETS - 1 && sum + sums[bucket] < (double)r->s->top_p * total)
        sum += sums[bucket++];
    for (uint32_t i = 0; i < r->n; i++)
        if (bucket_of(r, r->logits[i]) == bucket)
            heap[count++] = (struct k_candidate){.logit = r->logits[i], .id = i};
    heap_make(heap, count, false);
    while (count > 0) {
        last = heap_pop(heap, count--, false);
        sum += weight(r, last.logit);
        if (sum >= (double)r->s->top_p * total)
            break;
    }
    return last;
}

/* Weight of token i, 0 when a filter has dropped it. */
static double kept_weight(const struct row *r, uint32_t i, struct k_candidate last)
{
    struct k_candidate c = {.logit = r->logits[i], .id = i};
    double w;

    if (before(last, c))
        return 0;
    w = weight(r, c.logit);
    return w >= (double)r->s->min_p ? w : 0;
}

static int32_t draw(const struct row *r, struct k_candidate last)
{
    int32_t drawn = -1;
    double total = 0;
    double sum = 0;
    double u;

    for (uint32_t i = 0; i < r->n; i++)
        total += kept_weight(r, i, last);
    u = k_uniform(r->s->seed, r->s->position, r->s->choice) * total;
    for (uint32_t i = 0; i < r->n; i++) {
        double w = kept_weight(r, i, last);

        if (w == 0)
            continue;
        drawn = (int32_t)i; /* rounding may leave u at the very end: the last kept one then */
        sum += w;
        if (sum > u)
            break;
    }
    return drawn;
}

static int32_t sample_row(const struct k_sampling *s, const float *logits, uint32_t n,
                          struct k_candidate *scratch)
{
    struct row r = {.s = s, .logits = logits, .n = n, .inverse = 1 / s->temperature};
    struct k_candidate last = {.logit = -INFINITY, .id = n}; /* keeps everything */
    int32_t best = best_of(logits, n);

    if (best < 0 || s->temperature < coldest)
        return best;
    r.best = logits[best];
    if (s->top_k != 0 && s->top_k < n)
        last = cut_top_k(&r, scratch);
    else if (s->top_p < 1)
        last = cut_top_p(&r, scratch);
    return draw(&r, last);
}

void k_ref_sample(const struct k_sample *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        a->out[r] = sample_row(&a->params[r], a->logits + (size_t)r * a->n_vocab, a->n_vocab,
                               a->scratch + (size_t)r * a->n_vocab);
        if (a->last)
            a->last[a->slots[r]] = a->out[r];
    }
}
