/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/device/device.h"
#include "runtime/formats/gguf.h"

/* What tells one decoder family from another, as data: decoder.c has one path for all.  Filled
 * from a file's metadata and checked; sizes that only the tensors know (the vocabulary) are added
 * by weights.c. */

enum {
    ARCH_LAYERS_MAX = 256,
    ARCH_GROUPS_MAX = 2, /* full attention, sliding window */
    ARCH_WIDTH_MAX = 1 << 16,
};

struct arch_group {
    uint32_t window;    /* 0: sees everything before it */
    double rope_theta;  /* frequencies are theta^(-2i / head_dim) */
    double rope_factor; /* positions are divided by it */
    uint32_t n_layers;
};

struct arch {
    char name[32];
    uint32_t n_vocab;
    uint32_t n_layers;
    uint32_t width;
    uint32_t n_ff;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_rot; /* values of a head that turn with the position */
    uint32_t context;
    float norm_eps;
    float embed_scale;
    float attn_scale;
    enum k_rope rope;
    enum k_gate_kind gate;
    bool qk_norm;   /* root mean square norm over each head of q and k */
    bool post_norm; /* a norm on what attention and feed-forward give, before it is added */
    uint32_t n_groups;
    struct arch_group groups[ARCH_GROUPS_MAX];
    uint32_t full_every; /* layers i with (i + 1) % full_every == 0 are in group 0, others in 1;
                          * 1: all in group 0 */
};

int arch_from_gguf(const struct gguf *g, struct arch *ret, struct err *err) MUST_CHECK;
/* The group of a layer, and its number within the group. */
uint32_t arch_group_of(const struct arch *a, uint32_t layer);
uint32_t arch_index_in_group(const struct arch *a, uint32_t layer);
