/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "operator/store/store.h"

/* Read your writes: after a write the cache is behind for a moment, and a plan made from it would
 * write the same again.  A key is held back until the cache has seen what its last reconcile
 * wrote.  Any thread. */
struct barrier;

enum { BARRIER_PATIENCE_MS = 10000 }; /* then the cache is believed as it is */

int barrier_new(const struct clock *clock, struct barrier **ret, struct err *err) MUST_CHECK;
void barrier_free(struct barrier *b);
DEFINE_FREEP(barrier)

/* A write for key came back with this version of that kind. */
void barrier_expect(struct barrier *b, const char *key, unsigned kind, const char *version);
/* Has the cache caught up with all of it? */
bool barrier_is_open(struct barrier *b, const char *key, struct store *s);
void barrier_forget(struct barrier *b, const char *key);
