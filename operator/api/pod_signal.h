/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a pod itself says through its metrics port.  A plain value: the scraper writes it,
 * planning and scaling read copies. */
enum load_phase {
    LOAD_UNKNOWN, /* nothing heard yet */
    LOAD_DOWNLOADING,
    LOAD_LOADING,
    LOAD_READY,
    LOAD_FAILED,
};

enum { LOAD_ERROR_BYTES = 256, GPU_UUID_BYTES = 96 };

/* A figure that a pod may not have; unknown is not 0. */
struct gpu_figure {
    bool known;
    double percent; /* 0..100, mean over the pod's GPUs */
};

struct pod_signal {
    enum load_phase phase;
    int64_t bytes_done, bytes_total; /* 0: not known */
    int percent;                     /* 0..100 */
    char error[LOAD_ERROR_BYTES];    /* of the failed start; "" if none */
    bool fresh;                      /* the sample below is young enough to act on */
    double waiting, running;         /* requests */
    double kv_usage;                 /* 0..1 */
    struct gpu_figure gpu_utilization, gpu_memory;
    int xid; /* the last error of one of its GPUs, 0: none; it stands until the process ends */
    char xid_gpu[GPU_UUID_BYTES];
    uint64_t sampled_wall_ms;
};

/* What the scaling side thinks of a service. */
enum { SCALE_REASON_BYTES = 200 };
struct scale_decision {
    int64_t desired;
    bool hold_down; /* something loads or is silent: nobody may scale down now */
    char reason[SCALE_REASON_BYTES];
};
