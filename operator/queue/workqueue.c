/* SPDX-License-Identifier: Apache-2.0
 *
 * workqueue.c - which object needs a look, and who looks now.
 *
 * One entry a key, found through a map; its flags say in which of the sets of workqueue.h it is.
 * A key that is ready hangs in a FIFO, so a busy key cannot starve a quiet one: it goes to the
 * end each time.  Keys that wait for a time hang in a second list which is scanned whole; it holds
 * objects in backoff and a few timers, so a heap would buy nothing.
 *
 * An entry lives while it is in some set or remembers failures.  The lock is held for a few
 * pointer moves and nothing outside this file is called under it.
 */
#include "operator/queue/workqueue.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/assertion.h"
#include "base/map.h"
#include "base/mem.h"

enum { KEYS_MAX_DEFAULT = 65536, BACKOFF_MS = 5, BACKOFF_MAX_MS = 300000, SHIFT_MAX = 30 };

struct item {
    char key[WORKQUEUE_KEY_BYTES];
    struct item *next_ready;
    struct item *prev_waiting, *next_waiting;
    uint64_t due_ms;   /* 0: not in the waiting list */
    uint64_t since_ns; /* when it became ready, then when it was taken */
    unsigned failures;
    bool dirty, processing;
};

struct workqueue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct map *items; /* key -> struct item, owned */
    struct item *ready_first, *ready_last;
    struct item *waiting;
    struct workqueue_options opt;
    struct workqueue_stats stats;
    bool shutting_down;
};

int workqueue_new(const struct workqueue_options *o, struct workqueue **ret, struct err *err)
{
    struct workqueue *q = mem_calloc(1, sizeof(*q));
    pthread_condattr_t attr;
    int r;

    if (!q)
        return err_set(err, ERR_NO_MEMORY, "work queue");
    r = map_new(&q->items, err);
    if (r) {
        mem_free(q);
        return r;
    }
    q->opt = *o;
    if (q->opt.n_keys_max == 0)
        q->opt.n_keys_max = KEYS_MAX_DEFAULT;
    if (q->opt.backoff_ms == 0)
        q->opt.backoff_ms = BACKOFF_MS;
    if (q->opt.backoff_max_ms == 0)
        q->opt.backoff_max_ms = BACKOFF_MAX_MS;
    q->stats.heartbeat_ns = clock_ns(o->clock);
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = q;
    return 0;
}

