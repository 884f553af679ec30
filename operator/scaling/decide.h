/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "operator/api/inference_service.h"
#include "operator/api/pod.h"

struct decide_pod {
    enum pod_state state;
    struct pod_signal signal;
};

/* How many replicas the queue asks for, and why.  Pure.
 *
 *   wanted   = the largest over the metrics of ceil(sum over fresh serving pods / target); a
 *              metric that no pod tells asks for nothing, and nothing goes down while one is
 * missing capacity = serving + loading: a pod on its way is not ordered twice up       at once; a
 * silent pod adds no load down     only when nothing loads and nothing is silent: silent is not
 * idle within 10 % of the target nothing moves, as in the HPA that acts on the same figures */
void decide(const struct inference_service *s, const struct decide_pod *pods, size_t n,
            struct scale_decision *ret);
