/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

const struct k_ops *k_ref_ops(void)
{
    static const struct k_ops ops = {
            .name = "ref",
            .kv_f32 = true,
            .embed = k_ref_embed,
            .norm = k_ref_norm,
            .norm_add = k_ref_norm_add,
            .matmul = k_ref_matmul,
            .angles = k_ref_angles,
            .store = k_ref_store,
            .attend = k_ref_attend,
            .gate = k_ref_gate,
            .adjust = k_ref_adjust,
            .sample = k_ref_sample,
            .gather = k_ref_gather,
    };

    return &ops;
}
