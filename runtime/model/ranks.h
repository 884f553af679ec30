/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/formats/gguf.h"
#include "runtime/model/arch.h"
#include "runtime/model/model.h"

/* The devices that share a model, and their threads: one rank computes on the caller's thread,
 * several on one of their own each, and all get the same plans.  One thread calls. */
struct ranks;

/* Opens the devices, joins them, loads every rank's shard.  The arch gets its n_vocab. */
int ranks_new(const struct gguf *file, struct arch *arch, const struct model_options *o,
              struct ranks **ret, struct err *err) MUST_CHECK;
void ranks_free(struct ranks *r);
DEFINE_FREEP(ranks)

const char *ranks_device_name(const struct ranks *r);
unsigned ranks_count(const struct ranks *r);
/* Decodes are padded to this many rows, the i-th; 0: there are no more, or nothing is kept. */
uint32_t ranks_kept_rows(const struct ranks *r, unsigned i);
/* Do submitted steps compute while the caller goes on? */
bool ranks_run_behind(const struct ranks *r);
uint64_t ranks_n_params(const struct ranks *r);
uint64_t ranks_weight_bytes(const struct ranks *r);
uint64_t ranks_block_bytes(const struct ranks *r, uint32_t group); /* as in struct model_kv_group */
uint64_t ranks_memory_left(const struct ranks *r);                 /* of the rank that has least */

int ranks_kv_init(struct ranks *r, uint32_t group, uint32_t n_blocks, struct err *err) MUST_CHECK;
/* decoder_submit(), _collect() and _logits() on all of them.  A rank's failure is everybody's. */
int ranks_submit(struct ranks *r, unsigned step, const struct step_plan *plan,
                 struct err *err) MUST_CHECK;
int ranks_collect(struct ranks *r, unsigned step, int32_t *ret_tokens, struct err *err) MUST_CHECK;
int ranks_logits(struct ranks *r, const struct step_plan *plan, float *ret_logits,
                 struct err *err) MUST_CHECK;
