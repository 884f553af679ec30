/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What the health endpoints say, in atomics: written by whoever knows, read by the health server's
 * own thread, which therefore answers in microseconds whatever the engine is doing. */

enum health_phase {
    HEALTH_STARTING,
    HEALTH_DOWNLOADING,
    HEALTH_LOADING,
    HEALTH_READY,
    HEALTH_DRAINING,
    HEALTH_FAILED,
    HEALTH_PHASE_COUNT,
};

const char *health_phase_name(enum health_phase p);

struct health {
    atomic_int phase;
    atomic_ullong bytes_done, bytes_total; /* of the download, then of the load */
    atomic_ullong step_started_ns;         /* the step under way, monotonic; 0: none */
    atomic_ullong hang_limit_ns;           /* a step longer than this: the engine hangs */
};

void health_init(struct health *h, uint64_t hang_limit_ns);
void health_set_phase(struct health *h, enum health_phase p);
enum health_phase health_phase(const struct health *h);
void health_set_progress(struct health *h, uint64_t done, uint64_t total);
/* Around each step of the engine. */
void health_step_begin(struct health *h, uint64_t now_ns);
void health_step_end(struct health *h);
/* The process works: false when failed, or when a step has run for longer than the limit. */
bool health_is_alive(const struct health *h, uint64_t now_ns);
