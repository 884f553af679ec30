/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/err.h"

/* Threads that run one function together.  The thread that calls pool_run() is one of them, so
 * a pool of one has no thread of its own.  Only one thread may call pool_run(). */
struct pool;

enum { POOL_THREADS_MAX = 256 };

int pool_new(unsigned n_threads, struct pool **ret, struct err *err) MUST_CHECK;
void pool_free(struct pool *p);
DEFINE_FREEP(pool)
unsigned pool_size(const struct pool *p);

/* fn(userdata, i) on every thread i = 0 .. size - 1 (0 is the caller); returns when all have. */
void pool_run(struct pool *p, void (*fn)(void *userdata, unsigned thread), void *userdata);
/* Inside fn: wait until all threads are here. */
void pool_barrier(struct pool *p);
