/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the runtime API share: the frame around each call, and the settings. */

#include <functional>
#include <string>

#include "block.h"

namespace vgpu
{
/* Kinds of API calls, or-ed. */
enum call_kind : unsigned {
    PLAIN = 0,
    UNSAFE = 1,    /* not while a capture goes on */
    RELEASES = 2,  /* gives something back even when it returns an error of earlier work */
    NO_DEVICE = 4, /* answers without a device */
};

/* Count the call, fail it if it is the one to fail or the device is broken, else 'body'; its
 * error becomes the thread's last error. */
cudaError_t api(unsigned kind, const std::function<cudaError_t()> &body);

int current_device();
/* A broken device's error, else cudaSuccess. */
cudaError_t device_error(int device);
void break_device(int device, cudaError_t error);

struct counters {
    uint64_t n_launches, n_replays, n_pinned, n_streams, n_events, n_graphs, n_execs;
};
void count(uint64_t counters::*which, int by);

uint64_t seed();
/* Run a kernel in its stream's turn: order, faults and hangs are decided here. */
void run_kernel(int device, kernel_call &call);
std::string kernel_name(void (*kernel)());

/* The allocation that all of [p, p + size) lies in. */
bool in_allocation(int device, const void *p, size_t size);
bool is_pinned(const void *p, size_t size);

/* graph.cc, asked by api(): may this thread make an unsafe call?  Invalidates captures if not. */
bool capture_allows_unsafe();
} // namespace vgpu
