/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "operator/scaling/front_proxy.h"
#include "operator/scaling/signals.h"
#include "operator/store/store.h"

/* custom.metrics.k8s.io/v1beta2 over TLS, on every replica: what the autoscaler reads.  Metrics
 * queueLength, requests, gpuUtilization and gpuMemory of pods (the last two in percent, the mean of
 * a pod's GPUs); a pod that loads, is silent or does not know is left out, never 0. */
struct metrics_api;

struct metrics_api_options {
    const char *address; /* "0.0.0.0", "::" */
    uint16_t port;
    const char *cert_pem, *key_pem; /* only read by metrics_api_start() */
    struct store *store;
    struct signals *signals;
    struct front_proxy *front_proxy;
    const struct clock *clock;
    struct logger *lg;
};

int metrics_api_start(const struct metrics_api_options *o, struct metrics_api **ret,
                      struct err *err) MUST_CHECK;
int metrics_api_set_cert(struct metrics_api *m, const char *cert_pem, const char *key_pem,
                         struct err *err) MUST_CHECK;
uint16_t metrics_api_port(const struct metrics_api *m);
void metrics_api_stop(struct metrics_api *m);
