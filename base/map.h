/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

/* A table from strings to pointers.  Keys are copied, values belong to the caller.  The hash is
 * seeded at random, so names chosen by strangers cannot pile up in one place.  One thread, or the
 * owner's lock. */
struct map;

int map_new(struct map **ret, struct err *err) MUST_CHECK;
void map_free(struct map *m); /* the values stay the caller's */
DEFINE_FREEP(map)

void *map_get(const struct map *m, const char *key); /* NULL: none */
/* Puts or replaces; value is not NULL. */
int map_put(struct map *m, const char *key, void *value, struct err *err) MUST_CHECK;
void *map_remove(struct map *m, const char *key); /* the value, NULL: none */
size_t map_count(const struct map *m);

/* Walk over all entries, in no order; start with *iter = 0.  The map must not change meanwhile. */
bool map_next(const struct map *m, size_t *iter, const char **ret_key, void **ret_value);
