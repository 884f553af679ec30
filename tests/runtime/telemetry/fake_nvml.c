/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.c - a management library whose GPUs a test turns the knobs of.
 *
 * Built as a shared library and opened by its path, as the real one is by its name.
 */
#include "tests/runtime/telemetry/fake_nvml.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/telemetry/nvml.h"

enum { NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, GPUS_MAX = 8 };

struct nvml_device {
    int index;
};

static struct nvml_device devices[GPUS_MAX] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static struct fake_nvml knobs = {.gpus = 2};

struct fake_nvml *fake_nvml(void)
{
    return &knobs;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    if (knobs.init_code == 0)
        atomic_fetch_add(&knobs.open, 1);
    return knobs.init_code;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    atomic_fetch_sub(&knobs.open, 1);
    return 0;
}

const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
    return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "GPU is lost";
}

int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = (unsigned)knobs.gpus;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **ret)
{
    *ret = &devices[index];
    return knobs.lost >> index & 1 ? GPU_IS_LOST : 0;
}

int nvmlDeviceGetUUID(struct nvml_device *d, char *out, unsigned size);
int nvmlDeviceGetUUID(struct nvml_device *d, char *out, unsigned size)
{
    (void)snprintf(out, size, "GPU-%08d", d->index);
    return 0;
}

int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *ret);
int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *ret)
{
    while (knobs.hangs)
        (void)usleep(1000);
    ret->gpu = (unsigned)knobs.busy >> d->index;
    ret->memory = 25;
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *ret);
int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *ret)
{
    (void)d;
    *ret = (struct nvml_memory){.total = 80ull << 30, .free = 60ull << 30, .used = 20ull << 30};
    return 0;
}

int nvmlDeviceGetPowerUsage(struct nvml_device *d, unsigned *ret);
int nvmlDeviceGetPowerUsage(struct nvml_device *d, unsigned *ret)
{
    (void)d;
    *ret = 312500;
    return knobs.no_power ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetTemperature(struct nvml_device *d, int sensor, unsigned *ret);
int nvmlDeviceGetTemperature(struct nvml_device *d, int sensor, unsigned *ret)
{
    (void)d;
    *ret = 61;
    return sensor == NVML_SENSOR_GPU ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(struct nvml_device *d, int which, unsigned *ret);
int nvmlDeviceGetClockInfo(struct nvml_device *d, int which, unsigned *ret)
{
    (void)d;
    *ret = which == NVML_CLOCK_SM ? 1980 : 3201;
    return 0;
}

/* the name of drivers before 535 */
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *d, unsigned long long *ret);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *d, unsigned long long *ret)
{
    (void)d;
    *ret = knobs.throttle;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(struct nvml_device *d, int kind, int counter,
                                unsigned long long *ret);
int nvmlDeviceGetTotalEccErrors(struct nvml_device *d, int kind, int counter,
                                unsigned long long *ret)
{
    (void)d;
    (void)counter;
    *ret = kind == NVML_ECC_CORRECTED ? 7 : 1;
    return knobs.no_ecc ? NOT_SUPPORTED : 0;
}

int nvmlEventSetCreate(struct nvml_event_set **ret);
int nvmlEventSetCreate(struct nvml_event_set **ret)
{
    *ret = (struct nvml_event_set *)&knobs;
    return 0;
}

int nvmlEventSetFree(struct nvml_event_set *set);
int nvmlEventSetFree(struct nvml_event_set *set)
{
    (void)set;
    return 0;
}

int nvmlDeviceRegisterEvents(struct nvml_device *d, unsigned long long types,
                             struct nvml_event_set *set);
int nvmlDeviceRegisterEvents(struct nvml_device *d, unsigned long long types,
                             struct nvml_event_set *set)
{
    (void)d;
    (void)set;
    return types == NVML_EVENT_XID ? 0 : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *ret, unsigned timeout_ms);
int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *ret, unsigned timeout_ms)
{
    int xid = atomic_exchange(&knobs.xid, 0);

    (void)set;
    if (xid == 0) {
        (void)usleep(timeout_ms * 1000);
        return NVML_TIMEOUT;
    }
    *ret = (struct nvml_event){.device = &devices[knobs.xid_gpu],
                               .type = NVML_EVENT_XID,
                               .data = (unsigned long long)xid};
    return 0;
}
