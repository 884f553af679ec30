/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/batch.h"

#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

int batch_new(uint32_t tokens_max, uint32_t seqs_max, uint32_t block_ids_max, struct batch **ret,
              struct err *err)
{
    CLEANUP(batch_freep) struct batch *b = mem_calloc(1, sizeof(*b));

    if (!b)
        return err_set(err, ERR_NO_MEMORY, "batch");
    b->tokens_max = tokens_max;
    b->seqs_max = seqs_max;
    b->block_ids_max = block_ids_max;
    b->tokens = mem_calloc(tokens_max, sizeof(*b->tokens));
    b->seqs = mem_calloc(seqs_max, sizeof(*b->seqs));
    b->samples = mem_calloc(seqs_max, sizeof(*b->samples));
    b->sampled = mem_calloc(seqs_max, sizeof(struct sequence *));
    b->block_ids = mem_calloc(block_ids_max, sizeof(*b->block_ids));
    if (!b->tokens || !b->seqs || !b->samples || !b->sampled || !b->block_ids)
        return err_set(err, ERR_NO_MEMORY, "batch of %u tokens", tokens_max);
    *ret = TAKE_PTR(b);
    return 0;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    mem_free(b->tokens);
    mem_free(b->seqs);
    mem_free(b->samples);
    mem_free(b->sampled);
    mem_free(b->block_ids);
    mem_free(b);
}

void batch_clear(struct batch *b)
{
    b->plan = (struct step_plan){
            .tokens = b->tokens, .seqs = b->seqs, .samples = b->samples, .block_ids = b->block_ids};
}

static void add_sample(struct batch *b, struct plan_seq *ps, struct sequence *s)
{
    const struct sampling *how = &s->request->sampling;

    ps->sample = b->plan.n_samples;
    b->sampled[b->plan.n_samples] = s;
    b->samples[b->plan.n_samples++] = (struct plan_sample){
            .slot = s->slot,
            .position = s->sched.n_tokens,
            .seed = how->seed,
            .temperature = how->temperature,
            .top_p = how->top_p,
            .min_p = how->min_p,
            .top_k = how->top_k,
    };
}

void batch_forget(struct batch *b, const struct sequence *s)
{
    for (uint32_t i = 0; i < b->plan.n_samples; i++)
        if (b->sampled[i] == s)
            b->sampled[i] = NULL;
}

/* Tokens from .. from + n - 1 of the sequence; one that is still being drawn is known by its slot.
 */
static void add_tokens(int32_t *to, const struct request *r, uint32_t from, uint32_t n)
{
    uint32_t known = r->n_prompt + atomic_load_explicit(&r->n_output, memory_order_relaxed);

    for (uint32_t i = 0; i < n; i++)
        to[i] = from + i < known ? r->tokens[from + i] : PLAN_TOKEN_LAST_SAMPLE;
}

void batch_add(struct batch *b, struct sequence *s, uint32_t n_new)
{
    struct step_plan *plan = &b->plan;
    struct plan_seq *ps = &b->seqs[plan->n_seqs];

    ASSERT(plan->n_seqs < b->seqs_max && plan->n_tokens + n_new <= b->tokens_max);
    plan->n_seqs++;
    *ps = (struct plan_seq){.slot = s->slot,
                            .first_token = plan->n_tokens,
                            .n_tokens = n_new,
                            .start_pos = s->sched.n_computed,
                            .sample = PLAN_NO_SAMPLE};
    add_tokens(b->tokens + plan->n_tokens, s->request, s->sched.n_computed, n_new);
    plan->n_tokens += n_new;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        uint32_t n = s->sched.end[g];

        ASSERT(plan->n_block_ids + n <= b->block_ids_max);
        ps->table_first[g] = plan->n_block_ids;
        ps->table_len[g] = n;
        memcpy(b->block_ids + plan->n_block_ids, s->blocks[g], n * sizeof(*b->block_ids));
        plan->n_block_ids += n;
    }
    if (s->sched.n_computed + n_new == s->sched.n_tokens)
        add_sample(b, ps, s);
}
