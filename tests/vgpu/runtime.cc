/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.cc - the runtime API but for streams: devices, memory, launches, errors, and the faults
 * that a test asks for.
 *
 * Every entry point is a body inside api(), which keeps the order of the real runtime's answers:
 * no driver, no device, a broken device (an error that stays until the process ends), a forbidden
 * call during capture, then the call's own.  Two things are the test's: the n-th call can be made
 * to fail, and a call that gives something back (cudaFree, ...) does so even then, for the real
 * one's error is that of earlier asynchronous work.  Codes that break a context on a real GPU
 * break the device here too.
 *
 * State lives in one struct that is never freed: stream threads may outlive main().
 */
#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <unistd.h>

#include "device.h"
#include "stream.h"
#include "vgpu.h"

namespace vgpu
{
namespace
{
constexpr size_t SHARED_STANDARD = 48 << 10;
constexpr int RUNTIME_VERSION = CUDART_VERSION;

struct runtime {
    std::mutex lock;
    /* settings */
    size_t memory_bytes;
    int n_sms, compute_capability, driver;
    std::string order, hang;
    uint64_t seed;
    int fail_code, fault_code;
    uint64_t fail_call, fail_malloc, fault_launch; /* absolute counts, 0: none */
    /* counts */
    uint64_t n_calls, n_mallocs, n_runs;
    counters all;
    /* state */
    cudaError_t broken[DEVICES_MAX];
    std::map<const unsigned char *, size_t> allocations[DEVICES_MAX], pinned;
    size_t used[DEVICES_MAX];
    std::map<std::pair<const void *, int>, int> shared_allowed; /* kernel, device */
};

thread_local int device_of_thread;
thread_local cudaError_t last_error;

uint64_t number(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    if (!text)
        return standard;
    char *end = nullptr;
    uint64_t value = strtoull(text, &end, 10);
    if (*end == 'K' || *end == 'M' || *end == 'G')
        value <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
    else if (end == text || *end)
        fail("%s: '%s' is no number", name, text);
    return value;
}

std::string word(const char *name, const char *standard)
{
    const char *text = getenv(name);
    return text ? text : standard;
}

runtime &rt()
{
    static runtime *one = [] {
        auto r = new runtime();
        r->memory_bytes = number("VGPU_MEMORY", 512 << 20);
        r->n_sms = int(number("VGPU_SMS", 4));
        r->compute_capability = int(number("VGPU_CC", 90));
        r->driver = int(number("VGPU_DRIVER", RUNTIME_VERSION));
        r->order = word("VGPU_ORDER", "mixed");
        r->hang = word("VGPU_HANG_KERNEL", "");
        r->seed = number("VGPU_SEED", 1);
        r->fail_code = int(number("VGPU_FAIL_CODE", cudaErrorUnknown));
        r->fault_code = int(number("VGPU_FAIL_CODE", cudaErrorLaunchFailure));
        r->fail_call = number("VGPU_FAIL_CALL", 0);
        r->fail_malloc = number("VGPU_FAIL_MALLOC", 0);
        r->fault_launch = number("VGPU_FAULT_LAUNCH", 0);
        return r;
    }();
    return *one;
}

bool breaks_context(cudaError_t e)
{
    return e == cudaErrorIllegalAddress || e == cudaErrorLaunchTimeout || e == cudaErrorAssert ||
           e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable ||
           (e >= cudaErrorHardwareStackError && e <= cudaErrorLaunchFailure);
}

/* The error that the call meets before its own work, if any; 'earlier': it tells of other work
 * than the call's own. */
cudaError_t refused(unsigned kind, bool *ret_earlier)
{
    runtime &r = rt();
    {
        std::lock_guard<std::mutex> hold(r.lock);
        *ret_earlier = ++r.n_calls == r.fail_call;
    }
    if (*ret_earlier) {
        auto code = cudaError_t(r.fail_code);
        if (breaks_context(code) && n_devices())
            break_device(device_of_thread, code);
        return code;
    }
    if (kind & NO_DEVICE)
        return cudaSuccess;
    if (r.driver / 1000 < RUNTIME_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    if (n_devices() == 0)
        return cudaErrorNoDevice;
    *ret_earlier = device_error(device_of_thread) != cudaSuccess;
    if (*ret_earlier)
        return device_error(device_of_thread);
    if ((kind & UNSAFE) && !capture_allows_unsafe())
        return cudaErrorStreamCaptureUnsupported;
    return cudaSuccess;
}

bool contains(const std::map<const unsigned char *, size_t> &pieces, const void *p, size_t size)
{
    auto at = static_cast<const unsigned char *>(p);
    auto piece = pieces.upper_bound(at);
    if (piece == pieces.begin())
        return false;
    --piece;
    size_t offset = size_t(at - piece->first);
    return offset <= piece->second && size <= piece->second - offset;
}

int shared_optin()
{
    int cc = rt().compute_capability;
    return (cc == 80 || cc == 87 ? 163 : cc == 86 || cc == 89 ? 99 : 227) << 10;
}

/* Bytes of shared memory that a launch of the kernel may ask for on this thread's device. */
int shared_most(const void *kernel)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    auto allowed = rt().shared_allowed.find({kernel, device_of_thread});
    return allowed == rt().shared_allowed.end() ? int(SHARED_STANDARD) : allowed->second;
}

cudaError_t check_shape(const cudaLaunchConfig_t *c, void (*kernel)())
{
    uint64_t threads = uint64_t(c->blockDim.x) * c->blockDim.y * c->blockDim.z;
    uint64_t blocks = uint64_t(c->gridDim.x) * c->gridDim.y * c->gridDim.z;
    if (!kernel)
        return cudaErrorInvalidDeviceFunction;
    if (c->numAttrs)
        return cudaErrorNotSupported;
    if (!threads || threads > 1024 || c->blockDim.x > 1024 || c->blockDim.y > 1024 ||
        c->blockDim.z > 64 || !blocks || c->gridDim.x > 0x7fffffff || c->gridDim.y > 65535 ||
        c->gridDim.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (blocks > UINT32_MAX) /* allowed, but nobody would wait for it here */
        return cudaErrorInvalidConfiguration;
    size_t most = size_t(shared_most(reinterpret_cast<const void *>(kernel)));
    return c->dynamicSmemBytes > most ? cudaErrorInvalidValue : cudaSuccess;
}

order order_of(const std::string &name, uint64_t n)
{
    if (name == "forward" || (name == "mixed" && n % 3 == 0))
        return order::forward;
    if (name == "reverse" || (name == "mixed" && n % 3 == 1))
        return order::reverse;
    if (name == "shuffled" || name == "mixed")
        return order::shuffled;
    fail("'%s' is no order of threads", name.c_str());
}
} // namespace

cudaError_t api(unsigned kind, const std::function<cudaError_t()> &body)
{
    bool earlier = false;
    cudaError_t error = refused(kind, &earlier);
    if (error == cudaSuccess)
        error = body();
    else if (earlier && (kind & RELEASES))
        body();
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

int current_device()
{
    return device_of_thread;
}

cudaError_t device_error(int device)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    return rt().broken[device];
}

void break_device(int device, cudaError_t error)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    if (!rt().broken[device])
        rt().broken[device] = error;
}

void count(uint64_t counters::*which, int by)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().all.*which += uint64_t(int64_t(by));
}

