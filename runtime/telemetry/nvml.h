/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/* NVIDIA's management library, opened at run time: what we use of it, declared after its public
 * reference (NVML API Reference Guide, "Device Queries", "Event Handling Methods").  Structs and
 * numbers are its ABI and the same since driver 450.  Every function returns 0 or NVML's error
 * code, and may be called by any thread. */

struct nvml_device; /* a handle; NVML's own, valid until shutdown */
struct nvml_event_set;

struct nvml_utilization {
    unsigned gpu, memory; /* percent of the last period with a kernel running; with memory in use */
};
struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};
struct nvml_event {
    struct nvml_device *device;
    unsigned long long type, data; /* data: the Xid */
    unsigned gpu_instance, compute_instance;
};

enum {
    NVML_TIMEOUT = 10,
    NVML_UUID_BYTES = 96,
    NVML_SENSOR_GPU = 0,
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEMORY = 2,
    NVML_ECC_CORRECTED = 0,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0, /* since the driver was loaded */
    NVML_EVENT_XID = 8,
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int code);
    int (*count)(unsigned *ret);
    int (*handle)(unsigned index, struct nvml_device **ret);
    int (*uuid)(struct nvml_device *d, char *out, unsigned size);
    int (*utilization)(struct nvml_device *d, struct nvml_utilization *ret);
    int (*memory)(struct nvml_device *d, struct nvml_memory *ret);
    int (*power)(struct nvml_device *d, unsigned *ret_milliwatts);
    int (*temperature)(struct nvml_device *d, int sensor, unsigned *ret_celsius);
    int (*clock)(struct nvml_device *d, int which, unsigned *ret_mhz);
    int (*throttle_reasons)(struct nvml_device *d, unsigned long long *ret_bits);
    int (*ecc_errors)(struct nvml_device *d, int kind, int counter, unsigned long long *ret);
    int (*event_set)(struct nvml_event_set **ret);
    int (*event_set_free)(struct nvml_event_set *set);
    int (*event_register)(struct nvml_device *d, unsigned long long types,
                          struct nvml_event_set *set);
    int (*event_wait)(struct nvml_event_set *set, struct nvml_event *ret, unsigned timeout_ms);
};

/* Opens library and initialises it; nvml_close() afterwards.  ERR_NOT_FOUND: there is no such
 * library, or it lacks a function; ERR_UNAVAILABLE: it found no driver. */
int nvml_open(struct nvml *n, const char *library, struct err *err) MUST_CHECK;
void nvml_close(struct nvml *n);
