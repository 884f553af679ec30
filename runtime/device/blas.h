/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Products of bfloat16 matrices by cuBLASLt, opened at run time: where many rows make the product
 * compute-bound, the library's kernels are the ones to beat.  One device, one stream; one thread.
 */
struct blas;

/* ERR_UNAVAILABLE: the library is not there, or too old. */
int blas_new(struct blas **ret, struct err *err) MUST_CHECK;
void blas_free(struct blas *b);
DEFINE_FREEP(blas)

/* y[r][o] (+)= sum over i of x[r][i] w[o][i]; x and w bfloat16, y and sums float32; all of them
 * device memory, 16-byte aligned.  A stride is values from one row to the next. */
struct blas_product {
    const void *x; /* [n_rows][x_stride] */
    const void *w; /* [n_out][w_stride] */
    float *y;      /* [n_rows][n_out] */
    uint32_t n_rows;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t x_stride;
    uint32_t w_stride;
    bool add; /* to what y holds */
    void *stream;
    void *workspace;
    size_t workspace_bytes;
};
/* Queues it; allowed while a graph is captured.  ERR_NOT_FOUND: the library has no kernel for these
 * sizes, nothing is queued. */
int blas_multiply(struct blas *b, const struct blas_product *p, struct err *err) MUST_CHECK;