uint64_t seed()
{
    std::lock_guard<std::mutex> hold(rt().lock);
    return rt().seed;
}

void run_kernel(int device, kernel_call &call)
{
    runtime &r = rt();
    auto hangs = [&] {
        std::lock_guard<std::mutex> hold(r.lock);
        return !r.hang.empty() && strstr(call.name, r.hang.c_str());
    };
    while (hangs() && !device_error(device))
        usleep(1000);
    bool faults;
    {
        std::lock_guard<std::mutex> hold(r.lock);
        faults = ++r.n_runs == r.fault_launch;
        r.all.n_launches++;
        call.in_order = order_of(r.order, r.n_runs);
        call.seed = mix(r.seed ^ r.n_runs << 20);
    }
    if (faults)
        break_device(device, cudaError_t(r.fault_code));
    if (!device_error(device))
        device_run(device, call);
}

cudaError_t launch(const cudaLaunchConfig_t *config, void (*kernel)(), entry_fn entry,
                   const void *args, size_t size)
{
    return api(PLAIN, [=] {
        cudaError_t error = check_shape(config, kernel);
        if (error)
            return error;
        auto call = std::make_shared<kernel_call>();
        call->kernel = kernel;
        call->entry = entry;
        snprintf(call->name, sizeof(call->name), "%s", kernel_name(kernel).c_str());
        call->grid = config->gridDim;
        call->block = config->blockDim;
        call->shared_bytes = config->dynamicSmemBytes;
        memcpy(call->args, args, size);
        int device = device_of_thread;
        if (config->stream && vgpu_stream_device(config->stream) != device)
            return cudaErrorInvalidResourceHandle;
        return submit(config->stream, [=] { run_kernel(device, *call); });
    });
}

bool in_allocation(int device, const void *p, size_t size)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    return contains(rt().allocations[device], p, size);
}

