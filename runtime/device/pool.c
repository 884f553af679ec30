/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c - compute threads and the barrier between ops.
 *
 * A decode step of a small model is a few hundred ops of some tens of microseconds, so waiting
 * must cost less than a microsecond when everybody is running, and nothing when the engine is
 * idle.  Both waits (for a job, for the others) therefore spin for a short while and then sleep
 * on a futex.  Spinning is bounded by turns, not by time: when the threads outnumber the
 * processors a spinner soon sleeps and lets the late one run.
 *
 * The word that is waited for only ever counts up.  Whoever changes it looks at 'sleepers'
 * afterwards, and a sleeper announces itself before it looks at the word (both sequentially
 * consistent), so one of the two sees the other.
 *
 * Threading: pool_run() from one thread; job fields are written before 'jobs' is counted up and
 * read after it was seen.
 */
#include "runtime/device/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

enum { SPINS = 4000, CACHE_LINE = 64 };

/* A word to wait on, alone on its cache line. */
struct event {
    _Alignas(CACHE_LINE) atomic_uint word;
    atomic_uint sleepers;
};

struct worker {
    struct pool *pool;
    unsigned index;
    pthread_t thread;
};

struct pool {
    struct event jobs;  /* counts pool_run() calls */
    struct event phase; /* counts barriers passed */
    _Alignas(CACHE_LINE) atomic_uint arrived;
    unsigned n_threads;
    unsigned n_started;
    bool stop;
    void (*fn)(void *userdata, unsigned thread);
    void *userdata;
    struct worker *workers; /* [n_threads], the first unused */
};

static void pause_cpu(void)
{
    __builtin_ia32_pause();
}

static void event_wait(struct event *e, unsigned old)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&e->word, memory_order_acquire) != old)
            return;
        pause_cpu();
    }
    atomic_fetch_add(&e->sleepers, 1);
    while (atomic_load(&e->word) == old)
        (void)syscall(SYS_futex, &e->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&e->sleepers, 1);
}

static void event_raise(struct event *e)
{
    atomic_fetch_add(&e->word, 1);
    if (atomic_load(&e->sleepers) > 0)
        (void)syscall(SYS_futex, &e->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
    unsigned phase = atomic_load_explicit(&p->phase.word, memory_order_relaxed);

    if (p->n_threads == 1)
        return;
    if (atomic_fetch_add(&p->arrived, 1) + 1 < p->n_threads) {
        event_wait(&p->phase, phase);
        return;
    }
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    event_raise(&p->phase);
}

static void *worker_main(void *arg)
{
    const struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;

    for (;;) {
        event_wait(&p->jobs, seen);
        seen++;
        if (p->stop)
            return NULL;
        p->fn(p->userdata, w->index);
        pool_barrier(p);
    }
}

void pool_run(struct pool *p, void (*fn)(void *userdata, unsigned thread), void *userdata)
{
    p->fn = fn;
    p->userdata = userdata;
    if (p->n_threads > 1)
        event_raise(&p->jobs);
    fn(userdata, 0);
    pool_barrier(p);
}

int pool_new(unsigned n_threads, struct pool **ret, struct err *err)
{
    CLEANUP(pool_freep) struct pool *p = NULL;

    if (n_threads == 0 || n_threads > POOL_THREADS_MAX)
        return err_set(err, ERR_INVALID, "%u compute threads, want 1..%d", n_threads,
                       POOL_THREADS_MAX);
    p = mem_aligned(CACHE_LINE, sizeof(*p));
    if (!p)
        return err_set(err, ERR_NO_MEMORY, "thread pool");
    p->n_threads = n_threads;
    p->n_started = 1;
    p->workers = mem_calloc(n_threads, sizeof(*p->workers));
    if (!p->workers)
        return err_set(err, ERR_NO_MEMORY, "thread pool");
    for (unsigned i = 1; i < n_threads; i++) {
        int e;

        p->workers[i] = (struct worker){.pool = p, .index = i};
        e = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (e != 0)
            return err_set(err, ERR_NO_MEMORY, "compute thread %u: %s", i, strerror(e));
        p->n_started++;
    }
    *ret = TAKE_PTR(p);
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    p->stop = true;
    if (p->n_started > 1)
        event_raise(&p->jobs);
    for (unsigned i = 1; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    mem_free(p);
}

unsigned pool_size(const struct pool *p)
{
    return p->n_threads;
}
