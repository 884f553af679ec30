/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* How kernels/cpu keeps matrices, whatever the processor: K_TILE rows (outputs) interleaved, so
 * that one vector lane is one output and sums never cross lanes.
 *
 * Quantised types become one of a few forms, in groups of 32 inputs.  A group of a tile is
 *   values, then scales float16[16] (16 outputs), then mins float16[16] or second scales
 * where values of 8-bit forms are [8 steps][16 outputs][4 inputs] bytes of value + 128, and those
 * of the 4-bit form [4 steps][16 outputs][4 inputs] bytes: the low nibble belongs to input
 * 4 x step + i, the high one to 16 inputs further.  The 5-bit form has after those the fifth bits:
 * [8 steps] of 64 bits, bit 4 x output + i.
 *   FORM_4     x = scale q + min                    Q4_0 Q4_1 Q4_K
 *   FORM_5     x = scale q + min                    Q5_0 Q5_1 Q5_K
 *   FORM_8     x = scale (u - 128)                  Q8_0
 *   FORM_8_TWO the two halves of the group have their own scale   Q6_K
 * Scales that a format builds from two factors are rounded to float16 once more; that is a
 * hundred times less than what quantising the activations costs.
 *
 * Float types stay as they are, as [n_in][16 outputs]. */
enum form {
    FORM_4,
    FORM_5,
    FORM_8,
    FORM_8_TWO,
    FORM_F32,
    FORM_F16,
    FORM_BF16,
    FORM_COUNT,
};

enum {
    LAYOUT_STEPS = K_GROUP / 4, /* of 4 inputs */
    LAYOUT_STEP_BYTES = 4 * K_TILE,
    LAYOUT_SCALES_BYTES = 2 * K_TILE,
    LAYOUT_4_VALUES = K_GROUP / 2 * K_TILE,
    LAYOUT_5_VALUES = LAYOUT_4_VALUES + K_GROUP / 8 * K_TILE,
    LAYOUT_8_VALUES = K_GROUP * K_TILE,
};

enum form layout_form(enum k_type type);
/* Bytes of one tile of n_in inputs. */
size_t layout_tile_bytes(enum form form, uint32_t n_in);
/* Bytes of a group (quantised forms) or of one input (float forms) of a tile. */
size_t layout_group_bytes(enum form form);

size_t layout_packed_bytes(enum k_type type, uint32_t n_in, uint32_t n_out);
bool layout_wants_q(enum k_type type);
void layout_pack(const struct k_pack *a, uint32_t first, uint32_t end);
void layout_embed(const struct k_embed *a, uint32_t first, uint32_t end);
