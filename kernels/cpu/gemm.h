/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kernels/cpu/layout.h"

/* What the matrix kernels of all instruction sets share.  They compute, for one tile of 16
 * outputs and a few rows of activations, bit for bit the same:
 *
 *   each group g in order:   t = dot of 32 products, exact in int32
 *                            f = fma(scale_w x scale_a, t, f)
 *                            f = fma(min_w, sum_a, f)           where the form has mins
 *   FORM_8_TWO:              the first fma twice, for the 16 inputs of each half
 *   float forms:             each input i in order: f = fma(w, a, f)
 *
 * Lanes are outputs, so nothing is summed across lanes, and one row alone takes the same steps as
 * one row of many. */

enum { GEMM_COLS_MAX = 8 };

/* Activations of the rows at hand; row c is at + c x stride. */
struct gemm_cols {
    const int8_t *q;
    size_t q_stride;
    const float *scale;
    const int32_t *total;
    const float *sum;
    size_t group_stride;
    const float *f32;
    size_t f32_stride;
};

/* n: groups (quantised forms) or inputs.  out[cols][K_TILE]. */
typedef void (*gemm_tile)(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols,
                          float *out);

struct gemm_kernels {
    uint32_t cols_max;
    gemm_tile tile[FORM_COUNT][GEMM_COLS_MAX]; /* [form][columns - 1] */
};

/* The op matmul over a set of kernels. */
void gemm_run(const struct k_matmul *a, uint32_t first, uint32_t end, const struct gemm_kernels *k);
