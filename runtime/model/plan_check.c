/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/plan_check.h"

#include <math.h>

/* Blocks that positions from .. to of a sequence touch in a group must be there. */
static int check_table(const struct step_plan *plan, const struct plan_seq *seq, uint32_t g,
                       uint32_t window, uint32_t n_blocks, struct err *err)
{
    uint32_t last = seq->start_pos + seq->n_tokens - 1;
    uint32_t from = window != 0 && seq->start_pos >= window ? seq->start_pos - window + 1 : 0;
    uint32_t first = seq->table_first[g];

    if (seq->table_len[g] > plan->n_block_ids || first > plan->n_block_ids - seq->table_len[g] ||
        last / MODEL_BLOCK_SIZE >= seq->table_len[g])
        return err_set(err, ERR_INTERNAL, "plan: slot %u: group %u's table ends before position %u",
                       seq->slot, g, last);
    for (uint32_t i = from / MODEL_BLOCK_SIZE; i <= last / MODEL_BLOCK_SIZE; i++)
        if (plan->block_ids[first + i] >= n_blocks)
            return err_set(err, ERR_INTERNAL,
                           "plan: slot %u: group %u has no block for position %u", seq->slot, g,
                           i * MODEL_BLOCK_SIZE);
    return 0;
}

static int check_seq(const struct step_plan *plan, const struct plan_seq *seq,
                     const struct model_info *info, const struct model_options *o,
                     const uint32_t *n_blocks, struct err *err)
{
    if (seq->slot >= o->slots_max || seq->n_tokens == 0 || seq->n_tokens > info->context_max ||
        seq->start_pos > info->context_max - seq->n_tokens)
        return err_set(err, ERR_INTERNAL, "plan: slot %u: %u tokens at position %u", seq->slot,
                       seq->n_tokens, seq->start_pos);
    if (seq->sample != PLAN_NO_SAMPLE &&
        (seq->sample >= plan->n_samples || plan->samples[seq->sample].slot != seq->slot))
        return err_set(err, ERR_INTERNAL, "plan: slot %u: sample %u", seq->slot, seq->sample);
    for (uint32_t g = 0; g < info->n_groups; g++) {
        int r = check_table(plan, seq, g, info->groups[g].window, n_blocks[g], err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int check_sample(const struct plan_sample *s, uint32_t slots_max, struct err *err)
{
    if (s->slot < slots_max && isfinite(s->temperature) && s->temperature >= 0 && s->top_p > 0 &&
        s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1)
        return 0;
    return err_set(err, ERR_INTERNAL, "plan: slot %u: temperature %g, top_p %g, min_p %g", s->slot,
                   (double)s->temperature, (double)s->top_p, (double)s->min_p);
}

int plan_check(const struct step_plan *plan, const struct model_info *info,
               const struct model_options *o, const uint32_t *n_blocks, struct err *err)
{
    uint32_t next = 0; /* sequences cover the tokens in order, without gaps */
    int r = 0;

    if (plan->n_tokens == 0 || plan->n_tokens > o->tokens_max || plan->n_seqs > o->slots_max ||
        plan->n_samples > o->slots_max ||
        plan->n_block_ids > model_block_ids_max(info->n_groups, o->slots_max, info->context_max))
        return err_set(err, ERR_INTERNAL,
                       "plan: %u tokens of %u sequences, %u samples, %u block ids", plan->n_tokens,
                       plan->n_seqs, plan->n_samples, plan->n_block_ids);
    for (uint32_t i = 0; r == 0 && i < plan->n_seqs; i++) {
        if (plan->seqs[i].first_token != next)
            return err_set(err, ERR_INTERNAL, "plan: slot %u starts at token %u, want %u",
                           plan->seqs[i].slot, plan->seqs[i].first_token, next);
        r = check_seq(plan, &plan->seqs[i], info, o, n_blocks, err);
        next += plan->seqs[i].n_tokens;
    }
    if (r == 0 && next != plan->n_tokens)
        return err_set(err, ERR_INTERNAL, "plan: %u tokens, sequences have %u", plan->n_tokens,
                       next);
    for (uint32_t i = 0; r == 0 && i < plan->n_samples; i++)
        r = check_sample(&plan->samples[i], o->slots_max, err);
    for (uint32_t i = 0; r == 0 && i < plan->n_tokens; i++)
        if (plan->tokens[i] != PLAN_TOKEN_LAST_SAMPLE &&
            (plan->tokens[i] < 0 || (uint32_t)plan->tokens[i] >= info->n_vocab))
            r = err_set(err, ERR_INTERNAL, "plan: token %d of a vocabulary of %u", plan->tokens[i],
                        info->n_vocab);
    return r;
}
