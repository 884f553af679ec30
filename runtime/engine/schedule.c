/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c - which tokens of which sequences the next step computes.
 *
 * Rules, in order:
 *   1. Running sequences first.  Decodes before prefill chunks: one token each, and somebody is
 *      waiting for it.
 *   2. A sequence that finds no block takes the place of the youngest running one, which loses all
 *      its blocks (recompute is cheaper than keeping half).  The oldest can always go on, so the
 *      engine always moves.
 *   3. New sequences only in a step that preempted nobody, in order, and only when all the tokens
 *      they already know, and one more, fit beside what running ones are still owed.  So a
 *      preempted sequence, which stands first in line, is not brought back to be thrown out again.
 */
#include "runtime/engine/schedule.h"

#include <stdbool.h>
#include <string.h>

#include "base/assertion.h"

void sched_block_range(uint32_t window, uint32_t block_size, uint32_t from, uint32_t to,
                       uint32_t *ret_first, uint32_t *ret_end)
{
    /* the first query stands at 'from' and sees from - window + 1 */
    uint32_t oldest = window && from + 1 > window ? from + 1 - window : 0;

    *ret_first = oldest / block_size;
    *ret_end = (to + block_size - 1) / block_size;
}

uint32_t sched_blocks_peak(uint32_t window, uint32_t block_size, uint32_t tokens_max,
                           uint32_t n_tokens)
{
    uint32_t all = (n_tokens + block_size - 1) / block_size;
    uint32_t most;

    if (!window)
        return all;
    /* window behind the first query, a whole chunk ahead of it, and a block cut at each end */
    most = (window + tokens_max + block_size - 1) / block_size + 1;
    return most < all ? most : all;
}

struct state {
    const struct sched_input *in;
    struct sched_output *out;
    uint32_t budget;
    int64_t free[PLAN_GROUPS_MAX];
    /* free blocks once every running sequence has all it is owed for its known tokens; admission
     * looks at this */
    int64_t unowed[PLAN_GROUPS_MAX];
};

static uint32_t held(const struct sched_seq *s, uint32_t g)
{
    return s->end[g] - s->first[g];
}

/* Change in free blocks of group g when s goes on by n tokens: gives back what falls behind the
 * window, takes what is new. */
static int64_t net_cost(const struct state *st, const struct sched_seq *s, uint32_t g, uint32_t n)
{
    uint32_t first, end;

    sched_block_range(st->in->groups[g].window, st->in->limits.block_size, s->n_computed,
                      s->n_computed + n, &first, &end);
    return (int64_t)(end - first) - (int64_t)held(s, g);
}

static bool fits(const struct state *st, const struct sched_seq *s, uint32_t n)
{
    for (uint32_t g = 0; g < st->in->limits.n_groups; g++)
        if (net_cost(st, s, g, n) > st->free[g])
            return false;
    return true;
}

static void take(struct state *st, const struct sched_seq *s, uint32_t n)
{
    for (uint32_t g = 0; g < st->in->limits.n_groups; g++)
        st->free[g] -= net_cost(st, s, g, n);
}

/* The youngest running sequence gives everything back, also what this step gave it. */
static void preempt_youngest(struct state *st)
{
    uint32_t i = --st->out->n_kept;
    const struct sched_seq *s = &st->in->running[i];

    for (uint32_t g = 0; g < st->in->limits.n_groups; g++) {
        st->free[g] += held(s, g);
        if (st->out->n_new[i])
            st->free[g] += net_cost(st, s, g, st->out->n_new[i]);
    }
    st->budget += st->out->n_new[i];
    st->out->n_new[i] = 0;
}

static void schedule_running(struct state *st, bool decodes)
{
    const struct sched_input *in = st->in;

    for (uint32_t i = 0; i < st->out->n_kept; i++) {
        const struct sched_seq *s = &in->running[i];
        uint32_t missing = s->n_tokens - s->n_computed;
        uint32_t n = missing < st->budget ? missing : st->budget;

        ASSERT(missing > 0);
        if ((missing == 1) != decodes || n == 0)
            continue;
        while (i < st->out->n_kept && !fits(st, s, n))
            preempt_youngest(st);
        if (i >= st->out->n_kept)
            return;
        take(st, s, n);
        st->out->n_new[i] = n;
        st->budget -= n;
    }
}

static uint32_t peak(const struct state *st, uint32_t g, uint32_t n_tokens)
{
    return sched_blocks_peak(st->in->groups[g].window, st->in->limits.block_size,
                             st->in->limits.tokens_max, n_tokens);
}

static void count_owed(struct state *st)
{
    for (uint32_t g = 0; g < st->in->limits.n_groups; g++) {
        st->unowed[g] = st->in->groups[g].n_free;
        for (uint32_t i = 0; i < st->in->n_running; i++) {
            const struct sched_seq *s = &st->in->running[i];
            uint32_t most = peak(st, g, s->n_tokens + 1);

            if (most > held(s, g))
                st->unowed[g] -= most - held(s, g);
        }
    }
}

static bool may_admit(const struct state *st, const struct sched_seq *s)
{
    for (uint32_t g = 0; g < st->in->limits.n_groups; g++)
        if (peak(st, g, s->n_tokens + 1) > st->unowed[g])
            return false;
    return true;
}

static void admit(struct state *st)
{
    const struct sched_input *in = st->in;
    struct sched_output *out = st->out;

    count_owed(st);
    while (out->n_admitted < in->n_waiting && st->budget > 0 &&
           out->n_kept + out->n_admitted < in->limits.sequences_max) {
        const struct sched_seq *s = &in->waiting[out->n_admitted];
        uint32_t n = s->n_tokens < st->budget ? s->n_tokens : st->budget;

        if (!may_admit(st, s) || !fits(st, s, n))
            break;
        take(st, s, n);
        for (uint32_t g = 0; g < in->limits.n_groups; g++)
            st->unowed[g] -= peak(st, g, s->n_tokens + 1);
        out->n_new[out->n_kept + out->n_admitted++] = n;
        st->budget -= n;
    }
}

void schedule(const struct sched_input *in, struct sched_output *out)
{
    struct state st = {.in = in, .out = out, .budget = in->limits.tokens_max};

    ASSERT(in->limits.sequences_max <= SCHED_RUNNING_MAX);
    ASSERT(in->n_running <= in->limits.sequences_max);
    memset(out, 0, sizeof(*out));
    out->n_kept = in->n_running;
    for (uint32_t g = 0; g < in->limits.n_groups; g++)
        st.free[g] = in->groups[g].n_free;
    schedule_running(&st, true);
    schedule_running(&st, false);
    if (out->n_kept == in->n_running)
        admit(&st);
    out->n_tokens = in->limits.tokens_max - st.budget;
}
