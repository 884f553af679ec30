/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/err.h"
#include "base/metrics.h"
#include "operator/queue/workqueue.h"
#include "operator/store/store.h"

/* The operator's metrics, under the names that controller dashboards know, and what is ours.
 * Updates are atomic; any thread. */
struct telemetry;

extern const struct metric_desc TELEMETRY[];
extern const size_t TELEMETRY_COUNT;
/* Rows a service has one line each of; made from the cache when somebody asks. */
extern const struct metric_desc TELEMETRY_OF_SERVICE[];
extern const size_t TELEMETRY_OF_SERVICE_COUNT;

int telemetry_new(struct telemetry **ret, struct err *err) MUST_CHECK;
void telemetry_free(struct telemetry *t);
DEFINE_FREEP(telemetry)

/* result: "success", "error", "requeue", "gone" */
void telemetry_reconciled(struct telemetry *t, const char *result, double seconds);
void telemetry_answer(struct telemetry *t, const char *method, int status);
void telemetry_scaled(struct telemetry *t, bool up);
void telemetry_leader(struct telemetry *t, bool leads);
/* Figures that others keep are copied when somebody asks. */
void telemetry_render(struct telemetry *t, struct workqueue *q, struct store *s, struct str *out);
