/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/sequence.h"

#include "base/assertion.h"
#include "base/mem.h"

int sequence_new(struct request *request, uint64_t order, uint32_t n_groups, uint32_t block_size,
                 struct sequence **ret, struct err *err)
{
    CLEANUP(sequence_freep) struct sequence *s = mem_calloc(1, sizeof(*s));
    uint32_t n = request->n_prompt + request->max_tokens;

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "sequence");
    s->order = order;
    s->n_groups = n_groups;
    s->table_max = (n + block_size - 1) / block_size;
    for (uint32_t g = 0; g < n_groups; g++) {
        s->blocks[g] = mem_calloc(s->table_max, sizeof(uint32_t));
        if (!s->blocks[g])
            return err_set(err, ERR_NO_MEMORY, "block table of %u", s->table_max);
        for (uint32_t i = 0; i < s->table_max; i++)
            s->blocks[g][i] = PLAN_BLOCK_NONE;
    }
    s->sched.n_tokens = request->n_prompt;
    s->request = request;
    s->in_queue = true;
    *ret = TAKE_PTR(s);
    return 0;
}

void sequence_free(struct sequence *s)
{
    if (!s)
        return;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        ASSERT(s->sched.first[g] == s->sched.end[g]);
        mem_free(s->blocks[g]);
    }
    mem_free(s);
}

static void put_range(struct sequence *s, struct kv_pool *pool, uint32_t g, uint32_t from,
                      uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        kv_pool_put(pool, s->blocks[g][i]);
        s->blocks[g][i] = PLAN_BLOCK_NONE;
    }
}

static void range(const struct sequence *s, const struct sched_input *in, uint32_t g,
                  uint32_t n_new, uint32_t *ret_first, uint32_t *ret_end)
{
    sched_block_range(in->groups[g].window, in->limits.block_size, s->sched.n_computed,
                      s->sched.n_computed + n_new, ret_first, ret_end);
    ASSERT(*ret_end <= s->table_max);
}

void sequence_give_behind(struct sequence *s, struct kv_pool *const *pools,
                          const struct sched_input *in, uint32_t n_new)
{
    for (uint32_t g = 0; g < s->n_groups; g++) {
        uint32_t first, end;

        range(s, in, g, n_new, &first, &end);
        put_range(s, pools[g], g, s->sched.first[g], first);
        s->sched.first[g] = first;
    }
}

void sequence_take_ahead(struct sequence *s, struct kv_pool *const *pools,
                         const struct sched_input *in, uint32_t n_new)
{
    for (uint32_t g = 0; g < s->n_groups; g++) {
        uint32_t first, end, from = s->sched.end[g];
        struct err err;
        int r;

        range(s, in, g, n_new, &first, &end);
        if (end <= from)
            continue;
        r = kv_pool_take(pools[g], end - from, &s->blocks[g][from], &err);
        ASSERT(r == 0);
        s->sched.end[g] = end;
    }
}

void sequence_drop_blocks(struct sequence *s, struct kv_pool *const *pools)
{
    for (uint32_t g = 0; g < s->n_groups; g++) {
        put_range(s, pools[g], g, s->sched.first[g], s->sched.end[g]);
        s->sched.first[g] = s->sched.end[g] = 0;
    }
    s->sched.n_computed = 0;
}
