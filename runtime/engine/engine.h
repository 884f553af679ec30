/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/model/model.h"
#include "runtime/request/inbox.h"
#include "runtime/telemetry/health.h"
#include "runtime/telemetry/runtime_metrics.h"

struct logger;

/* THE thread: takes requests from the inbox, plans a step, has the model compute it, publishes the
 * tokens; for ever.  Owns the model, the KV blocks and every sequence while it runs. */
struct engine;

struct engine_options {
    struct model *model; /* borrowed; nobody else calls it while the engine runs */
    struct inbox *inbox; /* borrowed */
    struct health *health;
    struct runtime_metrics *metrics; /* serving */
    struct logger *logger;
    uint32_t sequences_max;
    uint32_t tokens_max; /* a step */
    bool runs_ahead;     /* plan and submit a step before the one before it is collected */
    uint32_t n_blocks[PLAN_GROUPS_MAX];
};

/* Cuts the KV cache and starts the thread. */
int engine_start(const struct engine_options *o, struct engine **ret, struct err *err) MUST_CHECK;
/* End every request with FINISH_CANCELED, within one step. */
void engine_abort(struct engine *e);
/* 0 only when no request is left, in the engine or on its way to it.  Any thread. */
uint32_t engine_in_progress(const struct engine *e);
/* Why the device failed: of use once health says HEALTH_FAILED.  Any thread. */
const struct err *engine_failure(const struct engine *e);
/* The inbox must be closed.  Aborts what is left, joins the thread. */
void engine_free(struct engine *e);
DEFINE_FREEP(engine)
