/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Streams, events and what a capture makes of them. */

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime.h"

namespace vgpu
{
typedef std::function<void()> work;

struct queued {
    work run;
    bool always; /* also on a broken device */
};

struct capture; /* graph.cc */

/* When the stream got to an event's record. */
struct moment {
    std::mutex lock;
    std::condition_variable changed;
    bool reached;
    double at_ms;

    void reach();
    void wait();
    bool is_reached();
};
} // namespace vgpu

struct CUstream_st {
    int device;
    uint64_t id;
    std::mutex lock; /* of what follows */
    std::condition_variable changed;
    std::deque<vgpu::queued> queue;
    uint64_t n_queued, n_done;
    bool closing;
    /* graph.cc's, under its lock */
    std::shared_ptr<vgpu::capture> in;
    std::vector<unsigned> tail; /* nodes that the next one comes after */
};

struct CUevent_st {
    int device;
    bool is_timed;
    /* of the last record, under graph.cc's lock: */
    std::shared_ptr<vgpu::moment> last;
    std::shared_ptr<vgpu::capture> in;
    std::vector<unsigned> nodes;
};

namespace vgpu
{
/* NULL: no such stream or event. */
std::shared_ptr<CUstream_st> stream_of(cudaStream_t stream);
std::shared_ptr<CUevent_st> event_of(cudaEvent_t event);

/* Put work at the stream's end, whatever it captures. */
void enqueue(CUstream_st &s, work run, bool always);
/* Wait until all that is queued now is done. */
void drain(CUstream_st &s);

/* graph.cc: work into the stream's capture, or its queue when there is none. */
cudaError_t submit(cudaStream_t stream, work run);
/* The stream captures: the capture is invalid from now on. */
bool capture_spoilt(CUstream_st &s);
cudaError_t record(CUevent_st &event, CUstream_st &s);
cudaError_t wait_for(CUstream_st &s, CUevent_st &event);
/* The last record's moment; NULL: none, or (with ret_captured) in a capture, invalid from now. */
std::shared_ptr<moment> last_moment(CUevent_st &event, bool *ret_captured);
void end_of_stream(CUstream_st &s);
} // namespace vgpu
