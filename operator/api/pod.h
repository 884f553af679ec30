/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/json.h"
#include "operator/api/condition.h"
#include "operator/api/pod_signal.h"

/* Where one pod of a service stands, from what Kubernetes says of it and what it says itself. */
enum pod_state {
    POD_GONE,    /* finished, or evicted: not ours to count */
    POD_LEAVING, /* being deleted: serves what it has, is no capacity */
    POD_FAILING, /* will not serve without a change or another try */
    POD_LOADING, /* on its way: capacity to come */
    POD_SERVING,
};

/* What is wrong, in words a person can act on; reason "" when nothing is. */
struct pod_cause {
    char reason[CONDITION_REASON_BYTES];
    char message[CONDITION_MESSAGE_BYTES];
};

/* signal may be NULL. cause may be NULL; it can be set for a pod that is loading, too (its last
 * try failed).  The text does not change while the cause does not: no back-off seconds, no counts.
 */
enum pod_state pod_state_of(const cJSON *pod, const struct pod_signal *signal,
                            struct pod_cause *cause);
/* A condition of a pod, such as Ready, is True. */
bool pod_condition_is_true(const cJSON *pod, const char *type);
