/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

/* A label selector as it stands in a query: a=b, a==b, a!=b, a in (x,y), a notin (x,y), a, !a,
 * joined by commas.  Lives in the arena. */
struct selector;

enum { SELECTOR_TERMS_MAX = 32, SELECTOR_VALUES_MAX = 64 };

/* "" selects everything. */
int selector_parse(const char *text, struct arena *mem, const struct selector **ret,
                   struct err *err) MUST_CHECK;
/* labels: an object of strings, or NULL */
bool selector_matches(const struct selector *s, const cJSON *labels);
