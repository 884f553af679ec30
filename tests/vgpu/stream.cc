/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.cc - streams, events, copies.
 *
 * A stream is a thread that does its queue in order.  Nothing else orders two streams: before some
 * of its work (an eighth, chosen by VGPU_SEED) a stream sleeps for up to half a millisecond, so
 * that the others get ahead.  What a missing event wait lets go wrong does go wrong within a few
 * seeds.
 *
 * Copies between host and device, by the runtime's documented freedom ("API synchronization
 * behavior"), always the choice that shows more bugs:
 *   pinned memory    read or written when the copy's turn comes: who changes the source before,
 *                    or reads the target too early, sees it
 *   pageable, to     read during the call (staged): the source may go at once
 *   pageable, from   the call returns when the copy is done; do not rely on it for speed
 * Memory given back while a copy of it waits is reported when the copy's turn comes.  cudaFree()
 * does not wait for running kernels, which the real one usually does: a kernel that still uses
 * the memory faults.
 *
 * There is no default stream: NULL is no stream.
 */
#include "stream.h"

#include <map>
#include <thread>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "vgpu.h"

namespace vgpu
{
namespace
{
struct registry {
    std::mutex lock;
    std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
    std::map<cudaEvent_t, std::shared_ptr<CUevent_st>> events;
    uint64_t n_streams;
};

registry &all()
{
    static registry *one = new registry(); /* never freed: threads outlive main() */
    return *one;
}

double now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

void delay(uint64_t stream_id, uint64_t n)
{
    uint64_t s = seed(), random = mix(s ^ stream_id << 40 ^ n);
    if (s && random % 8 == 0)
        usleep(unsigned(random >> 8) % 500);
}

void stream_main(std::shared_ptr<CUstream_st> s)
{
    for (uint64_t n = 0;; n++) {
        queued next;
        {
            std::unique_lock<std::mutex> hold(s->lock);
            s->changed.wait(hold, [&] { return !s->queue.empty() || s->closing; });
            if (s->queue.empty())
                return;
            next = std::move(s->queue.front());
            s->queue.pop_front();
        }
        delay(s->id, n);
        if (next.always || !device_error(s->device))
            next.run();
        next.run = nullptr;
        std::lock_guard<std::mutex> hold(s->lock);
        s->n_done++;
        s->changed.notify_all();
    }
}

enum class side { device, pinned, pageable };

side side_of(const void *p, size_t size)
{
    return memory_device(p) >= 0 ? side::device
           : is_pinned(p, size)  ? side::pinned
                                 : side::pageable;
}

/* The bytes as a stream's thread can touch them, in their turn. */
void *view(const void *p, size_t size)
{
    int device = memory_device(p);
    if (device >= 0 && !in_allocation(device, p, size))
        fail("a copy's turn comes when its device memory %p is given back", p);
    if (device < 0 && !is_pinned(p, size))
        fail("a copy's turn comes when its pinned memory %p is given back", p);
    return device >= 0 ? memory_alias(p) : const_cast<void *>(p);
}

cudaError_t check_copy(const void *dst, const void *src, size_t size, cudaMemcpyKind kind)
{
    int to = memory_device(dst), from = memory_device(src);
    bool fits = kind == cudaMemcpyDefault ||
                kind == (to < 0     ? from < 0 ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost
                         : from < 0 ? cudaMemcpyHostToDevice
                                    : cudaMemcpyDeviceToDevice);
    if (!fits || (to < 0 && from < 0) || !dst || !src)
        return cudaErrorInvalidValue;
    if ((to >= 0 && !in_allocation(to, dst, size)) ||
        (from >= 0 && !in_allocation(from, src, size)))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t copy(void *dst, const void *src, size_t size, CUstream_st &s)
{
    side to = side_of(dst, size), from = side_of(src, size);
    if ((to == side::pageable || from == side::pageable) && capture_spoilt(s))
        return cudaErrorStreamCaptureUnsupported;
    if (from == side::pageable) {
        auto bytes = static_cast<const unsigned char *>(src);
        auto staged = std::make_shared<std::vector<unsigned char>>(bytes, bytes + size);
        return submit(&s, [=] { memcpy(view(dst, size), staged->data(), size); });
    }
    if (to == side::pageable) {
        enqueue(
                s, [=] { memcpy(dst, view(src, size), size); }, false);
        drain(s);
        return device_error(s.device);
    }
    return submit(&s, [=] { memmove(view(dst, size), view(src, size), size); });
}
} // namespace

void moment::reach()
{
    std::lock_guard<std::mutex> hold(lock);
    reached = true;
    at_ms = now_ms();
    changed.notify_all();
}

void moment::wait()
{
    std::unique_lock<std::mutex> hold(lock);
    changed.wait(hold, [&] { return reached; });
}

bool moment::is_reached()
{
    std::lock_guard<std::mutex> hold(lock);
    return reached;
}

std::shared_ptr<CUstream_st> stream_of(cudaStream_t stream)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().streams.find(stream);
    return found == all().streams.end() ? nullptr : found->second;
}

std::shared_ptr<CUevent_st> event_of(cudaEvent_t event)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().events.find(event);
    return found == all().events.end() ? nullptr : found->second;
}

void enqueue(CUstream_st &s, work run, bool always)
{
    std::lock_guard<std::mutex> hold(s.lock);
    s.queue.push_back({std::move(run), always});
    s.n_queued++;
    s.changed.notify_all();
}

