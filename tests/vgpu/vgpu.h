/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The virtual GPU: CUDA sources compiled by the host's compiler against include/ and run by this
 * library.  It is stricter than a real GPU; what it promises:
 *
 *   kernels   threads as fibers in three orders (block.cc): a missing barrier, __syncwarp or
 *             cp.async wait gives wrong results in at least one; divergent or incomplete warp
 *             operations, deadlocks, accesses outside of an allocation or of shared memory, of
 *             another device's or of host memory are reported and end the run
 *   memory    a host thread that touches device memory faults (device.cc); allocations come filled
 *             with ones; VGPU_MEMORY is the limit
 *   streams   in order each, otherwise asynchronous with seeded delays; pinned memory is read and
 *             written when the copy runs; pageable memory is read at the call and written before
 *             the call returns, as the real runtime may do it (stream.cc)
 *   capture   forbidden calls invalidate it; a replay runs the nodes in a random order that their
 *             dependencies allow (graph.cc)
 *   errors    the n-th call, allocation or launch fails on demand; a fault stays
 *
 * Settings, read at start; the functions below change them later:
 *   VGPU_DEVICES=1      0..8                VGPU_THREADS=2   OS threads a device
 *   VGPU_MEMORY=512M    bytes a device      VGPU_SMS=4       multiprocessors it says it has
 *   VGPU_CC=90          compute capability  VGPU_DRIVER=13000  driver version, 0: none installed
 *   VGPU_ORDER=mixed    forward, reverse, shuffled; mixed: in turn
 *   VGPU_SEED=1         of orders, delays, replays; 0: no delays
 *   VGPU_FAIL_CALL=n    the n-th API call fails with VGPU_FAIL_CODE (cudaErrorUnknown)
 *   VGPU_FAIL_MALLOC=n  the n-th allocation, device or pinned, finds no memory
 *   VGPU_FAULT_LAUNCH=n the n-th kernel to run breaks its device, with VGPU_FAIL_CODE or else
 *                       cudaErrorLaunchFailure
 *   VGPU_HANG_KERNEL=s  kernels whose name contains s do not end
 *   VGPU_NVML=file      what the NVML twin says (nvml.cc)
 *   VGPU_NCCL_LOSE=...  a rank that stops taking part (nccl.cc)
 *
 * Any thread may call these. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vgpu_counts {
    uint64_t n_calls;    /* of the runtime API, but for last-error and error-text functions */
    uint64_t n_launches; /* kernels run, those of graphs too */
    uint64_t n_replays;  /* graphs run */
    /* alive now */
    uint64_t n_allocations, n_pinned, n_streams, n_events, n_graphs, n_execs;
    uint64_t device_bytes; /* of all devices */
};
void vgpu_stats(struct vgpu_counts *ret);

/* n counts from now: 1 is the next one, 0 none. */
void vgpu_fail_call(uint64_t n, int code);
void vgpu_fail_malloc(uint64_t n);
void vgpu_fault_launch(uint64_t n, int code);
/* Break a device now, as an Xid does it. */
void vgpu_fault(int device, int code);
/* NULL: no more; those that hang go on. */
void vgpu_hang_kernel(const char *name);
/* "forward", "reverse", "shuffled", "mixed" */
void vgpu_order(const char *order);
void vgpu_seed(uint64_t seed);
void vgpu_memory(size_t bytes);

/* For twins of other libraries: work in a stream's order (or into its capture), and device memory
 * as the host can touch it.  'arg' is owned by the queue from here on and given to 'release' once
 * it is needed no more; run() may be called several times, when a graph is replayed. Both return
 * what the like of cudaMemcpyAsync would. */
int vgpu_enqueue(void *stream, void (*run)(void *arg), void *arg, void (*release)(void *arg));
int vgpu_stream_device(void *stream);
/* NULL unless all of it lies in one allocation of the device. */
void *vgpu_host_view(int device, const void *p, size_t size);
int vgpu_current_device(void);

#ifdef __cplusplus
}
#endif
