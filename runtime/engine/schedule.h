/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "runtime/model/step_plan.h"

/* Which tokens of which sequences the next step computes.  Pure: a function of its arguments, no
 * clock, no memory of its own; the engine carries the decision out.
 *
 * There are no phases: a sequence has n_tokens known (its prompt and what it generated) of which
 * n_computed are in the KV cache, and each step moves n_computed towards n_tokens.  A decode is the
 * case where one is missing; a sequence whose blocks were taken away simply starts at 0 again. */

enum { SCHED_RUNNING_MAX = 1024 };

struct sched_group {
    uint32_t window; /* 0: all positions stay; else blocks behind the window are given back */
    uint32_t n_free;
    uint32_t n_blocks;
};

struct sched_limits {
    uint32_t sequences_max; /* running at once; at most SCHED_RUNNING_MAX */
    uint32_t tokens_max;    /* a step */
    uint32_t block_size;
    uint32_t n_groups;
};

/* Blocks a sequence holds in group g: those of table entries first[g] .. end[g] - 1. */
struct sched_seq {
    uint32_t n_tokens;
    uint32_t n_computed;
    uint32_t first[PLAN_GROUPS_MAX];
    uint32_t end[PLAN_GROUPS_MAX];
};

struct sched_input {
    struct sched_limits limits;
    struct sched_group groups[PLAN_GROUPS_MAX];
    const struct sched_seq *running; /* oldest first */
    uint32_t n_running;
    const struct sched_seq *waiting; /* in the order they are served */
    uint32_t n_waiting;
};

struct sched_output {
    uint32_t n_kept;     /* running[n_kept..] are preempted: the youngest, all their blocks go */
    uint32_t n_admitted; /* waiting[0..n_admitted) start */
    uint32_t n_tokens;   /* in all */
    /* Tokens to compute: for running[i] at [i]; for waiting[j] at [n_kept + j]. */
    uint32_t n_new[SCHED_RUNNING_MAX];
};

void schedule(const struct sched_input *in, struct sched_output *out);

/* Table entries [*ret_first, *ret_end) that a sequence needs in a group to compute positions
 * from .. to - 1 with all it may look back at. */
void sched_block_range(uint32_t window, uint32_t block_size, uint32_t from, uint32_t to,
                       uint32_t *ret_first, uint32_t *ret_end);
/* Most blocks one sequence holds in a group while it grows to n_tokens by steps of tokens_max. */
uint32_t sched_blocks_peak(uint32_t window, uint32_t block_size, uint32_t tokens_max,
                           uint32_t n_tokens);
