/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator_threads.c - ranks that share an address space.
 *
 * A call is three meetings of all ranks.  At the first each has said what it brings (the call, the
 * count, the buffer), so that a mismatch is seen by everybody before a byte moves.  Between the
 * first and the second, rank r adds up the r-th share of all buffers, in rank order: the same bits
 * whatever the timing.  Between the second and the third each takes the whole.
 *
 * A meeting waits on a condition variable with the group's timeout.  Who waits in vain, or meets
 * something else than it brought, breaks the group: every later call fails at once.
 *
 * One lock, held for a meeting's bookkeeping only.  The group lives as long as its last end.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/mem.h"
#include "runtime/parallel/communicator_kind.h"

enum call { CALL_REDUCE, CALL_GATHER };

struct bring {
    enum call call;
    size_t n;
    const float *data;
};

struct group {
    unsigned size;
    size_t n_max;
    uint64_t timeout_ms;
    float *sum; /* [n_max] */
    struct bring brings[COMMUNICATOR_RANKS_MAX];
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t met;
    unsigned n_ends;
    unsigned n_here;
    uint64_t meeting; /* how many there were */
    bool is_broken;
    char why[120];
};

struct threads_end {
    struct communicator base;
    struct group *group;
};

static struct group *group_of(struct communicator *c)
{
    return ((struct threads_end *)c)->group;
}

static void break_group(struct group *g, const char *why)
{
    if (!g->is_broken)
        (void)snprintf(g->why, sizeof(g->why), "%s", why);
    g->is_broken = true;
    (void)pthread_cond_broadcast(&g->met);
}

static void wait_for_the_rest(struct group *g)
{
    uint64_t mine = g->meeting, until = clock_ns(clock_system()) + g->timeout_ms * 1000000;
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                          .tv_nsec = (long)(until % 1000000000)};

    while (g->meeting == mine && !g->is_broken) {
        if (pthread_cond_timedwait(&g->met, &g->lock, &at) != 0 && g->meeting == mine)
            break_group(g, "a rank did not come in time");
    }
}

/* Come together with all others. */
static int meet(struct group *g, struct err *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&g->lock);
    if (!g->is_broken && ++g->n_here == g->size) {
        g->n_here = 0;
        g->meeting++;
        (void)pthread_cond_broadcast(&g->met);
    } else if (!g->is_broken) {
        wait_for_the_rest(g);
    }
    if (g->is_broken)
        r = err_set(err, ERR_DEVICE, "tensor parallelism: %s", g->why);
    (void)pthread_mutex_unlock(&g->lock);
    return r;
}

static int bring(struct group *g, unsigned rank, struct bring mine, struct err *err)
{
    int r;

    ASSERT(mine.n <= g->n_max);
    (void)pthread_mutex_lock(&g->lock);
    if (!g->is_broken) /* else others may still be reading what broke it */
        g->brings[rank] = mine;
    (void)pthread_mutex_unlock(&g->lock);
    r = meet(g, err);
    for (unsigned i = 0; r == 0 && i < g->size; i++) {
        if (g->brings[i].call == mine.call && g->brings[i].n == mine.n)
            continue;
        (void)pthread_mutex_lock(&g->lock);
        break_group(g, "ranks disagree about what comes next");
        (void)pthread_mutex_unlock(&g->lock);
        r = err_set(err, ERR_DEVICE,
                    "tensor parallelism: rank %u brings %zu values, rank %u %zu or another call",
                    rank, mine.n, i, g->brings[i].n);
    }
    return r;
}

static int all_reduce(struct communicator *c, float *data, size_t n, void *stream, struct err *err)
{
    struct group *g = group_of(c);
    size_t first = n * c->rank / g->size, end = n * (c->rank + 1) / g->size;
    int r = bring(g, c->rank, (struct bring){CALL_REDUCE, n, data}, err);

    (void)stream;
    if (r < 0)
        return r;
    memcpy(g->sum + first, g->brings[0].data + first, (end - first) * sizeof(*data));
    for (unsigned k = 1; k < g->size; k++)
        for (size_t i = first; i < end; i++)
            g->sum[i] += g->brings[k].data[i];
    r = meet(g, err);
    if (r < 0)
        return r;
    memcpy(data, g->sum, n * sizeof(*data));
    return meet(g, err);
}

