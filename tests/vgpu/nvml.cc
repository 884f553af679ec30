/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.cc - NVML's twin, libnvidia-ml.so.1 for dlopen(): says what a text file says.
 *
 * The file named in VGPU_NVML is read again at each call, so a test changes figures by replacing
 * it (write another, rename it).  One "KEY VALUE" a line, '#' starts a comment:
 *   driver 580.65.06      "none": nvmlInit finds no driver
 *   gpus 2
 *   0.utilization 37      of GPU 0: also memory_utilization, memory_total, memory_used (bytes),
 *                         power (mW), temperature, sm_clock, memory_clock (MHz), throttle (bits),
 *                         ecc_corrected, ecc_uncorrected, uuid, name; "none": not supported
 *   0.lost 1              the GPU is lost: each call on it says so
 *   xid 0 79              GPU 0 had Xid 79; the order of these lines is that of the events
 * What is not said has the default below.  Without VGPU_NVML there are VGPU_DEVICES idle GPUs.
 *
 * An event set tells of the Xids that came after it was made.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

enum nvmlReturn_t {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15
};

struct nvmlUtilization_t {
    unsigned gpu, memory;
};

struct nvmlMemory_t {
    unsigned long long total, free, used;
};

struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

struct nvmlDevice_st {
    unsigned index;
};

struct nvmlEventData_t {
    nvmlDevice_st *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvmlEventSet_st {
    std::set<unsigned> gpus;
    size_t n_seen;
};

namespace
{
constexpr unsigned GPUS_MAX = 16, POLL_US = 10000;
constexpr unsigned long long EVENT_XID = 8;

nvmlDevice_st devices[GPUS_MAX];
std::mutex lock; /* of n_inits */
int n_inits;

struct script {
    std::map<std::string, std::string> values;
    std::vector<std::pair<unsigned, unsigned long long>> xids;