void workqueue_free(struct workqueue *q)
{
    size_t iter = 0;
    void *item;

    if (!q)
        return;
    while (map_next(q->items, &iter, NULL, &item))
        mem_free(item);
    map_free(q->items);
    (void)pthread_cond_destroy(&q->changed);
    (void)pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

static void push_ready(struct workqueue *q, struct item *item)
{
    item->next_ready = NULL;
    item->since_ns = clock_ns(q->opt.clock);
    if (q->ready_last)
        q->ready_last->next_ready = item;
    else
        q->ready_first = item;
    q->ready_last = item;
    q->stats.depth++;
    (void)pthread_cond_signal(&q->changed);
}

static void leave_waiting(struct workqueue *q, struct item *item)
{
    if (item->due_ms == 0)
        return;
    if (item->prev_waiting)
        item->prev_waiting->next_waiting = item->next_waiting;
    else
        q->waiting = item->next_waiting;
    if (item->next_waiting)
        item->next_waiting->prev_waiting = item->prev_waiting;
    item->prev_waiting = item->next_waiting = NULL;
    item->due_ms = 0;
}

/* Find the key's entry or make one; NULL: full or no memory. */
static struct item *item_of(struct workqueue *q, const char *key)
{
    struct item *item = map_get(q->items, key);
    struct err err;

    if (item)
        return item;
    if (q->shutting_down || strlen(key) >= WORKQUEUE_KEY_BYTES ||
        map_count(q->items) >= q->opt.n_keys_max)
        goto refuse;
    item = mem_calloc(1, sizeof(*item));
    if (!item)
        goto refuse;
    memcpy(item->key, key, strlen(key) + 1);
    if (map_put(q->items, key, item, &err)) {
        mem_free(item);
        goto refuse;
    }
    return item;
refuse:
    q->stats.n_refused++;
    return NULL;
}

/* Drop an entry that is in no set and remembers nothing. */
static void settle(struct workqueue *q, struct item *item)
{
    if (item->dirty || item->processing || item->due_ms || item->failures)
        return;
    (void)map_remove(q->items, item->key);
    mem_free(item);
}

static void make_dirty(struct workqueue *q, struct item *item)
{
    leave_waiting(q, item);
    if (item->dirty)
        return;
    item->dirty = true;
    if (!item->processing)
        push_ready(q, item);
}

bool workqueue_add(struct workqueue *q, const char *key)
{
    struct item *item;

    (void)pthread_mutex_lock(&q->lock);
    item = item_of(q, key);
    if (item) {
        q->stats.n_added++;
        make_dirty(q, item);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return item != NULL;
}

/* The earlier of two times wins; a key that is dirty already needs no timer. */
static void wait_for(struct workqueue *q, struct item *item, uint64_t delay_ms)
{
    uint64_t due = clock_ms(q->opt.clock) + delay_ms;

    if (delay_ms == 0) {
        make_dirty(q, item);
        return;
    }
    if ((item->dirty && !item->processing) || (item->due_ms && item->due_ms <= due))
        return;
    leave_waiting(q, item);
    item->due_ms = due;
    item->next_waiting = q->waiting;
    if (q->waiting)
        q->waiting->prev_waiting = item;
    q->waiting = item;
    (void)pthread_cond_signal(&q->changed);
}

bool workqueue_add_after(struct workqueue *q, const char *key, uint64_t delay_ms)
{
    struct item *item;

    (void)pthread_mutex_lock(&q->lock);
    item = item_of(q, key);
    if (item)
        wait_for(q, item, delay_ms);
    (void)pthread_mutex_unlock(&q->lock);
    return item != NULL;
}

bool workqueue_retry(struct workqueue *q, const char *key, uint64_t min_ms)
{
    struct item *item;

    (void)pthread_mutex_lock(&q->lock);
    item = item_of(q, key);
    if (item) {
        unsigned shift = item->failures < SHIFT_MAX ? item->failures : SHIFT_MAX;
        uint64_t delay = q->opt.backoff_ms << shift;

        if (delay > q->opt.backoff_max_ms)
            delay = q->opt.backoff_max_ms;
        item->failures++;
        q->stats.n_retried++;
        wait_for(q, item, delay > min_ms ? delay : min_ms);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return item != NULL;
}

void workqueue_forget(struct workqueue *q, const char *key)
{
    struct item *item;

    (void)pthread_mutex_lock(&q->lock);
    item = map_get(q->items, key);
    if (item) {
        item->failures = 0;
        settle(q, item);
    }
    (void)pthread_mutex_unlock(&q->lock);
}

unsigned workqueue_failures(struct workqueue *q, const char *key)
{
    const struct item *item;
    unsigned n;

    (void)pthread_mutex_lock(&q->lock);
    item = map_get(q->items, key);
    n = item ? item->failures : 0;
    (void)pthread_mutex_unlock(&q->lock);
    return n;
}

/* Move what is due to ready; returns ms until the next one is, UINT64_MAX: none waits. */
static uint64_t wake_due(struct workqueue *q)
{
    uint64_t now = clock_ms(q->opt.clock), nearest = UINT64_MAX;
    struct item *item, *next;

    for (item = q->waiting; item; item = next) {
        next = item->next_waiting;
        if (item->due_ms <= now)
            make_dirty(q, item);
        else if (item->due_ms - now < nearest)
            nearest = item->due_ms - now;
    }
    return nearest;
}

static bool take_first(struct workqueue *q, char ret_key[WORKQUEUE_KEY_BYTES])
{
    struct item *item = q->ready_first;
    uint64_t now = clock_ns(q->opt.clock);

    q->stats.heartbeat_ns = now;
    if (!item || q->shutting_down)
        return false;
    q->ready_first = item->next_ready;
    if (!q->ready_first)
        q->ready_last = NULL;
    q->stats.depth--;
    ASSERT(item->dirty && !item->processing);
    item->dirty = false;
    item->processing = true;
    q->stats.wait_ns += now - item->since_ns;
    q->stats.n_taken++;
    q->stats.n_processing++;
    item->since_ns = now;
    memcpy(ret_key, item->key, WORKQUEUE_KEY_BYTES);
    return true;
}

bool workqueue_try_get(struct workqueue *q, char ret_key[WORKQUEUE_KEY_BYTES])
{
    bool got;

    (void)pthread_mutex_lock(&q->lock);
    (void)wake_due(q);
    got = take_first(q, ret_key);
    (void)pthread_mutex_unlock(&q->lock);
    return got;
}

/* Sleep until something changed, at most ms; one second at most, so that the heartbeat of idle
 * workers stays fresh and a clock that was turned is noticed. */
static void sleep_for(struct workqueue *q, uint64_t ms)
{
    struct timespec until;

    if (ms > 1000)
        ms = 1000;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&q->changed, &q->lock, &until);
}

bool workqueue_get(struct workqueue *q, char ret_key[WORKQUEUE_KEY_BYTES])
{
    bool got = false;

    (void)pthread_mutex_lock(&q->lock);
    while (!q->shutting_down) {
        uint64_t ms = wake_due(q);

        got = take_first(q, ret_key);
        if (got)
            break;
        sleep_for(q, ms);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return got;
}

void workqueue_done(struct workqueue *q, const char *key)
{
    struct item *item;

    (void)pthread_mutex_lock(&q->lock);
    item = map_get(q->items, key);
    ASSERT(item && item->processing);
    q->stats.heartbeat_ns = clock_ns(q->opt.clock);
    q->stats.work_ns += q->stats.heartbeat_ns - item->since_ns;
    q->stats.n_done++;
    q->stats.n_processing--;
    item->processing = false;
    if (item->dirty)
        push_ready(q, item);
    settle(q, item);
    (void)pthread_mutex_unlock(&q->lock);
}

void workqueue_shut_down(struct workqueue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->shutting_down = true;
    (void)pthread_cond_broadcast(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
}

void workqueue_stats(struct workqueue *q, struct workqueue_stats *ret)
{
    (void)pthread_mutex_lock(&q->lock);
    *ret = q->stats;
    (void)pthread_mutex_unlock(&q->lock);
}
