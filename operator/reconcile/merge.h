/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/json.h"

/* Two questions about object trees, both with Kubernetes' list keys (containers, volumes and env
 * by name, ports by number, mounts by path; other lists are one value). */

/* Lay 'over' over 'base': objects member by member, null removes, keyed lists element by element,
 * everything else replaced.  ERR_NO_MEMORY leaves base half merged. */
int merge_over(cJSON *base, const cJSON *over, struct err *err) MUST_CHECK;

/* Does live hold all that want says?  More in live is fine (defaults, other managers); an empty
 * object, list or null in want asks for nothing; 1000m equals 1. */
bool merge_covers(const cJSON *live, const cJSON *want);
