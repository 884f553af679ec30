/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c - compute threads that help with one op at a time.
 *
 * A decode step of a small model is a few hundred ops of some tens of microseconds, so dealing
 * them out must cost less than a microsecond when everybody runs.  And a pod often has to share
 * its processors: an op must not wait for a helper that the kernel is not running.  So an op is
 * over when its items are done, not when all threads have met: the caller takes chunks like
 * everybody, and then waits only for chunks that somebody else has begun.  A helper that was away
 * for a while finds the op of the moment and joins in.
 *
 * The next chunk is taken by compare-and-swap from one word that holds the op's number and the
 * next item.  A helper that looked at an earlier op fails to swap, and so never touches what
 * belongs to a later one; one that succeeded may use fn and userdata, since the caller cannot go
 * on before its items are counted in 'done'.  Before the caller changes n_items it closes the word
 * (no item is left), and whoever sees the new n_items sees it closed: else a helper could match
 * the old word with the new number of items.
 *
 * Waiting (for an op, for the last chunks) spins for a short while and then sleeps on a futex.
 * Whoever changes the word looks at 'sleepers' afterwards, and a sleeper announces itself before
 * it looks at the word (both sequentially consistent), so one of the two sees the other.
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

#include "base/assertion.h"
#include "base/mem.h"
#include DEVICE_SPIN

enum { SPINS = 2000, CACHE_LINE = 64, ITEM_BITS = 24, CHUNKS_PER_THREAD = 4 };

static const uint64_t item_mask = ((uint64_t)1 << ITEM_BITS) - 1;
_Static_assert(POOL_ITEMS_MAX <= 1 << ITEM_BITS, "an item number fits its bits");

/* A word to wait on, alone on its cache line. */
struct event {
    _Alignas(CACHE_LINE) atomic_uint word;
    atomic_uint sleepers;
};

struct worker {
    struct pool *pool;
    pthread_t thread;
};

struct pool {
    struct event ops;                                /* counts pool_do() calls */
    struct event done;                               /* items of the op that are done */
    _Alignas(CACHE_LINE) atomic_uint_least64_t next; /* op number << ITEM_BITS | item */
    atomic_uint n_items;
    atomic_uint chunk;
    atomic_bool stop;
    pool_fn fn; /* read only after a chunk was taken */
    void *userdata;
    uint64_t n_ops;
    unsigned n_threads;
    unsigned n_started;
    struct worker *workers; /* [n_threads], the first unused */
};

static void event_wait(struct event *e, unsigned old)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&e->word, memory_order_acquire) != old)
            return;
        spin_turn();
    }
    atomic_fetch_add(&e->sleepers, 1);
    while (atomic_load(&e->word) == old)
        (void)syscall(SYS_futex, &e->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&e->sleepers, 1);
}

static void event_add(struct event *e, unsigned n)
{
    atomic_fetch_add(&e->word, n);
    if (atomic_load(&e->sleepers) > 0)
        (void)syscall(SYS_futex, &e->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Take chunks of the op of the moment until none is left. */
static void help(struct pool *p)
{
    uint64_t next = atomic_load_explicit(&p->next, memory_order_acquire);

    for (;;) {
        uint32_t first = (uint32_t)(next & item_mask);
        uint32_t n_items = atomic_load_explicit(&p->n_items, memory_order_acquire);
        uint32_t chunk = atomic_load_explicit(&p->chunk, memory_order_relaxed);
        uint32_t n = first < n_items && n_items - first < chunk ? n_items - first : chunk;

        if (first >= n_items)
            return;
        if (!atomic_compare_exchange_weak_explicit(&p->next, &next, next + n, memory_order_acquire,
                                                   memory_order_acquire))
            continue;
        p->fn(p->userdata, first, first + n);
        event_add(&p->done, n);
        next = atomic_load_explicit(&p->next, memory_order_acquire);
    }
}

static void *worker_main(void *arg)
{
    struct pool *p = ((const struct worker *)arg)->pool;

    while (!atomic_load(&p->stop)) {
        unsigned seen = atomic_load(&p->ops.word);

        help(p);
        if (!atomic_load(&p->stop))
            event_wait(&p->ops, seen);
    }
    return NULL;
}

static void wait_done(struct pool *p, uint32_t n_items)
{
    for (;;) {
        unsigned done = atomic_load_explicit(&p->done.word, memory_order_acquire);

        if (done == n_items)
            return;
        event_wait(&p->done, done);
    }
}

void pool_do(struct pool *p, pool_fn fn, void *userdata, uint32_t n_items)
{
    uint32_t chunk = n_items / (p->n_threads * CHUNKS_PER_THREAD);

    ASSERT(n_items < item_mask);
    if (n_items <= 1 || p->n_threads == 1) {
        fn(userdata, 0, n_items);
        return;
    }
    atomic_store_explicit(&p->next, p->n_ops << ITEM_BITS | item_mask, memory_order_relaxed);
    atomic_store_explicit(&p->n_items, n_items, memory_order_release);
    atomic_store_explicit(&p->done.word, 0, memory_order_relaxed);
    p->fn = fn;
    p->userdata = userdata;
    atomic_store_explicit(&p->chunk, chunk > 0 ? chunk : 1, memory_order_relaxed);
    atomic_store_explicit(&p->next, ++p->n_ops << ITEM_BITS, memory_order_release);
    event_add(&p->ops, 1);
    help(p);
    wait_done(p, n_items);
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

        p->workers[i].pool = p;
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
    atomic_store(&p->stop, true);
    event_add(&p->ops, 1);
    for (unsigned i = 1; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    mem_free(p);
}

unsigned pool_size(const struct pool *p)
{
    return p->n_threads;
}
