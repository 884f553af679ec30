/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - arch and ranks behind one interface.
 *
 * Plans are checked here, before any rank sees them.
 *
 * Memory: weights and buffers in model_new(), the KV cache in model_kv_init(), nothing after.
 * Threading: one thread, the engine's.
 */
#include "runtime/model/model.h"

#include <stdio.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/model/arch.h"
#include "runtime/model/plan_check.h"
#include "runtime/model/ranks.h"
#include "runtime/parallel/communicator.h"

_Static_assert((int)MODEL_BLOCK_SIZE == (int)K_BLOCK, "a KV block");
_Static_assert((int)ARCH_GROUPS_MAX <= (int)PLAN_GROUPS_MAX, "KV groups");

enum { SLOTS_MAX = 1 << 16, TOKENS_MAX = 1 << 20 };

struct model {
    struct model_options options;
    struct model_info info;
    struct arch arch;
    struct ranks *ranks;
    uint32_t n_blocks[PLAN_GROUPS_MAX]; /* 0 before model_kv_init() */
    uint64_t n_submitted;
    uint64_t n_collected;
};

static void fill_info(struct model *m)
{
    struct model_info *i = &m->info;
    const struct arch *a = &m->arch;

    (void)snprintf(i->arch, sizeof(i->arch), "%s", a->name);
    (void)snprintf(i->device, sizeof(i->device), "%s", ranks_device_name(m->ranks));
    i->n_ranks = ranks_count(m->ranks);
    i->runs_ahead = ranks_run_behind(m->ranks);
    i->n_vocab = a->n_vocab;
    i->context_train = a->context;
    i->context_max = a->context;
    if (m->options.context_max != 0 && m->options.context_max < a->context)
        i->context_max = m->options.context_max;
    i->n_layers = a->n_layers;
    i->n_params = ranks_n_params(m->ranks);
    i->weight_bytes = ranks_weight_bytes(m->ranks);
    i->n_groups = a->n_groups;
    for (uint32_t g = 0; g < a->n_groups; g++)
        i->groups[g] = (struct model_kv_group){
                .n_layers = a->groups[g].n_layers,
                .window = a->groups[g].window,
                .block_bytes = ranks_block_bytes(m->ranks, g),
        };
}

static int load(struct model *m, const struct gguf *file, struct err *err)
{
    const struct model_options *o = &m->options;
    int r;

    if (o->slots_max == 0 || o->slots_max > SLOTS_MAX || o->tokens_max == 0 ||
        o->tokens_max > TOKENS_MAX || o->n_ranks > COMMUNICATOR_RANKS_MAX)
        return err_set(err, ERR_INVALID,
                       "model: %u slots, %u tokens a step, %u ranks, want 1..%d, 1..%d, 1..%d",
                       o->slots_max, o->tokens_max, o->n_ranks, SLOTS_MAX, TOKENS_MAX,
                       COMMUNICATOR_RANKS_MAX);
    r = arch_from_gguf(file, &m->arch, err);
    if (r == 0)
        r = ranks_new(file, &m->arch, o, &m->ranks, err);
    if (r == 0)
        fill_info(m);
    return r;
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
    ranks_free(m->ranks);
    mem_free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

uint64_t model_memory_left(const struct model *m)
{
    return ranks_memory_left(m->ranks);
}

int model_kv_init(struct model *m, const uint32_t n_blocks[PLAN_GROUPS_MAX], struct err *err)
{
    for (uint32_t g = 0; g < m->info.n_groups; g++) {
        int r;

        ASSERT(m->n_blocks[g] == 0);
        if (n_blocks[g] == 0)
            return err_set(err, ERR_INVALID, "model: no KV block for group %u", g);
        r = ranks_kv_init(m->ranks, g, n_blocks[g], err);
        if (r < 0)
            return r;
        m->n_blocks[g] = n_blocks[g];
    }
    return 0;
}

/* Decodes of n sequences at position 0; what they write is nobody's. */
static int warm_up_rows(struct model *m, uint32_t n, struct err *err)
{
    CLEANUP(mem_freep) struct plan_seq *seqs = mem_calloc(n, sizeof(*seqs));
    CLEANUP(mem_freep) struct plan_sample *samples = mem_calloc(n, sizeof(*samples));
    CLEANUP(mem_freep) int32_t *tokens = mem_calloc(n, sizeof(*tokens));
    CLEANUP(mem_freep) int32_t *drawn = mem_calloc(n, sizeof(*drawn));
    static const uint32_t block = 0;
    struct step_plan plan = {.n_tokens = n,
                             .n_seqs = n,
                             .n_samples = n,
                             .n_block_ids = 1,
                             .tokens = tokens,
                             .seqs = seqs,
                             .samples = samples,
                             .block_ids = &block};
    struct model_ticket ticket;
    int r;

    if (!seqs || !samples || !tokens || !drawn)
        return err_set(err, ERR_NO_MEMORY, "warm-up");
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = (struct plan_seq){.slot = i, .first_token = i, .n_tokens = 1, .sample = i};
        for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
            seqs[i].table_len[g] = 1;
        samples[i] = (struct plan_sample){.slot = i, .top_p = 1};
    }
    r = model_submit(m, &plan, &ticket, err);
    return r == 0 ? model_collect(m, ticket, drawn, err) : r;
}

int model_warm_up(struct model *m, struct err *err)
{
    const struct model_options *o = &m->options;
    uint32_t most = o->slots_max < o->tokens_max ? o->slots_max : o->tokens_max, rows = 0;
    int r = 0;

    for (unsigned i = 0; r == 0 && rows < most && ranks_kept_rows(m->ranks, i); i++) {
        rows = ranks_kept_rows(m->ranks, i);
        for (int step = 0; r == 0 && step < MODEL_STEPS; step++)
            r = warm_up_rows(m, rows < most ? rows : most, err);
    }
    return r;
}

int model_submit(struct model *m, const struct step_plan *plan, struct model_ticket *ret,
                 struct err *err)
{
    int r = plan_check(plan, &m->info, &m->options, m->n_blocks, err);

    ASSERT(m->n_submitted - m->n_collected < MODEL_STEPS);
    if (r == 0)
        r = ranks_submit(m->ranks, m->n_submitted % MODEL_STEPS, plan, err);
    if (r < 0)
        return r;
    ret->step = m->n_submitted++;
    return 0;
}

int model_collect(struct model *m, struct model_ticket ticket, int32_t *ret_tokens, struct err *err)
{
    if (ticket.step != m->n_collected || m->n_collected == m->n_submitted)
        return err_set(err, ERR_INTERNAL, "model: ticket %llu, next is %llu of %llu",
                       (unsigned long long)ticket.step, (unsigned long long)m->n_collected,
                       (unsigned long long)m->n_submitted);
    m->n_collected++;
    return ranks_collect(m->ranks, ticket.step % MODEL_STEPS, ret_tokens, err);
}

int model_logits(struct model *m, const struct step_plan *plan, float *ret_logits, struct err *err)
{
    int r = plan_check(plan, &m->info, &m->options, m->n_blocks, err);

    return r == 0 ? ranks_logits(m->ranks, plan, ret_logits, err) : r;
}
