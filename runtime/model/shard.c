/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/shard.h"

#include "base/assertion.h"
#include "runtime/device/device.h"

struct range {
    uint32_t first;
    uint32_t n;
};

/* Rank's share of n things that only come apart at multiples of 'unit'; n 0: there is not one
 * unit for each. */
static struct range share(uint32_t n, uint32_t unit, unsigned rank, unsigned size)
{
    uint32_t n_units = (n + unit - 1) / unit;
    uint32_t first = unit * (uint32_t)((uint64_t)n_units * rank / size);
    uint32_t end = unit * (uint32_t)((uint64_t)n_units * (rank + 1) / size);

    if (n_units < size)
        return (struct range){0, 0};
    end = end < n ? end : n;
    return (struct range){first, end - first};
}

/* The fewest things of 'each' values that fill whole blocks. */
static uint32_t unit_of(uint32_t each, uint32_t block)
{
    uint32_t unit = 1;

    while ((uint64_t)unit * each % block != 0)
        unit++;
    return unit;
}

static void share_heads(const struct arch *a, uint32_t block, struct shard *s)
{
    uint32_t group = a->n_heads / a->n_kv_heads;
    struct range kv = share(a->n_kv_heads, unit_of(group * a->head_dim, block), s->rank, s->size);

    if (kv.n == 0 && a->n_kv_heads < s->size) {
        /* the ranks from .. end - 1 have the same KV head, and share its group */
        uint32_t mine = s->rank * a->n_kv_heads / s->size;
        unsigned from = s->rank, end = s->rank + 1;
        struct range heads;

        while (from > 0 && (from - 1) * a->n_kv_heads / s->size == mine)
            from--;
        while (end < s->size && end * a->n_kv_heads / s->size == mine)
            end++;
        heads = share(group, unit_of(a->head_dim, block), s->rank - from, end - from);
        s->first_kv_head = mine;
        s->n_kv_heads = 1;
        s->first_head = mine * group + heads.first;
        s->n_heads = heads.n;
        return;
    }
    s->first_kv_head = kv.first;
    s->n_kv_heads = kv.n;
    s->first_head = kv.first * group;
    s->n_heads = kv.n * group;
}

static int make(const struct arch *a, unsigned rank, unsigned size, uint32_t head_block,
                uint32_t ff_block, struct shard *s)
{
    /* activations are quantised in groups, so shares end between those, too */
    struct range ff = share(a->n_ff, ff_block > K_GROUP ? ff_block : K_GROUP, rank, size);

    *s = (struct shard){.rank = rank, .size = size, .first_ff = ff.first, .n_ff = ff.n};
    share_heads(a, head_block, s);
    s->n_vocab_part = (a->n_vocab + size - 1) / size;
    s->first_vocab = s->n_vocab_part * rank;
    if (s->first_vocab < a->n_vocab)
        s->n_vocab = a->n_vocab - s->first_vocab;
    if (s->n_vocab > s->n_vocab_part)
        s->n_vocab = s->n_vocab_part;
    return s->n_heads > 0 && s->n_ff > 0 && s->n_vocab > 0 ? 0 : -1;
}

static bool all_have_some(const struct arch *a, unsigned size, uint32_t head_block,
                          uint32_t ff_block)
{
    struct shard s;

    for (unsigned k = 0; k < size; k++)
        if (make(a, k, size, head_block, ff_block, &s) < 0)
            return false;
    return true;
}

int shard_make(const struct arch *a, unsigned rank, unsigned size, uint32_t head_block,
               uint32_t ff_block, struct shard *ret, struct err *err)
{
    unsigned fits = size;

    ASSERT(size > 0 && rank < size);
    if (!all_have_some(a, size, head_block, ff_block)) {
        while (fits > 1 && !all_have_some(a, fits, head_block, ff_block))
            fits--;
        return err_set(err, ERR_INVALID,
                       "this model's %u heads, %u KV heads and feed-forward of %u do not split "
                       "over %u ranks; --tensor-parallel-size can be at most %u",
                       a->n_heads, a->n_kv_heads, a->n_ff, size, fits);
    }
    (void)make(a, rank, size, head_block, ff_block, ret);
    return 0;
}
