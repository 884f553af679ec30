/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/device/device.h"
#include "runtime/model/arch.h"
#include "runtime/model/model.h"
#include "runtime/model/weights.h"

/* The forward computation.  A plan is computed in slices of at most rows_max rows; a slice is run
 * to its end before the next, so a slice may hold a part of a sequence's tokens. */
struct decoder;

enum { DECODER_ROWS_MAX = 256, DECODER_LOGIT_ROWS = 8 };

/* All pointers are borrowed for the decoder's life. */
int decoder_new(struct device *d, const struct arch *a, const struct weights *w,
                const struct model_options *o, struct decoder **ret, struct err *err) MUST_CHECK;
void decoder_free(struct decoder *dec);
DEFINE_FREEP(decoder)

/* Bytes of one block of the group, all its layers. */
uint64_t decoder_block_bytes(const struct arch *a, uint32_t group, bool f32);
/* The memory of a group's blocks. */
void decoder_set_kv(struct decoder *dec, uint32_t group, void *base, uint64_t block_bytes);

/* What to do with the logits of a slice's rows, DECODER_LOGIT_ROWS at most at a time. */
struct decoder_sink {
    /* Rows whose logits are wanted: those that end a sequence with a sample, or all. */
    bool all_rows;
    float *ret_logits;   /* all_rows: [plan->n_tokens][n_vocab] */
    int32_t *ret_tokens; /* else [plan->n_samples] */
};
/* tokens: plan->tokens with the sampled ones filled in. */
void decoder_run(struct decoder *dec, const struct step_plan *plan, const int32_t *tokens,
                 const struct decoder_sink *sink);
