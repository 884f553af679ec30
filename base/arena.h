/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Memory with one lifetime: taken piece by piece, given back at once.  One thread.
 * Under AddressSanitizer each piece is a heap block of its own, so overruns are seen. */
struct arena;

/* bytes_max bounds the sum of all pieces; over it arena_alloc() returns NULL. */
int arena_new(size_t bytes_max, struct arena **ret, struct err *err) MUST_CHECK;
void arena_free(struct arena *a);
DEFINE_FREEP(arena)
void arena_reset(struct arena *a);

void *arena_alloc(struct arena *a, size_t size); /* zeroed, 16-byte aligned; NULL: out of memory */
void *arena_calloc(struct arena *a, size_t n, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used(const struct arena *a);
