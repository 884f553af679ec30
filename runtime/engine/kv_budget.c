/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/kv_budget.h"

#include "runtime/engine/kv_pool.h"
#include "runtime/engine/schedule.h"

/* Blocks and bytes that 'share' (0..1] of sequences_max sequences of n_tokens need, at least one
 * sequence's. */
static uint64_t size_for(const struct model_info *info, const struct kv_budget_options *o,
                         uint32_t n_tokens, double share, struct kv_budget *b)
{
    b->bytes = 0;
    for (uint32_t g = 0; g < info->n_groups; g++) {
        uint32_t one = sched_blocks_peak(info->groups[g].window, MODEL_BLOCK_SIZE, o->tokens_max,
                                         n_tokens);
        double many = share * (double)one * o->sequences_max;
        double n = many > one ? many : one;

        b->n_blocks[g] = n < KV_POOL_BLOCKS_MAX ? (uint32_t)n : (uint32_t)KV_POOL_BLOCKS_MAX;
        b->bytes += b->n_blocks[g] * info->groups[g].block_bytes;
    }
    b->sequence_tokens = n_tokens;
    return b->bytes;
}

int kv_budget_make(const struct model_info *info, const struct kv_budget_options *o,
                   struct kv_budget *ret, struct err *err)
{
    uint32_t n_tokens = info->context_max;
    double low = 0, high = 1;

    /* one sequence alone: shorten it until it fits */
    while (n_tokens > MODEL_BLOCK_SIZE && size_for(info, o, n_tokens, 0, ret) > o->bytes_max)
        n_tokens -= n_tokens > 16u * MODEL_BLOCK_SIZE ? n_tokens / 16 : MODEL_BLOCK_SIZE;
    if (size_for(info, o, n_tokens, 0, ret) > o->bytes_max)
        return err_set(err, ERR_INVALID,
                       "KV cache of %llu bytes is too small, even one block needs %llu; raise "
                       "--kv-cache-memory",
                       (unsigned long long)o->bytes_max, (unsigned long long)ret->bytes);
    if (size_for(info, o, n_tokens, 1, ret) <= o->bytes_max)
        return 0;
    for (int i = 0; i < 40; i++) {
        double mid = (low + high) / 2;

        if (size_for(info, o, n_tokens, mid, ret) <= o->bytes_max)
            low = mid;
        else
            high = mid;
    }
    (void)size_for(info, o, n_tokens, low, ret);
    return 0;
}
