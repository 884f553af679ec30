/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/arena.h"
#include "operator/reconcile/observed.h"
#include "operator/reconcile/status.h"

/* What to do about one service. */
struct plan_step {
    enum plan_verb { PLAN_APPLY, PLAN_DELETE } verb;
    enum child child;
    const char *name;
    cJSON *body;     /* PLAN_APPLY; owned by the plan */
    bool is_new;     /* PLAN_APPLY: nothing of ours has that name yet */
    const char *uid; /* PLAN_DELETE: precondition */
};

enum { PLAN_STEPS_MAX = 24 };

struct plan {
    struct plan_step steps[PLAN_STEPS_MAX]; /* in this order; stop at the first that fails */
    size_t n_steps;
    struct status status;
    uint64_t again_ms; /* look again after so long though nothing changed; 0: no need */
};

/* Pure: no I/O, no clock, no globals.  Same input, same plan; an empty plan when all is well.
 * spec is the decoded seen->service, refused the reason why it could not be decoded (or NULL).
 * The plan borrows from both and from mem. */
int plan_make(const struct inference_service *spec, const struct err *refused,
              const struct observed *seen, struct arena *mem, struct plan *ret,
              struct err *err) MUST_CHECK;
void plan_release(struct plan *p);
