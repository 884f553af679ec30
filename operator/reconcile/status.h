/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/arena.h"
#include "operator/reconcile/observed.h"

/* What happened, for an Event; texts borrowed from the arena. */
struct status_event {
    bool warning;
    const char *reason, *action, *note;
};
enum { STATUS_EVENTS_MAX = 8 };

/* The status a service should show.  Pure. */
struct status {
    char *body; /* for apply on /status; in mem; NULL: what is there says it all already */
    struct status_event events[STATUS_EVENTS_MAX]; /* true once body was written */
    size_t n_events;
    int scaled; /* the wanted replicas changed: 1 up, -1 down */
};

/* spec may be half decoded when refused is set: then only that is told. */
int status_make(const struct inference_service *spec, const struct err *refused,
                const struct observed *seen, const char *spec_digest, bool upgrade_available,
                struct arena *mem, struct status *ret, struct err *err) MUST_CHECK;
