/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.c - a bounded queue of pointers between threads.
 *
 * A ring under one mutex; nothing but the ring is touched while it is held.  All memory is taken
 * at the start: a put can find the box full, but never out of memory.
 */
#include "base/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/assertion.h"
#include "base/mem.h"

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    size_t n_max, n, first;
    unsigned wakes; /* mailbox_wake() calls nobody has seen yet */
    bool closed;
    void *items[];
};

int mailbox_new(size_t n_max, struct mailbox **ret, struct err *err)
{
    pthread_condattr_t attr;
    struct mailbox *m;

    ASSERT(n_max > 0 && n_max <= 1u << 24);
    m = mem_calloc(1, sizeof(*m) + n_max * sizeof(m->items[0]));
    if (!m)
        return err_set(err, ERR_NO_MEMORY, "mailbox of %zu", n_max);
    m->n_max = n_max;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->filled, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = m;
    return 0;
}

void mailbox_free(struct mailbox *m)
{
    if (!m)
        return;
    (void)pthread_cond_destroy(&m->filled);
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

bool mailbox_put(struct mailbox *m, void *item)
{
    bool ok;

    ASSERT(item);
    (void)pthread_mutex_lock(&m->lock);
    ok = !m->closed && m->n < m->n_max;
    if (ok) {
        m->items[(m->first + m->n++) % m->n_max] = item;
        (void)pthread_cond_signal(&m->filled);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return ok;
}

static void *take_locked(struct mailbox *m)
{
    void *item;

    if (m->n == 0)
        return NULL;
    item = m->items[m->first];
    m->first = (m->first + 1) % m->n_max;
    m->n--;
    return item;
}

static void deadline_after(int timeout_ms, struct timespec *t)
{
    (void)clock_gettime(CLOCK_MONOTONIC, t);
    t->tv_sec += timeout_ms / 1000;
    t->tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t->tv_nsec >= 1000000000) {
        t->tv_nsec -= 1000000000;
        t->tv_sec++;
    }
}

void *mailbox_get(struct mailbox *m, int timeout_ms)
{
    struct timespec until = {0};
    void *item;

    if (timeout_ms >= 0)
        deadline_after(timeout_ms, &until);
    (void)pthread_mutex_lock(&m->lock);
    while (m->n == 0 && !m->closed && m->wakes == 0) {
        int r = timeout_ms < 0 ? pthread_cond_wait(&m->filled, &m->lock)
                               : pthread_cond_timedwait(&m->filled, &m->lock, &until);

        if (r == ETIMEDOUT)
            break;
    }
    item = take_locked(m);
    if (!item && m->wakes)
        m->wakes--;
    (void)pthread_mutex_unlock(&m->lock);
    return item;
}

void *mailbox_try_get(struct mailbox *m)
{
    void *item;

    (void)pthread_mutex_lock(&m->lock);
    item = take_locked(m);
    (void)pthread_mutex_unlock(&m->lock);
    return item;
}

void mailbox_wake(struct mailbox *m)
{
    (void)pthread_mutex_lock(&m->lock);
    if (m->wakes == 0)
        m->wakes = 1;
    (void)pthread_cond_signal(&m->filled);
    (void)pthread_mutex_unlock(&m->lock);
}

void mailbox_close(struct mailbox *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->closed = true;
    (void)pthread_cond_broadcast(&m->filled);
    (void)pthread_mutex_unlock(&m->lock);
}

bool mailbox_closed(struct mailbox *m)
{
    bool closed;

    (void)pthread_mutex_lock(&m->lock);
    closed = m->closed;
    (void)pthread_mutex_unlock(&m->lock);
    return closed;
}

size_t mailbox_count(struct mailbox *m)
{
    size_t n;

    (void)pthread_mutex_lock(&m->lock);
    n = m->n;
    (void)pthread_mutex_unlock(&m->lock);
    return n;
}
