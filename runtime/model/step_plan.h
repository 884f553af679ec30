/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* What the model computes in one step: flat, position-addressed, without pointers into the engine,
 * so that the same plan can go to every rank (and later to every node).  The engine fills it; the
 * model only reads it, between model_submit() and model_collect().
 *
 * One ragged batch: the tokens of all sequences one after the other, prefill chunks and decodes
 * mixed.  Sequence s owns tokens[first_token .. first_token + n_tokens) at the positions
 * start_pos, start_pos + 1, ...; its keys and values for positions below start_pos are in the KV
 * blocks its tables name, and this step writes those of its own tokens there.
 *
 * Block tables: the model keeps its layers in groups of one lifetime (model.h).  For group g the
 * table of sequence s is block_ids[table_first[g] .. + table_len[g]); entry i holds the positions
 * i * block_size .. (i + 1) * block_size - 1.  PLAN_BLOCK_NONE stands for a block that a sliding
 * window has left behind. */

enum { PLAN_GROUPS_MAX = 4 };

#define PLAN_TOKEN_LAST_SAMPLE (-1) /* the token that this slot sampled in the step before */
#define PLAN_BLOCK_NONE UINT32_MAX
#define PLAN_NO_SAMPLE UINT32_MAX

struct plan_seq {
    uint32_t slot; /* the engine's number for the sequence, below model_options.slots_max */
    uint32_t first_token;
    uint32_t n_tokens;
    uint32_t start_pos;
    uint32_t sample; /* index into samples for the last token's row, or PLAN_NO_SAMPLE */
    uint32_t table_first[PLAN_GROUPS_MAX];
    uint32_t table_len[PLAN_GROUPS_MAX];
};

/* How to draw from one row of logits.  Order: temperature, then top_k, top_p, min_p over the
 * tempered distribution.  temperature 0 is greedy (lowest id of the best).  The random number is
 * Philox(seed, position, choice): a pure function, so batching and preemption cannot change it. */
struct plan_sample {
    uint32_t slot;
    uint32_t position; /* of the token being drawn */
    uint64_t seed;
    uint32_t choice;   /* 0 for n = 1 */
    float temperature; /* >= 0 */
    float top_p;       /* (0, 1]; 1 = off */
    float min_p;       /* [0, 1]; 0 = off */
    uint32_t top_k;    /* 0 = off */
};

struct step_plan {
    uint32_t n_tokens;
    uint32_t n_seqs;
    uint32_t n_samples;
    uint32_t n_block_ids;
    const int32_t *tokens;             /* [n_tokens] */
    const struct plan_seq *seqs;       /* [n_seqs] */
    const struct plan_sample *samples; /* [n_samples] */
    const uint32_t *block_ids;         /* [n_block_ids] */
};
