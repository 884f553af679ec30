/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The shapes that every backend's kernels are tested with. */
struct matmul_shape {
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_rows;
};
extern const struct matmul_shape matmul_shapes[]; /* for every type */
extern const size_t n_matmul_shapes;
extern const struct matmul_shape float_shapes[]; /* for types without blocks */
extern const size_t n_float_shapes;

struct attention_shape {
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t start; /* positions before the rows */
    uint32_t n_rows;
    uint32_t window;
};
extern const struct attention_shape attention_shapes[];
extern const size_t n_attention_shapes;

extern const uint32_t row_widths[];
extern const size_t n_row_widths;

struct norm_variant {
    enum k_norm_kind kind;
    bool weighted;
    bool biased;
};
extern const struct norm_variant norm_variants[];
extern const size_t n_norm_variants;
