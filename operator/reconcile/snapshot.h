/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/arena.h"
#include "operator/reconcile/observed.h"
#include "operator/store/store.h"

/* References to all that a plan looks at, and the plain view of it.  One worker. */
struct snapshot {
    struct object *service;                   /* NULL: the service is gone */
    struct object_list children[CHILD_COUNT]; /* by kind; CHILD_REVISION: all revisions */
    struct object_list pods;
    struct observed seen;
    struct observed_pod *observed_pods; /* seen.pods, for whoever fills in the signals */
};

/* key "namespace/name"; the arrays live in mem.  Release it even after an error. */
int snapshot_take(struct store *s, const char *key, struct arena *mem, struct snapshot *ret,
                  struct err *err) MUST_CHECK;
void snapshot_release(struct snapshot *s);
