/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kernels/kernels.h"

/* Ops by instruction set.  rows.c and attention.c are compiled once for each kind of lanes
 * (lanes_*.h); the matrix kernels are written for each. */
void k_norm_portable(const struct k_norm *a, uint32_t first, uint32_t end);
void k_norm_add_portable(const struct k_norm_add *a, uint32_t first, uint32_t end);
void k_gate_portable(const struct k_gate *a, uint32_t first, uint32_t end);
void k_attend_portable(const struct k_attend *a, uint32_t first, uint32_t end);
void k_matmul_portable(const struct k_matmul *a, uint32_t first, uint32_t end);

extern const struct k_ops k_portable_ops;

void k_norm_avx2(const struct k_norm *a, uint32_t first, uint32_t end);
void k_norm_add_avx2(const struct k_norm_add *a, uint32_t first, uint32_t end);
void k_gate_avx2(const struct k_gate *a, uint32_t first, uint32_t end);
void k_attend_avx2(const struct k_attend *a, uint32_t first, uint32_t end);
void k_matmul_avx2(const struct k_matmul *a, uint32_t first, uint32_t end);

void k_matmul_avx512(const struct k_matmul *a, uint32_t first, uint32_t end);
