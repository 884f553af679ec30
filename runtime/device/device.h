/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "kernels/kernels.h"
#include "runtime/parallel/communicator.h"

/* A place that computes: memory, weights, and a list of ops.  The op functions only append to the
 * list (args are copied; what they point to is device memory and must stay); device_submit()
 * starts it, in order, after all that was submitted before.
 *
 * The host devices are "ref" (kernels/ref) and "cpu" (the best of kernels/cpu that the processor
 * has): they compute inside device_submit(), and their device memory is host memory.  "cuda" runs
 * on a stream of one GPU, behind the caller's back.  One thread. */
struct device;

/* Upper bounds of what ops will be asked for. */
struct device_shape {
    uint32_t rows_max;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_vocab;
    uint32_t row_max; /* values of the longest row a matmul reads */
};

struct device_options {
    const char *name;       /* "ref", "cpu", "cuda", or "auto": the best there is */
    unsigned n_threads;     /* of a host device; 0: what the cgroup allows */
    unsigned index;         /* which GPU */
    double memory_fraction; /* of the GPU's free memory to take */
    uint64_t timeout_ms;    /* work of the GPU that takes longer is a lost device */
    bool no_lists;          /* keep no lists: every step's ops are queued one by one */
    struct device_shape shape;
};

int device_new(const struct device_options *o, struct device **ret, struct err *err) MUST_CHECK;
void device_free(struct device *d);
DEFINE_FREEP(device)
const char *device_name(const struct device *d); /* "ref", "cpu (avx2)", "cuda (NVIDIA H100)" */

/* Is its memory the host's? */
bool device_is_host(const struct device *d);
/* The device's end of the group of ranks, borrowed; before the first collective op. */
void device_join(struct device *d, struct communicator *comm);
/* Rows of logits that are worth computing at a time. */
uint32_t device_logit_rows(const struct device *d);

/* Zeroed memory that the device's ops can use, 64-byte aligned; lives as long as the device. */
int device_alloc(struct device *d, size_t n, size_t size, void **ret, struct err *err) MUST_CHECK;
/* Bytes that device_alloc() can still give; UINT64_MAX where the host's memory is the limit. */
uint64_t device_memory_left(const struct device *d);

/* Host memory and its twin on the device (the same memory on a host device). */
struct device_mirror {
    void *host;
    void *device;
    void *pending; /* the device's own: the last copy */
};
int device_mirror_new(struct device *d, size_t bytes, struct device_mirror *ret,
                      struct err *err) MUST_CHECK;
/* Wait until no copy uses the mirror: its host side may be written, or read what came. */
int device_mirror_wait(struct device *d, const struct device_mirror *m, struct err *err) MUST_CHECK;
/* List a copy of the first bytes to the device, or back. */
void device_mirror_put(struct device *d, const struct device_mirror *m, size_t bytes);
void device_mirror_get(struct device *d, const struct device_mirror *m, size_t bytes);

/* A matrix as a file stores it: n_out rows of n_in values, in blocks of 'type'. */
struct device_weight_desc {
    enum k_type type;
    uint32_t n_in;
    uint32_t n_out;
};
/* The part that this device keeps; columns at whole blocks. */
struct device_shard {
    uint32_t first_out;
    uint32_t n_out;
    uint32_t first_in;
    uint32_t n_in;
};
/* Opaque: the device aliases the bytes, repacks or uploads them.  *ret_aliases says whether
 * 'bytes' must outlive the device.  Weights live as long as the device. */
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
void device_adjust(struct device *d, const struct k_adjust *a);
void device_sample(struct device *d, const struct k_sample *a);
void device_gather(struct device *d, const struct k_gather *a);
/* With the other ranks; nothing without them (communicator.h). */
void device_all_reduce(struct device *d, float *data, size_t n);
void device_all_gather(struct device *d, const float *part, size_t n, float *all);

/* Start everything listed and empty the list.  ERR_DEVICE (also for what was submitted before):
 * this device is lost. */
int device_submit(struct device *d, struct err *err) MUST_CHECK;

/* A list that is the same but for the contents of memory, kept under a key below
 * DEVICE_REPLAYS_MAX.  DEVICE_REPLAYED: it was kept and is submitted again, list nothing.
 * DEVICE_RECORDING: list the ops, then device_record_end() submits and keeps them.
 * DEVICE_PLAIN: this device keeps nothing; list and submit as ever. */
enum { DEVICE_REPLAYS_MAX = 32 };
enum device_replay { DEVICE_PLAIN, DEVICE_RECORDING, DEVICE_REPLAYED };
bool device_keeps_lists(const struct device *d);
int device_replay(struct device *d, unsigned key, enum device_replay *ret,
                  struct err *err) MUST_CHECK;
int device_record_end(struct device *d, unsigned key, struct err *err) MUST_CHECK;
