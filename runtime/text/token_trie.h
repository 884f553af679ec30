/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* The tokens that are cut out of a text before anything else (control and user-defined ones), as a
 * tree of bytes.  Private to runtime/text.  Immutable once filled: any thread. */
struct token_trie;

int token_trie_new(struct token_trie **ret, struct err *err) MUST_CHECK;
void token_trie_free(struct token_trie *t);
DEFINE_FREEP(token_trie)
/* len >= 1.  Of two tokens of one spelling the first added stays. */
int token_trie_add(struct token_trie *t, const char *text, size_t len, int32_t id,
                   struct err *err) MUST_CHECK;

/* Walks the tokens that text starts with, from the shortest to the longest.  Start with a zeroed
 * walk; returns the next token's id and sets its length, or -1. */
struct token_trie_walk {
    uint32_t node;
    size_t len;
};
int32_t token_trie_next(const struct token_trie *t, struct token_trie_walk *walk, const char *text,
                        size_t len);
