/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Threads that share the items of one op after the other.  The thread that calls pool_do() works
 * too, so a pool of one has no thread of its own.  Only one thread may call pool_do(). */
struct pool;

enum { POOL_THREADS_MAX = 256, POOL_ITEMS_MAX = 1 << 24 };

typedef void (*pool_fn)(void *userdata, uint32_t first, uint32_t end);

int pool_new(unsigned n_threads, struct pool **ret, struct err *err) MUST_CHECK;
void pool_free(struct pool *p);
DEFINE_FREEP(pool)
unsigned pool_size(const struct pool *p);

/* fn over the items 0 .. n_items - 1 in chunks, by whichever threads are there; returns when all
 * are done.  What fn wrote is visible to the caller and to all later items. */
void pool_do(struct pool *p, pool_fn fn, void *userdata, uint32_t n_items);