void drain(CUstream_st &s)
{
    std::unique_lock<std::mutex> hold(s.lock);
    uint64_t until = s.n_queued;
    s.changed.wait(hold, [&] { return s.n_done >= until; });
}
} // namespace vgpu

using namespace vgpu;

/* The body of a call on a stream: finds it, and answers for its device. */
template <class Body> static cudaError_t on_stream(unsigned kind, cudaStream_t stream, Body body)
{
    return api(kind, [=] {
        auto s = stream_of(stream);
        if (!s)
            return cudaErrorInvalidResourceHandle;
        cudaError_t broken = device_error(s->device);
        return broken && !(kind & RELEASES) ? broken : body(s);
    });
}

template <class Body> static cudaError_t on_event(unsigned kind, cudaEvent_t event, Body body)
{
    return api(kind, [=] {
        auto e = event_of(event);
        return e ? body(e) : cudaErrorInvalidResourceHandle;
    });
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
    return api(PLAIN, [=] {
        if (flags & ~unsigned(cudaStreamNonBlocking))
            return cudaErrorInvalidValue;
        auto s = std::make_shared<CUstream_st>();
        s->device = current_device();
        {
            std::lock_guard<std::mutex> hold(all().lock);
            s->id = ++all().n_streams;
            all().streams[s.get()] = s;
        }
        std::thread(stream_main, s).detach();
        count(&counters::n_streams, 1);
        *ret = s.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return on_stream(RELEASES, stream, [](auto s) {
        end_of_stream(*s);
        {
            std::lock_guard<std::mutex> hold(all().lock);
            all().streams.erase(s.get());
        }
        std::lock_guard<std::mutex> hold(s->lock);
        s->closing = true; /* what is queued is still done */
        s->changed.notify_all();
        count(&counters::n_streams, -1);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return on_stream(UNSAFE, stream, [](auto s) {
        if (capture_spoilt(*s))
            return cudaErrorStreamCaptureUnsupported;
        drain(*s);
        return device_error(s->device);
    });
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return on_stream(UNSAFE, stream, [](auto s) {
        if (capture_spoilt(*s))
            return cudaErrorStreamCaptureUnsupported;
        std::lock_guard<std::mutex> hold(s->lock);
        return s->n_done < s->n_queued ? cudaErrorNotReady : cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return on_stream(PLAIN, stream, [=](auto s) {
        auto e = event_of(event);
        if (!e || flags)
            return e ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle;
        return wait_for(*s, *e);
    });
}

extern "C" cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    return on_stream(PLAIN, stream, [=](auto s) {
        cudaError_t error = size ? check_copy(dst, src, size, kind) : cudaSuccess;
        return error || !size ? error : copy(dst, src, size, *s);
    });
}

extern "C" cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream)
{
    return on_stream(PLAIN, stream, [=](auto s) {
        int device = memory_device(p);
        if (size && (device < 0 || !in_allocation(device, p, size)))
            return cudaErrorInvalidValue;
        return size ? submit(s.get(), [=] { memset(view(p, size), value, size); }) : cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags)
{
    return api(PLAIN, [=] {
        if (flags & ~unsigned(cudaEventBlockingSync | cudaEventDisableTiming))
            return cudaErrorInvalidValue;
        auto e = std::make_shared<CUevent_st>();
        e->device = current_device();
        e->is_timed = !(flags & cudaEventDisableTiming);
        std::lock_guard<std::mutex> hold(all().lock);
        all().events[e.get()] = e;
        count(&counters::n_events, 1);
        *ret = e.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return on_event(RELEASES, event, [](auto e) {
        std::lock_guard<std::mutex> hold(all().lock);
        all().events.erase(e.get());
        count(&counters::n_events, -1);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return on_event(PLAIN, event, [=](auto e) {
        auto s = stream_of(stream);
        if (!s || s->device != e->device)
            return cudaErrorInvalidResourceHandle;
        return record(*e, *s);
    });
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return on_event(UNSAFE, event, [](auto e) {
        bool captured;
        auto last = last_moment(*e, &captured);
        if (captured)
            return cudaErrorCapturedEvent;
        return !last || last->is_reached() ? device_error(e->device) : cudaErrorNotReady;
    });
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return on_event(UNSAFE, event, [](auto e) {
        bool captured;
        auto last = last_moment(*e, &captured);
        if (captured)
            return cudaErrorCapturedEvent;
        if (last)
            last->wait();
        return device_error(e->device);
    });
}

extern "C" cudaError_t cudaEventElapsedTime(float *ret, cudaEvent_t start, cudaEvent_t end)
{
    return on_event(PLAIN, start, [=](auto a) {
        auto b = event_of(end);
        bool captured[2];
        auto from = last_moment(*a, &captured[0]), to = b ? last_moment(*b, &captured[1]) : nullptr;
        if (!from || !to || !a->is_timed || !b->is_timed || a->device != b->device)
            return cudaErrorInvalidResourceHandle;
        if (!from->is_reached() || !to->is_reached())
            return cudaErrorNotReady;
        *ret = float(to->at_ms - from->at_ms);
        return cudaSuccess;
    });
}

int vgpu_stream_device(void *stream)
{
    auto s = stream_of(static_cast<cudaStream_t>(stream));
    return s ? s->device : -1;
}

int vgpu_enqueue(void *stream, void (*run)(void *arg), void *arg, void (*release)(void *arg))
{
    std::shared_ptr<void> owner(arg, release);
    return submit(static_cast<cudaStream_t>(stream), [=] { run(owner.get()); });
}
