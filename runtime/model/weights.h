/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "runtime/device/device.h"
#include "runtime/formats/gguf.h"
#include "runtime/model/arch.h"
#include "runtime/model/model.h"

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
    const float *rope_factors; /* [n_rot / 2] divisors of the frequencies; NULL: none */
    uint64_t n_params;
    uint64_t bytes; /* as stored */
    struct layer_weights layers[ARCH_LAYERS_MAX];
};

/* Every tensor is looked up by name and its shape checked against the arch, which gets its
 * n_vocab here; a tensor that nothing reads is an error, since the result would be wrong.  Pages
 * of the file that the device copied are given back as loading goes. */
int weights_load(const struct gguf *g, struct arch *arch, struct device *d,
                 const struct model_options *o, struct weights *ret, struct err *err) MUST_CHECK;
