/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "kernels/kernels.h"

/* A place that computes: memory, weights, and a list of ops.  The op functions only append to the
 * list (args are copied; what they point to must stay); device_run() computes it in order.  The
 * host devices are "ref" (kernels/ref) and "cpu" (the best of kernels/cpu that the processor has);
 * both share threads, memory and list, and differ in their table of kernels.  One thread. */
struct device;

/* name: "ref", "cpu", or "auto" (the best there is).  n_threads 0: what the cgroup allows. */
int device_new(const char *name, unsigned n_threads, struct device **ret,
               struct err *err) MUST_CHECK;
void device_free(struct device *d);
DEFINE_FREEP(device)
const char *device_name(const struct device *d); /* "ref", "cpu (avx2)" */

/* Zeroed memory that the device's ops can use, 64-byte aligned; lives as long as the device. */
int device_alloc(struct device *d, size_t n, size_t size, void **ret, struct err *err) MUST_CHECK;

/* A matrix as a file stores it: n_out rows of n_in values, in blocks of 'type'. */
struct device_weight_desc {
    enum k_type type;
    uint32_t n_in;
    uint32_t n_out;
};
/* The rows that this device keeps; {0, n_out} for all. */
struct device_shard {
    uint32_t first_out;
    uint32_t n_out;
};
/* Opaque: the device aliases the bytes or repacks them.  *ret_aliases says whether 'bytes' must
 * outlive the device.  Weights live as long as the device. */
struct device_weight;
int device_weight(struct device *d, const struct device_weight_desc *desc, const void *bytes,
                  struct device_shard shard, const struct device_weight **ret, bool *ret_aliases,
                  struct err *err) MUST_CHECK;
const struct k_matrix *device_weight_matrix(const struct device_weight *w);
/* A vector (norm weights) as float32. */
int device_vector(struct device *d, enum k_type type, uint32_t n, const void *bytes,
                  const float **ret, struct err *err) MUST_CHECK;

/* Room for rows that matmuls read, in the forms that the weights so far want: after the weights. */
int device_act(struct device *d, uint32_t n_rows, uint32_t n, struct k_act *ret,
               struct err *err) MUST_CHECK;
/* Are KV caches float32 (else float16)? */
bool device_kv_f32(const struct device *d);

void device_embed(struct device *d, const struct k_embed *a);
void device_norm(struct device *d, const struct k_norm *a);
void device_norm_add(struct device *d, const struct k_norm_add *a);
void device_matmul(struct device *d, const struct k_matmul *a);
void device_angles(struct device *d, const struct k_angles *a);
void device_store(struct device *d, const struct k_store *a);
void device_attend(struct device *d, const struct k_attend *a);
void device_gate(struct device *d, const struct k_gate *a);
void device_sample(struct device *d, const struct k_sample *a);
/* Compute everything listed, in order, and empty the list. */
void device_run(struct device *d);