static int all_gather(struct communicator *c, const float *part, size_t n, float *all, void *stream,
                      struct err *err)
{
    struct group *g = group_of(c);
    int r = bring(g, c->rank, (struct bring){CALL_GATHER, n, part}, err);

    (void)stream;
    if (r < 0)
        return r;
    for (unsigned k = 0; k < g->size; k++)
        memcpy(all + k * n, g->brings[k].data, n * sizeof(*all));
    return meet(g, err);
}

static int check_group(struct communicator *c, struct err *err)
{
    struct group *g = group_of(c);
    int r = 0;

    (void)pthread_mutex_lock(&g->lock);
    if (g->is_broken)
        r = err_set(err, ERR_DEVICE, "tensor parallelism: %s", g->why);
    (void)pthread_mutex_unlock(&g->lock);
    return r;
}

static void abort_group(struct communicator *c)
{
    struct group *g = group_of(c);

    (void)pthread_mutex_lock(&g->lock);
    break_group(g, "another rank failed");
    (void)pthread_mutex_unlock(&g->lock);
}

static void free_end(struct communicator *c)
{
    struct group *g = group_of(c);
    bool last;

    (void)pthread_mutex_lock(&g->lock);
    last = --g->n_ends == 0;
    (void)pthread_mutex_unlock(&g->lock);
    mem_free(c);
    if (!last)
        return;
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_cond_destroy(&g->met);
    mem_free(g->sum);
    mem_free(g);
}

static int group_new(unsigned n_ranks, size_t n_max, uint64_t timeout_ms, struct group **ret,
                     struct err *err)
{
    struct group *g = mem_calloc(1, sizeof(*g));
    pthread_condattr_t attr;

    if (g)
        g->sum = mem_calloc(n_max, sizeof(*g->sum));
    if (!g || !g->sum) {
        mem_free(g);
        return err_set(err, ERR_NO_MEMORY, "communicator of %u ranks", n_ranks);
    }
    g->size = n_ranks;
    g->n_max = n_max;
    g->timeout_ms = timeout_ms;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&g->met, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = g;
    return 0;
}

int communicator_new_threads(unsigned n_ranks, size_t n_max, uint64_t timeout_ms,
                             struct communicator **ret, struct err *err)
{
    static const struct communicator_kind kind = {
            .free = free_end,
            .all_reduce = all_reduce,
            .all_gather = all_gather,
            .check = check_group,
            .abort = abort_group,
    };
    struct threads_end *ends[COMMUNICATOR_RANKS_MAX] = {0};
    struct group *g = NULL;
    int r;

    ASSERT(n_ranks > 0 && n_ranks <= COMMUNICATOR_RANKS_MAX);
    for (unsigned i = 0; i < n_ranks; i++)
        ends[i] = mem_calloc(1, sizeof(*ends[i]));
    r = group_new(n_ranks, n_max, timeout_ms, &g, err);
    for (unsigned i = 0; i < n_ranks && r == 0; i++)
        if (!ends[i])
            r = err_set(err, ERR_NO_MEMORY, "communicator of %u ranks", n_ranks);
    for (unsigned i = 0; i < n_ranks; i++) {
        if (r < 0) {
            mem_free(ends[i]);
            continue;
        }
        *ends[i] = (struct threads_end){.base = {.kind = &kind, .rank = i, .size = n_ranks},
                                        .group = g};
        ret[i] = &ends[i]->base;
    }
    if (r < 0 && g) {
        (void)pthread_mutex_destroy(&g->lock);
        (void)pthread_cond_destroy(&g->met);
        mem_free(g->sum);
        mem_free(g);
        return r;
    }
    if (r == 0)
        g->n_ends = n_ranks;
    return r;
}
