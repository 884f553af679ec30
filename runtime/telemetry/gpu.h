/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"

/* The GPUs that this process may use, watched through NVML: utilisation, memory, power,
 * temperature, clocks, throttling, ECC errors and Xids, as the penstock_gpu_ series of the table
 * in runtime_metrics.c.  Reading them costs a scrape nothing: two threads of its own ask NVML and
 * set the series.  A figure that a GPU does not have, or that could not be read for ten intervals,
 * has no series; it is never shown as 0. */
struct gpu;

struct gpu_options {
    const char *library;     /* NULL: libnvidia-ml.so.1 */
    struct metrics *metrics; /* must outlive the object */
    struct logger *logger;
    uint64_t interval_ms; /* between two samples; 0: a second */
};

/* ERR_NOT_FOUND, ERR_UNAVAILABLE: no NVML or no driver here. */
int gpu_start(const struct gpu_options *o, struct gpu **ret, struct err *err) MUST_CHECK;
/* An Xid that came since the start, in words: "GPU 1 (GPU-...): Xid 79"; false: none came, not even
 * within wait_ms from now.  Whoever sees a kernel fail asks, since both happen at about once. */
bool gpu_last_error(struct gpu *g, unsigned wait_ms, char *out, size_t size);
/* Returns within a few seconds even when the driver does not. */
void gpu_stop(struct gpu *g);
