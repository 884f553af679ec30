/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "runtime/device/device.h"
#include "runtime/formats/gguf.h"
#include "runtime/model/arch.h"
#include "runtime/model/model.h"
#include "runtime/model/shard.h"

/* A model's tensors on a device.  Matrices are handles; vectors are float32. */
struct layer_weights {
    const struct k_matrix *q;
    const struct k_matrix *k;
    const struct k_matrix *v;
    const struct k_matrix *o;
    const struct k_matrix *gate;
    const struct k_matrix *up;
    const struct k_matrix *down;
    const float *attn_norm;
    const float *ffn_norm;
    const float *q_norm; /* NULL without arch.qk_norm */
    const float *k_norm;
    const float *post_attn_norm; /* NULL without arch.post_norm */
    const float *post_ffn_norm;
};

struct weights {
    const struct k_matrix *embed;
    const struct k_matrix *head; /* embed when tied */
    const float *out_norm;
    bool has_rope_factors;
    float rope_factors[K_HEAD_DIM_MAX / 2]; /* [n_rot / 2] divisors of the frequencies */
    uint64_t n_params;
    uint64_t bytes; /* as stored */
    struct layer_weights layers[ARCH_LAYERS_MAX];
};

/* One rank: the shard, its device, and where the handles go. */
struct weights_rank {
    struct shard shard;
    struct device *device;
    struct weights *weights;
};

/* What a file says before anything is loaded: the arch's n_vocab, and the longest quantisation
 * blocks, in values, of the matrices whose columns are split. */
int weights_survey(const struct gguf *g, struct arch *arch, uint32_t *ret_head_block,
                   uint32_t *ret_ff_block, struct err *err) MUST_CHECK;
/* Every tensor is looked up by name and its shape checked against the arch; a tensor that nothing
 * reads is an error, since the result would be wrong.  Each rank gets its shard.  Pages of the
 * file that the devices copied are given back as loading goes. */
int weights_load(const struct gguf *g, const struct arch *arch, const struct weights_rank *ranks,
                 unsigned n_ranks, const struct model_options *o, struct err *err) MUST_CHECK;
