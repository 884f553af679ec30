/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "runtime/model/model.h"

/* Is the plan one that the model can run without leaving its memory?  n_blocks: the KV blocks of
 * each group.  ERR_INTERNAL names what is wrong: a plan comes from the engine, so a wrong one is
 * a bug, but it must not write over other memory. */
int plan_check(const struct step_plan *plan, const struct model_info *info,
               const struct model_options *o, const uint32_t *n_blocks, struct err *err) MUST_CHECK;
