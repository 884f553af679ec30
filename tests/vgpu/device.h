/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The devices as processes, and their memory: see device.cc. */

#include "block.h"

namespace vgpu
{
enum { DEVICES_MAX = 8 };

int n_devices();

/* Device memory as addresses: place 'size' bytes on a device (filled with ones; NULL: the address
 * space is used up), and take the place back.  Addresses are never given out twice. */
void *memory_place(int device, size_t size);
void memory_remove(int device, void *p, size_t size);
/* Whose address it is, -1: no device's. */
int memory_device(const void *p);
/* The same bytes where the host may touch them; p is inside a placed piece. */
void *memory_alias(const void *p);

/* Run a kernel to its end on a device; called by a stream's thread. */
void device_run(int device, const kernel_call &call);

/* In a device's process: tell the host that all is over, and end.  In the host: end. */
[[noreturn]] void device_gives_up();
/* This OS thread gets a stack of its own for the report of a fault. */
void fault_stack();
} // namespace vgpu
