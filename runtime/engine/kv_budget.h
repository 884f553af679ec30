/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "runtime/model/model.h"

/* How the memory for keys and values is cut, once, at start. */
struct kv_budget {
    uint32_t n_blocks[PLAN_GROUPS_MAX];
    uint64_t bytes;
    uint32_t sequence_tokens; /* the longest a single sequence can be: bounds prompt + max_tokens */
};

struct kv_budget_options {
    uint64_t bytes_max; /* to spend at most */
    uint32_t sequences_max, tokens_max;
};

/* As many blocks as sequences_max sequences of full context could use, scaled down evenly to
 * bytes_max, but always enough for one sequence to reach 'sequence_tokens'.  ERR_INVALID when not
 * even one block a group fits, naming the least that would. */
int kv_budget_make(const struct model_info *info, const struct kv_budget_options *o,
                   struct kv_budget *ret, struct err *err) MUST_CHECK;
