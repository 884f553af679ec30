/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "runtime/model/arch.h"

/* The part of a model that one rank of 'size' computes (Megatron's split, arXiv:1909.08053): some
 * heads with their KV heads, some columns of the feed-forward, some of the vocabulary.  What a
 * rank gives after attention and after the feed-forward is summed over all of them.
 *
 * Shares may differ by one unit.  KV heads are shared out; when there are fewer of them than
 * ranks, several ranks keep a copy of the same one and share out its query heads. */
struct shard {
    unsigned rank;
    unsigned size;
    uint32_t first_head;
    uint32_t n_heads;
    uint32_t first_kv_head;
    uint32_t n_kv_heads;
    uint32_t first_ff;
    uint32_t n_ff;
    uint32_t first_vocab;
    uint32_t n_vocab;
    uint32_t n_vocab_part; /* that of all ranks but the last, which may have fewer */
};

/* head_block, ff_block: the quantisation blocks, in values, of the matrices that attention's output
 * and the feed-forward's middle go into; shares end between blocks.  ERR_INVALID: it does not
 * split; the message says how many ranks would do. */
int shard_make(const struct arch *a, unsigned rank, unsigned size, uint32_t head_block,
               uint32_t ff_block, struct shard *ret, struct err *err) MUST_CHECK;
