/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/telemetry/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct function {
    const char *name, *former; /* former: its name in older drivers; NULL: none */
    size_t offset;
};

#define AT(member) offsetof(struct nvml, member)

static const struct function functions[] = {
        {"nvmlInit_v2", NULL, AT(init)},
        {"nvmlShutdown", NULL, AT(shutdown)},
        {"nvmlErrorString", NULL, AT(error_string)},
        {"nvmlDeviceGetCount_v2", NULL, AT(count)},
        {"nvmlDeviceGetHandleByIndex_v2", NULL, AT(handle)},
        {"nvmlDeviceGetUUID", NULL, AT(uuid)},
        {"nvmlDeviceGetUtilizationRates", NULL, AT(utilization)},
        {"nvmlDeviceGetMemoryInfo", NULL, AT(memory)},
        {"nvmlDeviceGetPowerUsage", NULL, AT(power)},
        {"nvmlDeviceGetTemperature", NULL, AT(temperature)},
        {"nvmlDeviceGetClockInfo", NULL, AT(clock)},
        {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
         AT(throttle_reasons)},
        {"nvmlDeviceGetTotalEccErrors", NULL, AT(ecc_errors)},
        {"nvmlEventSetCreate", NULL, AT(event_set)},
        {"nvmlEventSetFree", NULL, AT(event_set_free)},
        {"nvmlDeviceRegisterEvents", NULL, AT(event_register)},
        {"nvmlEventSetWait_v2", "nvmlEventSetWait", AT(event_wait)},
};

static int resolve(struct nvml *n, const char *library, struct err *err)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const struct function *f = &functions[i];
        void *address = dlsym(n->library, f->name);

        if (!address && f->former)
            address = dlsym(n->library, f->former);
        if (!address)
            return err_set(err, ERR_NOT_FOUND, "'%s' has no function %s; the driver is too old",
                           library, f->name);
        /* POSIX: a function's address fits into a data pointer; C has no cast for it. */
        memcpy((char *)n + f->offset, &address, sizeof(address));
    }
    return 0;
}

int nvml_open(struct nvml *n, const char *library, struct err *err)
{
    int r;

    *n = (struct nvml){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!n->library)
        return err_set(err, ERR_NOT_FOUND, "cannot open '%s': %s", library, dlerror());
    r = resolve(n, library, err);
    if (r == 0) {
        int code = n->init();

        if (code)
            r = err_set(err, ERR_UNAVAILABLE, "NVML: %s", n->error_string(code));
    }
    if (r) {
        (void)dlclose(n->library);
        *n = (struct nvml){0};
    }
    return r;
}

void nvml_close(struct nvml *n)
{
    if (!n->library)
        return;
    (void)n->shutdown();
    (void)dlclose(n->library);
    *n = (struct nvml){0};
}
