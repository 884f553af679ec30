/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "operator/queue/workqueue.h"
#include "operator/store/store.h"
#include "operator/telemetry.h"

/* /healthz, /readyz and /metrics on their own port and thread.
 *   /healthz  the process works: its loop and its workers moved lately.  Not the API server's
 *             health: restarting us would not mend that.
 *   /readyz   every watched kind was listed once. */
struct health;

struct health_options {
    const char *address;
    uint16_t port;
    struct store *store;
    struct workqueue *queue;
    struct telemetry *telemetry;
    const struct clock *clock;
};

int health_start(const struct health_options *o, struct health **ret, struct err *err) MUST_CHECK;
void health_beat(struct health *h); /* the loop is alive */
void health_stop(struct health *h);