bool is_pinned(const void *p, size_t size)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    return contains(rt().pinned, p, size);
}
} // namespace vgpu

using namespace vgpu;

extern "C" cudaError_t cudaGetDeviceCount(int *ret)
{
    return api(NO_DEVICE, [=] {
        *ret = n_devices();
        if (rt().driver / 1000 < RUNTIME_VERSION / 1000)
            return cudaErrorInsufficientDriver;
        return n_devices() ? cudaSuccess : cudaErrorNoDevice;
    });
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    return api(NO_DEVICE, [=] {
        if (device < 0 || device >= n_devices())
            return n_devices() ? cudaErrorInvalidDevice : cudaErrorNoDevice;
        device_of_thread = device;
        return device_error(device);
    });
}

extern "C" cudaError_t cudaGetDevice(int *ret)
{
    return api(PLAIN, [=] {
        *ret = device_of_thread;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    return api(PLAIN, [=] {
        const runtime &r = rt();
        if (device < 0 || device >= n_devices())
            return cudaErrorInvalidDevice;
        *p = cudaDeviceProp();
        snprintf(p->name, sizeof(p->name), "Penstock virtual GPU");
        memset(p->uuid.bytes, 0x11 * device, sizeof(p->uuid.bytes));
        p->totalGlobalMem = r.memory_bytes;
        p->sharedMemPerBlock = SHARED_STANDARD;
        p->sharedMemPerBlockOptin = size_t(shared_optin());
        p->sharedMemPerMultiprocessor = size_t(shared_optin()) + 1024;
        p->reservedSharedMemPerBlock = 1024;
        p->regsPerBlock = p->regsPerMultiprocessor = 65536;
        p->warpSize = int(WARP);
        p->maxThreadsPerBlock = 1024;
        p->maxThreadsPerMultiProcessor = 2048;
        p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
        p->maxThreadsDim[2] = 64;
        p->maxGridSize[0] = 0x7fffffff;
        p->maxGridSize[1] = p->maxGridSize[2] = 65535;
        p->major = r.compute_capability / 10;
        p->minor = r.compute_capability % 10;
        p->multiProcessorCount = r.n_sms;
        p->ECCEnabled = p->unifiedAddressing = 1;
        p->pciBusID = device + 1;
        p->asyncEngineCount = 2;
        p->memoryBusWidth = 5120;
        p->l2CacheSize = 50 << 20;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *ret, cudaDeviceAttr attr, int device)
{
    return api(PLAIN, [=] {
        const runtime &r = rt();
        if (device < 0 || device >= n_devices())
            return cudaErrorInvalidDevice;
        const std::map<cudaDeviceAttr, int> values = {
                {cudaDevAttrMaxThreadsPerBlock, 1024},
                {cudaDevAttrMaxSharedMemoryPerBlock, int(SHARED_STANDARD)},
                {cudaDevAttrWarpSize, int(WARP)},
                {cudaDevAttrMultiProcessorCount, r.n_sms},
                {cudaDevAttrEccEnabled, 1},
                {cudaDevAttrPciBusId, device + 1},
                {cudaDevAttrPciDeviceId, 0},
                {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
                {cudaDevAttrUnifiedAddressing, 1},
                {cudaDevAttrComputeCapabilityMajor, r.compute_capability / 10},
                {cudaDevAttrComputeCapabilityMinor, r.compute_capability % 10},
                {cudaDevAttrMaxSharedMemoryPerMultiprocessor, shared_optin() + 1024},
                {cudaDevAttrMaxSharedMemoryPerBlockOptin, shared_optin()}};
        auto found = values.find(attr);
        if (found == values.end())
            return cudaErrorInvalidValue;
        *ret = found->second;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaDriverGetVersion(int *ret)
{
    return api(NO_DEVICE, [=] {
        *ret = rt().driver;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaRuntimeGetVersion(int *ret)
{
    return api(NO_DEVICE, [=] {
        *ret = RUNTIME_VERSION;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    return api(PLAIN, [=] {
        std::lock_guard<std::mutex> hold(rt().lock);
        *total = rt().memory_bytes;
        *free_bytes = *total - std::min(*total, rt().used[device_of_thread]);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMalloc(void **ret, size_t size)
{
    return api(UNSAFE, [=] {
        runtime &r = rt();
        int d = device_of_thread;
        *ret = nullptr;
        std::lock_guard<std::mutex> hold(r.lock);
        if (++r.n_mallocs == r.fail_malloc || size > r.memory_bytes ||
            r.used[d] > r.memory_bytes - size)
            return cudaErrorMemoryAllocation;
        if (size == 0)
            return cudaSuccess;
        *ret = memory_place(d, size);
        if (!*ret)
            return cudaErrorMemoryAllocation;
        r.allocations[d][static_cast<unsigned char *>(*ret)] = size;
        r.used[d] += size;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaFree(void *p)
{
    return api(UNSAFE | RELEASES, [=] {
        runtime &r = rt();
        int d = memory_device(p);
        if (!p)
            return cudaSuccess;
        if (d < 0)
            return cudaErrorInvalidValue;
        std::lock_guard<std::mutex> hold(r.lock);
        auto piece = r.allocations[d].find(static_cast<unsigned char *>(p));
        if (piece == r.allocations[d].end())
            return cudaErrorInvalidValue;
        memory_remove(d, p, piece->second);
        r.used[d] -= piece->second;
        r.allocations[d].erase(piece);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMallocHost(void **ret, size_t size)
{
    return api(UNSAFE, [=] {
        runtime &r = rt();
        std::lock_guard<std::mutex> hold(r.lock);
        *ret = nullptr;
        if (++r.n_mallocs == r.fail_malloc || posix_memalign(ret, 4096, size ? size : 1))
            return cudaErrorMemoryAllocation;
        memset(*ret, 0xff, size);
        r.pinned[static_cast<unsigned char *>(*ret)] = size;
        r.all.n_pinned++;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaFreeHost(void *p)
{
    return api(UNSAFE | RELEASES, [=] {
        runtime &r = rt();
        std::lock_guard<std::mutex> hold(r.lock);
        if (p && !r.pinned.erase(static_cast<unsigned char *>(p)))
            return cudaErrorInvalidValue;
        r.all.n_pinned -= p ? 1 : 0;
        free(p);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = n_devices() ? device_error(device_of_thread) : cudaSuccess;
    return error;
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attr, int value)
{
    return api(PLAIN, [=] {
        if (!kernel)
            return cudaErrorInvalidDeviceFunction;
        if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
            return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
        if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
            value > shared_optin())
            return cudaErrorInvalidValue;
        std::lock_guard<std::mutex> hold(rt().lock);
        rt().shared_allowed[{kernel, device_of_thread}] = value;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel)
{
    return api(PLAIN, [=] {
        if (!kernel)
            return cudaErrorInvalidDeviceFunction;
        *a = cudaFuncAttributes();
        a->maxThreadsPerBlock = 1024;
        a->numRegs = 64;
        a->ptxVersion = a->binaryVersion = rt().compute_capability;
        a->maxDynamicSharedSizeBytes = shared_most(kernel);
        return cudaSuccess;
    });
}

/* --- vgpu.h --- */

void vgpu_stats(struct vgpu_counts *ret)
{
    runtime &r = rt();
    std::lock_guard<std::mutex> hold(r.lock);
    *ret = {};
    ret->n_calls = r.n_calls;
    ret->n_launches = r.all.n_launches;
    ret->n_replays = r.all.n_replays;
    ret->n_pinned = r.all.n_pinned;
    ret->n_streams = r.all.n_streams;
    ret->n_events = r.all.n_events;
    ret->n_graphs = r.all.n_graphs;
    ret->n_execs = r.all.n_execs;
    for (int d = 0; d < n_devices(); d++) {
        ret->n_allocations += r.allocations[d].size();
        ret->device_bytes += r.used[d];
    }
}

void vgpu_fail_call(uint64_t n, int code)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().fail_call = n ? rt().n_calls + n : 0;
    rt().fail_code = code;
}

void vgpu_fail_malloc(uint64_t n)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().fail_malloc = n ? rt().n_mallocs + n : 0;
}

void vgpu_fault_launch(uint64_t n, int code)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().fault_launch = n ? rt().n_runs + n : 0;
    rt().fault_code = code;
}

void vgpu_fault(int device, int code)
{
    break_device(device, cudaError_t(code));
}

void vgpu_hang_kernel(const char *name)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().hang = name ? name : "";
}

void vgpu_order(const char *name)
{
    order_of(name, 0); /* refuses a wrong one here, not in a stream */
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().order = name;
}

void vgpu_seed(uint64_t seed)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().seed = seed;
}

void vgpu_memory(size_t bytes)
{
    std::lock_guard<std::mutex> hold(rt().lock);
    rt().memory_bytes = bytes;
}

void *vgpu_host_view(int device, const void *p, size_t size)
{
    if (memory_device(p) != device || !in_allocation(device, p, size))
        return nullptr;
    return memory_alias(p);
}

int vgpu_current_device(void)
{
    return device_of_thread;
}
