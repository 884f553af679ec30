/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "operator/api/condition.h"
#include "operator/api/inference_service.h"
#include "operator/api/pod_signal.h"
#include "operator/reconcile/children.h"
#include "operator/reconcile/template.h"

/* All that planning one service may look at.  Borrowed trees, plain values: the same observed
 * always gives the same plan. */

struct observed_pod {
    const cJSON *pod;
    struct pod_signal signal;
};

/* Whether this operator's metrics API stands behind custom.metrics.k8s.io. */
enum metrics_api_state { METRICS_API_STARTING, METRICS_API_SERVING, METRICS_API_CONFLICT };

struct observed {
    const cJSON *service;               /* the InferenceService, with its old status */
    const cJSON *children[CHILD_COUNT]; /* live, NULL: none; CHILD_REVISION unused */
    const cJSON **revisions;            /* every ControllerRevision of the service */
    size_t n_revisions;
    const struct observed_pod *pods;
    size_t n_pods;
    unsigned foreign; /* bit per enum child: an object of that name exists that is not ours */

    struct scale_decision decision;
    enum metrics_api_state metrics_api;
    char metrics_api_owner[300]; /* METRICS_API_CONFLICT: who has it */

    /* The last write that was refused, in words; "" if none. */
    char trouble_reason[CONDITION_REASON_BYTES];
    char trouble[400];

    const struct template_defaults *defaults;
    uint64_t now_wall_ms;
};

/* The object's controller is this service. */
bool observed_is_ours(const cJSON *object, const char *service_uid);
