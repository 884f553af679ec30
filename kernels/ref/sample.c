/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.c - one row of logits to one token.
 *
 * The filters need the most likely tokens in order, but rarely many of them: a heap over the
 * candidates is built in linear time and popped only as far as top_k and top_p ask.  Candidates
 * that top_p cannot reach (all those below (1 - top_p) / n_vocab together weigh less than
 * 1 - top_p) are left out of the heap.  The result of filtering is a lowest kept entry, and the
 * draw walks the row in id order over those that are not below it: the walk, and so the answer,
 * does not depend on how the heap was arranged.
 */
#include <math.h>
#include <stdbool.h>

#include "kernels/ref/ref.h"

/* a goes before b: more likely, or equally and lower id */
static bool before(struct k_candidate a, struct k_candidate b)
{
    return a.p > b.p || (a.p == b.p && a.id < b.id);
}

static void sift(struct k_candidate *heap, uint32_t n, uint32_t i)
{
    struct k_candidate moving = heap[i];

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= n)
            break;
        if (child + 1 < n && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], moving))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void heap_make(struct k_candidate *heap, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(heap, n, i);
}

/* Take the first out; n is the count before. */
static struct k_candidate heap_pop(struct k_candidate *heap, uint32_t n)
{
    struct k_candidate top = heap[0];

    heap[0] = heap[n - 1];
    sift(heap, n - 1, 0);
    return top;
}

/* The best, lowest id first; -1 when any value is not finite. */
static int32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    bool finite = true;

    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(logits[i]);
        if (logits[i] > logits[best])
            best = i;
    }
    return finite ? (int32_t)best : -1;
}

static float weight(const float *logits, uint32_t i, int32_t best, float temperature)
{
    return expf((logits[i] - logits[best]) / temperature);
}

/* The last entry that top_k and top_p keep. */
static struct k_candidate last_kept(const struct k_sampling *s, const float *logits, int32_t best,
                                    struct k_candidate *heap, uint32_t n)
{
    uint32_t k = s->top_k == 0 || s->top_k > n ? n : s->top_k;
    struct k_candidate last = {.p = 0, .id = n};
    float floor = 0;
    double total = 0;
    double sum = 0;
    uint32_t count = 0;

    if (k == n) { /* top_p alone: skip what it cannot reach */
        for (uint32_t i = 0; i < n; i++)
            total += (double)weight(logits, i, best, s->temperature);
        floor = (float)((1 - (double)s->top_p) * total / n * 0.5);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct k_candidate c = {.p = weight(logits, i, best, s->temperature), .id = i};

        if (c.p >= floor)
            heap[count++] = c;
    }
    heap_make(heap, count);
    if (k < n) { /* the k best move to the array's end, least likely first */
        uint32_t left = count;

        for (uint32_t i = 0; i < k; i++, left--)
            heap[left - 1] = heap_pop(heap, left);
        for (uint32_t i = 0; i < k; i++)
            total += (double)heap[count - 1 - i].p;
        for (uint32_t i = 0; i < k && (i == 0 || sum < (double)s->top_p * total); i++) {
            last = heap[count - 1 - i];
            sum += (double)last.p;
        }
        return last;
    }
    for (uint32_t left = count; left > 0 && sum < (double)s->top_p * total; left--) {
        last = heap_pop(heap, left);
        sum += (double)last.p;
    }
    return last;
}

static bool kept(const struct k_sampling *s, struct k_candidate c, struct k_candidate last)
{
    return !before(last, c) && c.p >= s->min_p;
}

static int32_t sample_row(const struct k_sampling *s, const float *logits, uint32_t n,
                          struct k_candidate *scratch)
{
    int32_t best = best_of(logits, n);
    bool filtered = (s->top_k != 0 && s->top_k < n) || s->top_p < 1;
    struct k_candidate last = {.p = 0, .id = n}; /* keeps everything */
    int32_t drawn = best;
    double total = 0;
    double sum = 0;
    double u;

    if (best < 0 || s->temperature <= 0)
        return best;
    if (filtered)
        last = last_kept(s, logits, best, scratch, n);
    for (uint32_t i = 0; i < n; i++) {
        struct k_candidate c = {.p = weight(logits, i, best, s->temperature), .id = i};

        if (kept(s, c, last))
            total += (double)c.p;
    }
    u = k_uniform(s->seed, s->position, s->choice) * total;
    for (uint32_t i = 0; i < n; i++) {
        struct k_candidate c = {.p = weight(logits, i, best, s->temperature), .id = i};

        if (!kept(s, c, last) || c.p == 0)
            continue;
        drawn = (int32_t)i; /* rounding may leave u at the very end: the last kept one then */
        sum += (double)c.p;
        if (sum > u)
            break;
    }
    return drawn;
}

void k_ref_sample(const struct k_sample *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++)
        a->out[r] = sample_row(&a->params[r], a->logits + (size_t)r * a->n_vocab, a->n_vocab,
                               a->scratch + (size_t)r * a->n_vocab);
}
