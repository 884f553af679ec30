/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "operator/api/pod_signal.h"

/* An InferenceService as a struct.  The schema in crds/ refuses most mistakes at the door; the
 * decoder checks again, because a stored object may be older than the schema. */

enum model_source { SOURCE_HTTPS, SOURCE_HF, SOURCE_PVC };

enum { UNSET = -1 }; /* a number the user did not give; defaults are children.c's */

struct probe_spec { /* UNSET where not given; seconds, counts */
    int64_t initial_delay, period, timeout, failures, successes;
};

enum scale_metric {
    SCALE_QUEUE_LENGTH,
    SCALE_REQUESTS,
    SCALE_GPU_UTILIZATION,
    SCALE_GPU_MEMORY,
    SCALE_METRIC_COUNT,
};
enum { SCALING_METRICS_MAX = SCALE_METRIC_COUNT, ARGS_MAX = 64 };

struct scaling_target {
    enum scale_metric metric;
    double target; /* per serving pod: requests, or percent */
};

struct inference_service {
    /* metadata */
    const char *name, *namespace, *uid;
    int64_t generation;
    bool deleting;
    const char *refresh; /* annotation that asks for a new template; NULL: none */

    int64_t replicas;

    struct {
        const char *source;
        enum model_source kind;
        const char *claim, *path; /* pvc://claim/path; path without a leading slash */
        const char *revision;     /* NULL: the source's own default */
        const char *served_name;  /* default: metadata.name */
        const char *secret;       /* NULL: none */
        const char *cache_claim;  /* NULL: an emptyDir */
        int64_t max_length;
    } model;
    struct {
        const char *image;        /* NULL: the operator's default for the device */
        const char *device;       /* NULL: auto */
        const char *gpu_resource; /* NULL: GPU_RESOURCE */
        int64_t tensor;           /* ranks of tensor parallelism */
        int64_t max_sequences, max_batch_tokens;
        int64_t queue_requests, queue_tokens;
        const char *kv_memory; /* quantity text; NULL */
        double kv_memory_bytes;
        const cJSON *args; /* list of strings; NULL */
    } runtime;
    const cJSON *resources; /* {requests, limits}; NULL */
    struct {
        bool enabled;
        int64_t min, max;
        int64_t scale_down_after; /* seconds */
        struct scaling_target targets[SCALING_METRICS_MAX];
        size_t n_targets; /* 0: the default pair */
    } scaling;
    int64_t drain_timeout; /* seconds */
    struct probe_spec startup, readiness, liveness;
    int64_t startup_budget;    /* seconds, probes.startup.timeout */
    const cJSON *pod_template; /* NULL */

    const cJSON *spec; /* the whole, borrowed */
};

/* Decode cr into ret; texts are borrowed from cr or live in mem.  ERR_INVALID names the field. */
int inference_service_decode(const cJSON *cr, struct arena *mem, struct inference_service *ret,
                             struct err *err) MUST_CHECK;

/* The targets that hold: the user's, or the default pair.  Returns their number. */
size_t inference_service_targets(const struct inference_service *s,
                                 struct scaling_target ret[SCALING_METRICS_MAX]);
int64_t inference_service_max_sequences(const struct inference_service *s);
/* GPUs of one replica, 0 without; and the resource they are asked for as. */
int64_t inference_service_gpus(const struct inference_service *s);
const char *inference_service_gpu_resource(const struct inference_service *s);

const char *scale_metric_name(enum scale_metric m); /* "queueLength", "gpuMemory" */
/* -1: unknown */
int scale_metric_parse(const char *name, enum scale_metric *ret);
bool scale_metric_is_gpu(enum scale_metric m);
/* What a pod says of it; false: nothing. */
bool scale_metric_value(enum scale_metric m, const struct pod_signal *signal, double *ret);
