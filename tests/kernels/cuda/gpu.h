/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/kernels.h"

/* A device for tests of CUDA kernels: the virtual GPU (gpu_orders_virtual.c: every test runs in
 * three orders of threads) or a real one (gpu_orders_real.c).  Each array is an allocation of its
 * own, exact in size and filled with 0xff before use (floats: not a number), so that a read of what
 * nobody wrote and an access beyond the end show.  It ends where the allocation does and begins at
 * a multiple of 16 bytes: the virtual GPU sees reads that go 16 bytes too far.  What is before it
 * is looked at in the end.  Failures of the device fail the test. */
struct gpu_memory {
    void *start; /* to be freed */
    size_t before;
};
struct gpu {
    struct k_cuda k;
    struct gpu_memory memory[256];
    size_t n_memory;
};

/* Room for scratch as k_cuda_scratch_bytes() says for n_sms multiprocessors. */
struct gpu gpu_new(const struct k_cuda_shape *shape);
/* Waits, then gives everything back. */
void gpu_free(struct gpu *g);
void *gpu_alloc(struct gpu *g, size_t bytes);
void *gpu_upload(struct gpu *g, const void *host, size_t bytes);
/* Waits for the stream; memory from test_alloc(). */
void *gpu_download(struct gpu *g, const void *device, size_t bytes);
/* Packed as the device wants it. */
struct k_matrix gpu_matrix(struct gpu *g, enum k_type type, uint32_t n_in, uint32_t n_out,
                           const void *stored);
/* What differs most from 'want', as a share of bound[i] (or of 'tolerance' when bound is NULL);
 * fails over 1, or when any is no number. */
double gpu_worst(const float *got, const float *want, size_t n, const float *bound,
                 float tolerance);

/* Orders in which threads can run; 1 on a real device. */
unsigned gpu_n_orders(void);
void gpu_set_order(unsigned i);

/* Run the tests in all orders; main()'s result, 77 when there is no device. */
#define gpu_run_tests(tests) gpu_run(tests, sizeof(tests) / sizeof((tests)[0]))
struct CMUnitTest;
int gpu_run(const struct CMUnitTest *tests, size_t n);
