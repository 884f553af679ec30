/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/layout.h"
#include "kernels/ref/ref.h"

const struct k_ops k_portable_ops = {
        .name = "cpu (portable)",
        .wants_q = layout_wants_q,
        .packed_bytes = layout_packed_bytes,
        .pack = layout_pack,
        .embed = layout_embed,
        .norm = k_norm_portable,
        .norm_add = k_norm_add_portable,
        .matmul = k_matmul_portable,
        .angles = k_ref_angles,
        .store = k_ref_store,
        .attend = k_attend_portable,
        .gate = k_gate_portable,
        .adjust = k_ref_adjust,
        .sample = k_ref_sample,
        .gather = k_ref_gather,
};
