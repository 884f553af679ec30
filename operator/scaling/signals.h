/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "operator/api/pod_signal.h"

/* The last word of every pod, by uid.  The scraper writes, everybody reads; any thread. */
struct signals;

/* A sample older than stale_ms is not fresh: its pod is silent, which is not the same as idle. */
int signals_new(const struct clock *clock, uint64_t stale_ms, struct signals **ret,
                struct err *err) MUST_CHECK;
void signals_free(struct signals *s);
DEFINE_FREEP(signals)

/* What /startupz said.  ERR_INVALID: it is not what the runtime writes. */
int signals_startup(struct signals *s, const char *uid, const char *json, size_t len,
                    struct err *err) MUST_CHECK;
/* What /metrics said.  A pod that answers it with all figures is ready. */
int signals_sample(struct signals *s, const char *uid, const char *text, size_t len,
                   struct err *err) MUST_CHECK;
void signals_forget(struct signals *s, const char *uid);

/* All zero with LOAD_UNKNOWN when nothing was heard. */
void signals_get(struct signals *s, const char *uid, struct pod_signal *ret);
/* Did anything change that a status shows (phase, step of progress, freshness, errors) since the
 * last call for this pod? */
bool signals_changed(struct signals *s, const char *uid);
