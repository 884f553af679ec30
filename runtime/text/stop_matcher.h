/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Looks for stop strings in a text that arrives in pieces, and holds back no more than the longest
 * tail that may still become one. */
struct stop_matcher;
struct str;

enum { STOP_STRINGS_MAX = 16, STOP_BYTES_MAX = 1024 };

/* strings are copied; each 1..STOP_BYTES_MAX bytes. */
int stop_matcher_new(const char *const *strings, size_t n, struct stop_matcher **ret,
                     struct err *err) MUST_CHECK;
void stop_matcher_free(struct stop_matcher *m);
DEFINE_FREEP(stop_matcher)

/* Append to out the part of text that is safe to show.  True: a stop string is complete (the one
 * that ends first; of those, the longest); what came before it is out, the rest is dropped, and so
 * is all later input.  *ret_which tells its index. */
bool stop_matcher_add(struct stop_matcher *m, const char *text, size_t len, struct str *out,
                      size_t *ret_which);
/* The end without a match: what was held comes out. */
void stop_matcher_finish(struct stop_matcher *m, struct str *out);
