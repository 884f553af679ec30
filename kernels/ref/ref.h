/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kernels/kernels.h"

/* The specification's ops, as kernels.h describes them; what another backend has no own version
 * of it takes from here. */
void k_ref_embed(const struct k_embed *a, uint32_t first, uint32_t end);
void k_ref_norm(const struct k_norm *a, uint32_t first, uint32_t end);
void k_ref_norm_add(const struct k_norm_add *a, uint32_t first, uint32_t end);
void k_ref_matmul(const struct k_matmul *a, uint32_t first, uint32_t end);
void k_ref_angles(const struct k_angles *a, uint32_t first, uint32_t end);
void k_ref_store(const struct k_store *a, uint32_t first, uint32_t end);
void k_ref_attend(const struct k_attend *a, uint32_t first, uint32_t end);
void k_ref_gate(const struct k_gate *a, uint32_t first, uint32_t end);
void k_ref_adjust(const struct k_adjust *a, uint32_t first, uint32_t end);
void k_ref_sample(const struct k_sample *a, uint32_t first, uint32_t end);
void k_ref_gather(const struct k_gather *a, uint32_t first, uint32_t end);

/* Turn one head by one row's angles. */
void k_ref_rotate(float *head, const float *angles, uint32_t n_freqs, enum k_rope rope);
