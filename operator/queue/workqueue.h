/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"

/* A set of object keys ("namespace/name") that need a look.  Any thread may call; get() blocks.
 *   dirty       keys that need work
 *   processing  keys a worker holds now
 *   ready       FIFO of the keys in dirty and not in processing
 *   waiting     keys that become dirty at a time
 * Hence a key is never with two workers; a key added while held is done once more after;
 * a thousand adds of a waiting key are one piece of work. */
struct workqueue;

enum { WORKQUEUE_KEY_BYTES = 320 };

struct workqueue_options {
    size_t n_keys_max;         /* 0: 65536 */
    uint64_t backoff_ms;       /* first retry of a key, doubled each time; 0: 5 */
    uint64_t backoff_max_ms;   /* 0: 5 minutes */
    const struct clock *clock; /* must outlive the queue */
};

struct workqueue_stats {
    size_t depth; /* ready now */
    uint64_t n_added, n_retried, n_refused;
    uint64_t wait_ns, work_ns; /* sums over all keys that were taken, and done */
    uint64_t n_taken, n_done;
    uint64_t heartbeat_ns; /* monotonic time at which a worker last called get() or done() */
    size_t n_processing;
};

int workqueue_new(const struct workqueue_options *o, struct workqueue **ret,
                  struct err *err) MUST_CHECK;
void workqueue_free(struct workqueue *q);
DEFINE_FREEP(workqueue)

/* false: the queue is full, or there was no memory; the caller comes again with a resync. */
bool workqueue_add(struct workqueue *q, const char *key);
bool workqueue_add_after(struct workqueue *q, const char *key, uint64_t delay_ms);
/* Add after the key's own backoff: 5 ms, 10 ms, ... ; at least min_ms when that is longer. */
bool workqueue_retry(struct workqueue *q, const char *key, uint64_t min_ms);
/* The key went well: its backoff starts anew. */
void workqueue_forget(struct workqueue *q, const char *key);

/* Retries of the key since it last went well. */
unsigned workqueue_failures(struct workqueue *q, const char *key);

/* Waits for a key and takes it; false: shutting down. */
bool workqueue_get(struct workqueue *q, char ret_key[WORKQUEUE_KEY_BYTES]);
/* The same without waiting; false: nothing is ready. */
bool workqueue_try_get(struct workqueue *q, char ret_key[WORKQUEUE_KEY_BYTES]);
void workqueue_done(struct workqueue *q, const char *key);
void workqueue_shut_down(struct workqueue *q); /* every get() returns false from now on */
void workqueue_stats(struct workqueue *q, struct workqueue_stats *ret);
