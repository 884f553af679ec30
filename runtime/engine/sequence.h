/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/engine/kv_pool.h"
#include "runtime/engine/schedule.h"
#include "runtime/request/request.h"

/* A request inside the engine: how far it is computed and which blocks it holds.  Engine thread
 * only. */
struct sequence {
    struct request *request; /* one reference */
    uint64_t order;          /* arrival in the engine: the order of service */
    uint32_t slot;           /* while running */
    bool in_queue;           /* holds a place among the inbox's waiting */
    uint64_t last_token_ns;
    struct sched_seq sched;
    uint32_t *blocks[PLAN_GROUPS_MAX]; /* [table_max]; entries first..end are held */
    uint32_t table_max;
    uint32_t n_groups;
};

int sequence_new(struct request *request, uint64_t order, uint32_t n_groups, uint32_t block_size,
                 struct sequence **ret, struct err *err) MUST_CHECK;
/* Holds no block any more (sequence_drop_blocks()). */
void sequence_free(struct sequence *s);
DEFINE_FREEP(sequence)

/* Before computing n_new more tokens, in two rounds over all sequences of a step: give back what
 * the windows left behind, then take what is new.  (In one round, one sequence could miss the block
 * that a later one is about to give.)  The scheduler has seen that the pools suffice. */
void sequence_give_behind(struct sequence *s, struct kv_pool *const *pools,
                          const struct sched_input *in, uint32_t n_new);
void sequence_take_ahead(struct sequence *s, struct kv_pool *const *pools,
                         const struct sched_input *in, uint32_t n_new);
/* All blocks back; computed anew from the first token. */
void sequence_drop_blocks(struct sequence *s, struct kv_pool *const *pools);
