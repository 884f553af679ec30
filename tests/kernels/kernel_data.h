/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "kernels/kernels.h"

/* Seeded data for kernel tests.  Memory comes from mem_calloc(); the test fails when there is
 * none. */
struct random {
    uint64_t state;
};

uint32_t random_u32(struct random *r);
float random_float(struct random *r, float low, float high);
float *random_floats(struct random *r, size_t n, float low, float high);

/* A stored matrix with sane scales. */
void *random_matrix(struct random *r, enum k_type type, uint32_t n_in, uint32_t n_out);
/* The same in the backend's order (matrix->data is the stored one for a backend without). */
struct k_matrix packed_matrix(const struct k_ops *ops, enum k_type type, uint32_t n_in,
                              uint32_t n_out, const void *stored, void **ret_memory);

/* Room for rows in all forms. */
struct k_act act_new(uint32_t n_rows, uint32_t n);
void act_free(struct k_act *a);

void *test_alloc(size_t n, size_t size);

extern const enum k_type all_types[];
extern const size_t n_all_types;