    std::string text(const std::string &key, const std::string &standard) const
    {
        auto found = values.find(key);
        return found == values.end() ? standard : found->second;
    }
    unsigned gpus() const
    {
        const char *devices_made = getenv("VGPU_DEVICES");
        unsigned long n =
                strtoul(text("gpus", devices_made ? devices_made : "1").c_str(), nullptr, 10);
        return n < GPUS_MAX ? unsigned(n) : GPUS_MAX;
    }
};

script read_script()
{
    script s;
    const char *path = getenv("VGPU_NVML");
    std::ifstream file(path ? path : "/dev/null");
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string key, value;
        unsigned long long code;
        unsigned gpu;
        if (!(words >> key))
            continue;
        if (key == "xid" && words >> gpu >> code)
            s.xids.emplace_back(gpu, code);
        else if (std::getline(words >> std::ws, value))
            s.values[key] = value;
    }
    return s;
}

/* One figure of a GPU as a number. */
nvmlReturn_t figure(const nvmlDevice_st *d, const char *name, unsigned long long standard,
                    unsigned long long *ret)
{
    if (!d || !ret)
        return NVML_ERROR_INVALID_ARGUMENT;
    script s = read_script();
    std::string prefix = std::to_string(d->index) + ".";
    std::string text = s.text(prefix + name, std::to_string(standard));
    if (n_inits == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (s.text(prefix + "lost", "0") != "0")
        return NVML_ERROR_GPU_IS_LOST;
    if (text == "none")
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = strtoull(text.c_str(), nullptr, 10);
    return NVML_SUCCESS;
}

nvmlReturn_t small_figure(const nvmlDevice_st *d, const char *name, unsigned standard,
                          unsigned *ret)
{
    unsigned long long value = 0;
    nvmlReturn_t r = figure(d, name, standard, &value);
    if (r == NVML_SUCCESS)
        *ret = unsigned(value);
    return r;
}

nvmlReturn_t copy_text(const std::string &text, char *out, unsigned size)
{
    if (text.size() + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text.c_str(), text.size() + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t device_text(const nvmlDevice_st *d, const char *name, const std::string &standard,
                         char *out, unsigned size)
{
    unsigned long long ignored;
    nvmlReturn_t r = figure(d, "is_there", 1, &ignored);
    if (r)
        return r;
    return copy_text(read_script().text(std::to_string(d->index) + "." + name, standard), out,
                     size);
}
} // namespace

extern "C" {
nvmlReturn_t nvmlInit_v2(void)
{
    std::lock_guard<std::mutex> hold(lock);
    if (read_script().text("driver", "580.65.06") == "none")
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (unsigned i = 0; i < GPUS_MAX; i++)
        devices[i].index = i;
    n_inits++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    std::lock_guard<std::mutex> hold(lock);
    if (n_inits == 0)
        return NVML_ERROR_UNINITIALIZED;
    n_inits--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case NVML_SUCCESS:
        return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    return copy_text(read_script().text("driver", "580.65.06"), out, size);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = read_script().gpus();
    return n_inits ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_st **ret)
{
    unsigned long long ignored;
    if (index >= read_script().gpus())
        return NVML_ERROR_INVALID_ARGUMENT;
    *ret = &devices[index];
    return figure(*ret, "is_there", 1, &ignored);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_st *d, char *out, unsigned size)
{
    std::string index = d ? std::to_string(d->index) : "";
    return device_text(d, "uuid", "GPU-00000000-0000-0000-0000-00000000000" + index, out, size);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_st *d, char *out, unsigned size)
{
    return device_text(d, "name", "Penstock virtual GPU", out, size);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_st *d, nvmlPciInfo_t *ret)
{
    unsigned long long bus;
    nvmlReturn_t r = figure(d, "bus", d ? d->index + 1 : 0, &bus);
    if (r)
        return r;
    *ret = {};
    ret->bus = unsigned(bus);
    snprintf(ret->busId, sizeof(ret->busId), "00000000:%02X:00.0", ret->bus);
    snprintf(ret->busIdLegacy, sizeof(ret->busIdLegacy), "0000:%02X:00.0", ret->bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_st *d, nvmlUtilization_t *ret)
{
    nvmlReturn_t r = small_figure(d, "utilization", 0, &ret->gpu);
    return r ? r : small_figure(d, "memory_utilization", 0, &ret->memory);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_st *d, nvmlMemory_t *ret)
{
    nvmlReturn_t r = figure(d, "memory_total", 512ull << 20, &ret->total);
    if (r == NVML_SUCCESS)
        r = figure(d, "memory_used", 0, &ret->used);
    if (r == NVML_SUCCESS)
        ret->free = ret->total - ret->used;
    return r;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_st *d, unsigned *ret)
{
    return small_figure(d, "power", 70000, ret);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_st *d, int sensor, unsigned *ret)
{
    return sensor == 0 ? small_figure(d, "temperature", 35, ret) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_st *d, int which, unsigned *ret)
{
    if (which != 1 && which != 2)
        return NVML_ERROR_NOT_SUPPORTED;
    return which == 1 ? small_figure(d, "sm_clock", 1980, ret)
                      : small_figure(d, "memory_clock", 2619, ret);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_st *d, unsigned long long *ret)
{
    return figure(d, "throttle", 1, ret); /* idle */
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st *d, unsigned long long *ret)
{
    return figure(d, "throttle", 1, ret);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_st *d, int kind, int, unsigned long long *ret)
{
    return figure(d, kind == 0 ? "ecc_corrected" : "ecc_uncorrected", 0, ret);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_st **ret)
{
    *ret = new nvmlEventSet_st{{}, read_script().xids.size()};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_st *set)
{
    delete set;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_st *d, unsigned long long types,
                                      nvmlEventSet_st *set)
{
    unsigned long long ignored;
    nvmlReturn_t r = figure(d, "is_there", 1, &ignored);
    if (r == NVML_SUCCESS && types != EVENT_XID)
        r = NVML_ERROR_NOT_SUPPORTED;
    if (r == NVML_SUCCESS)
        set->gpus.insert(d->index);
    return r;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_st *set, nvmlEventData_t *ret, unsigned timeout_ms)
{
    for (unsigned long waited = 0;; waited += POLL_US) {
        script s = read_script();
        while (set->n_seen < s.xids.size()) {
            auto [gpu, code] = s.xids[set->n_seen++];
            if (!set->gpus.count(gpu))
                continue;
            *ret = {&devices[gpu], EVENT_XID, code, 0xffffffffu, 0xffffffffu};
            return NVML_SUCCESS;
        }
        if (waited >= timeout_ms * 1000ul)
            return NVML_ERROR_TIMEOUT;
        usleep(POLL_US);
    }
}
}
