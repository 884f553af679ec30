/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/engine/sequence.h"
#include "runtime/model/step_plan.h"

/* The scheduler's decision written out as a step_plan.  Holds the plan's arrays, sized once for the
 * largest step, and who each sampled row belongs to.  Engine thread only. */
struct batch {
    struct step_plan plan;
    int32_t *tokens;
    struct plan_seq *seqs;
    struct plan_sample *samples;
    uint32_t *block_ids;
    struct sequence **sampled; /* [n_samples]: whose token samples[i] draws; NULL: it is gone */
    uint32_t tokens_max, seqs_max, block_ids_max;
};

int batch_new(uint32_t tokens_max, uint32_t seqs_max, uint32_t block_ids_max, struct batch **ret,
              struct err *err) MUST_CHECK;
void batch_free(struct batch *b);
DEFINE_FREEP(batch)

void batch_clear(struct batch *b);
/* Add the next n_new tokens of s, whose blocks are taken; a sample if that completes it. */
void batch_add(struct batch *b, struct sequence *s, uint32_t n_new);
/* The sequence ends: what is drawn for it is nobody's. */
void batch_forget(struct batch *b, const struct sequence *s);
