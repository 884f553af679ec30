/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - arch, weights, KV memory and decoder behind one interface.
 *
 * The host devices compute inside model_submit(); the ticket then only says which step's tokens
 * are ready, and model_collect() copies them.  What each slot sampled last is kept here, so that
 * a plan can be made before the tokens of the step before it are known.
 *
 * Memory: weights and buffers in model_new(), the KV cache in model_kv_init(), nothing after.
 * Threading: one thread, the engine's.
 */
#include "runtime/model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/model/arch.h"
#include "runtime/model/decoder.h"
#include "runtime/model/plan_check.h"
#include "runtime/model/weights.h"

_Static_assert((int)MODEL_BLOCK_SIZE == (int)K_BLOCK, "a KV block");
_Static_assert((int)ARCH_GROUPS_MAX <= (int)PLAN_GROUPS_MAX, "KV groups");

enum { SLOTS_MAX = 1 << 16, TOKENS_MAX = 1 << 20 };

struct model {
    struct model_options options;
    struct model_info info;
    struct arch arch;
    struct weights weights;
    struct device *device;
    struct decoder *decoder;
    uint32_t n_blocks[PLAN_GROUPS_MAX]; /* 0 before model_kv_init() */
    uint64_t step;
    uint32_t n_samples;    /* of the step in results */
    int32_t *tokens;       /* [tokens_max] the plan's, with samples filled in */
    int32_t *results;      /* [slots_max] */
    int32_t *last_sampled; /* [slots_max] by slot */
};

static void fill_info(struct model *m)
{
    struct model_info *i = &m->info;
    const struct arch *a = &m->arch;

    (void)snprintf(i->arch, sizeof(i->arch), "%s", a->name);
    (void)snprintf(i->device, sizeof(i->device), "%s", device_name(m->device));
    i->n_vocab = a->n_vocab;
    i->context_train = a->context;
    i->context_max = a->context;
    if (m->options.context_max != 0 && m->options.context_max < a->context)
        i->context_max = m->options.context_max;
    i->n_layers = a->n_layers;
    i->n_params = m->weights.n_params;
    i->weight_bytes = m->weights.bytes;
    i->n_groups = a->n_groups;
    for (uint32_t g = 0; g < a->n_groups; g++)
        i->groups[g] = (struct model_kv_group){
                .n_layers = a->groups[g].n_layers,
                .window = a->groups[g].window,
                .block_bytes = decoder_block_bytes(a, g, device_kv_f32(m->device)),
        };
}

static int load(struct model *m, const struct gguf *file, struct err *err)
{
    const struct model_options *o = &m->options;
    int r;

    if (o->slots_max == 0 || o->slots_max > SLOTS_MAX || o->tokens_max == 0 ||
        o->tokens_max > TOKENS_MAX)
        return err_set(err, ERR_INVALID, "model: %u slots, %u tokens a step, want 1..%d, 1..%d",
                       o->slots_max, o->tokens_max, SLOTS_MAX, TOKENS_MAX);
    r = arch_from_gguf(file, &m->arch, err);
    if (r == 0)
        r = device_new(o->device, o->n_threads, &m->device, err);
    if (r == 0)
        r = weights_load(file, &m->arch, m->device, o, &m->weights, err);
    if (r == 0)
        r = decoder_new(m->device, &m->arch, &m->weights, o, &m->decoder, err);
    if (r < 0)
        return r;
    m->tokens = mem_calloc(o->tokens_max, sizeof(*m->tokens));
    m->results = mem_calloc(o->slots_max, sizeof(*m->results));
    m->last_sampled = mem_calloc(o->slots_max, sizeof(*m->last_sampled));
    if (!m->tokens || !m->results || !m->last_sampled)
        return err_set(err, ERR_NO_MEMORY, "model");
    fill_info(m);
    return 0;
}

int model_new(const struct gguf *file, const struct model_options *o, struct model **ret,
              struct err *err)
{
    CLEANUP(model_freep) struct model *m = mem_calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_set(err, ERR_NO_MEMORY, "model");
    m->options = *o;
    r = load(m, file, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    decoder_free(m->decoder);
    device_free(m->device);
    mem_free(m->tokens);
    mem_free(m->results);
    mem_free(m->last_sampled);
    mem_free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

int model_kv_init(struct model *m, const uint32_t n_blocks[PLAN_GROUPS_MAX], struct err *err)
{
    for (uint32_t g = 0; g < m->info.n_groups; g++) {
        uint64_t bytes = m->info.groups[g].block_bytes;
        void *base = NULL;
        int r;

        ASSERT(m->n_blocks[g] == 0);
        if (n_blocks[g] == 0)
            return err_set(err, ERR_INVALID, "model: no KV block for group %u", g);
        r = device_alloc(m->device, n_blocks[g], (size_t)bytes, &base, err);
        if (r < 0)
            return r;
        decoder_set_kv(m->decoder, g, base, bytes);
        m->n_blocks[g] = n_blocks[g];
    }
    return 0;
}

/* Check the plan and put in what slots sampled.  A slot whose row was bad goes on with token 0;
 * the engine ends it. */
static int prepare(struct model *m, const struct step_plan *plan, struct err *err)
{
    int r = plan_check(plan, &m->info, &m->options, m->n_blocks, err);

    if (r < 0)
        return r;
    for (uint32_t s = 0; s < plan->n_seqs; s++) {
        const struct plan_seq *seq = &plan->seqs[s];

        for (uint32_t t = seq->first_token; t < seq->first_token + seq->n_tokens; t++) {
            int32_t token = plan->tokens[t];

            if (token == PLAN_TOKEN_LAST_SAMPLE)
                token = m->last_sampled[seq->slot];
            m->tokens[t] = token < 0 ? 0 : token;
        }
    }
    return 0;
}

int model_submit(struct model *m, const struct step_plan *plan, struct model_ticket *ret,
                 struct err *err)
{
    struct decoder_sink sink = {.ret_tokens = m->results};
    int r = prepare(m, plan, err);

    if (r < 0)
        return r;
    decoder_run(m->decoder, plan, m->tokens, &sink);
    for (uint32_t i = 0; i < plan->n_samples; i++)
        m->last_sampled[plan->samples[i].slot] = m->results[i];
    m->n_samples = plan->n_samples;
    ret->step = ++m->step;
    return 0;
}

int model_collect(struct model *m, struct model_ticket ticket, int32_t *ret_tokens, struct err *err)
{
    if (ticket.step != m->step)
        return err_set(err, ERR_INTERNAL, "model: ticket %llu of step %llu",
                       (unsigned long long)ticket.step, (unsigned long long)m->step);
    memcpy(ret_tokens, m->results, m->n_samples * sizeof(*ret_tokens));
    return 0;
}

int model_logits(struct model *m, const struct step_plan *plan, float *ret_logits, struct err *err)
{
    struct decoder_sink sink = {.all_rows = true, .ret_logits = ret_logits};
    int r = prepare(m, plan, err);

    if (r == 0)
        decoder_run(m->decoder, plan, m->tokens, &sink);
    return r;
}
