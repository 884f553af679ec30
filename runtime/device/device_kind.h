/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/device/device.h"

/* What a kind of device does; device.c turns the public calls into these. */
enum device_op {
    OP_EMBED,
    OP_NORM,
    OP_NORM_ADD,
    OP_MATMUL,
    OP_ANGLES,
    OP_STORE,
    OP_ATTEND,
    OP_GATE,
    OP_ADJUST,
    OP_SAMPLE,
    OP_GATHER,
    OP_ALL_REDUCE,
    OP_ALL_GATHER,
    OP_PACK,
};

struct device_reduce {
    float *data;
    size_t n;
};

struct device_collect {
    const float *part;
    size_t n;
    float *all;
};

union device_args {
    struct k_embed embed;
    struct k_norm norm;
    struct k_norm_add norm_add;
    struct k_matmul matmul;
    struct k_angles angles;
    struct k_store store;
    struct k_attend attend;
    struct k_gate gate;
    struct k_adjust adjust;
    struct k_sample sample;
    struct k_gather gather;
    struct k_pack pack;
    struct device_reduce all_reduce;
    struct device_collect all_gather;
};

struct device_kind {
    void (*free)(struct device *d);
    int (*alloc)(struct device *d, size_t bytes, void **ret, struct err *err);
    uint64_t (*memory_left)(const struct device *d);
    int (*mirror_new)(struct device *d, size_t bytes, struct device_mirror *ret, struct err *err);
    int (*mirror_wait)(struct device *d, const struct device_mirror *m, struct err *err);
    void (*mirror_put)(struct device *d, const struct device_mirror *m, size_t bytes);
    void (*mirror_get)(struct device *d, const struct device_mirror *m, size_t bytes);
    /* rows: the shard's, contiguous: desc says how many and how long. */
    int (*matrix)(struct device *d, const struct device_weight_desc *desc, const void *rows,
                  const void **ret, struct err *err);
    int (*vector)(struct device *d, enum k_type type, uint32_t n, const void *bytes, float **ret,
                  struct err *err);
    /* n_items over 0; the args' size is the op's. */
    void (*append)(struct device *d, enum device_op op, const void *args, size_t size,
                   uint32_t n_items);
    int (*submit)(struct device *d, struct err *err);
    int (*replay)(struct device *d, unsigned key, enum device_replay *ret, struct err *err);
    int (*record_end)(struct device *d, unsigned key, struct err *err);
};

struct device_weight {
    struct k_matrix matrix;
    struct device_weight *next;
};

/* The first member of every device */
struct device {
    const struct device_kind *kind;
    char name[80];
    bool aliases; /* matrices are used where the file has them */
    bool kv_f32;
    bool is_host;
    bool keeps_lists;
    uint32_t logit_rows;
    bool (*wants_q)(enum k_type type); /* as in k_ops */
    bool some_want_q;
    bool some_want_f32;
    struct communicator *comm;
    struct device_weight *weights;
};

int device_host_new(const struct device_options *o, struct device **ret, struct err *err);
/* In a build without CUDA this says so (device_no_cuda.c). */
int device_cuda_new(const struct device_options *o, struct device **ret, struct err *err);
