/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/device/device.h"
#include "runtime/model/arch.h"
#include "runtime/model/model.h"
#include "runtime/model/shard.h"
#include "runtime/model/weights.h"

/* The forward computation of one rank.  A plan is computed in slices of at most DECODER_ROWS_MAX
 * rows, one after the other, so a slice may hold a part of a sequence's tokens. */
struct decoder;

enum { DECODER_ROWS_MAX = 256, DECODER_STEPS = 2 /* that may be under way */ };

/* All pointers are borrowed for the decoder's life. */
int decoder_new(struct device *d, const struct arch *a, const struct shard *s,
                const struct weights *w, const struct model_options *o, struct decoder **ret,
                struct err *err) MUST_CHECK;
void decoder_free(struct decoder *dec);
DEFINE_FREEP(decoder)

/* Bytes of one block of the group, all its layers, on this rank. */
uint64_t decoder_group_bytes(const struct decoder *dec, uint32_t group);
/* The memory of a group's n_blocks blocks. */
int decoder_kv_init(struct decoder *dec, uint32_t group, uint32_t n_blocks,
                    struct err *err) MUST_CHECK;

/* Sizes of decodes whose ops are kept, smallest first; 0: no more. */
uint32_t decoder_kept_rows(const struct decoder *dec, unsigned i);
/* Start the plan as step 'step' (0 .. DECODER_STEPS - 1), after all that was started before; the
 * plan stays until decoder_collect(), which gives ret_tokens[plan->n_samples]. */
int decoder_submit(struct decoder *dec, unsigned step, const struct step_plan *plan,
                   struct err *err) MUST_CHECK;
int decoder_collect(struct decoder *dec, unsigned step, int32_t *ret_tokens,
                    struct err *err) MUST_CHECK;
/* Compute the plan, and the logits of all its tokens: ret_logits[plan->n_tokens][n_vocab], NULL on
 * ranks that need not tell. */
int decoder_logits(struct decoder *dec, const struct step_plan *plan, float *ret_logits,
                   struct err *err) MUST_CHECK;
