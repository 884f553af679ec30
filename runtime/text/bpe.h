/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Byte-pair encoding of one word.  Private to runtime/text.  A bpe is the working memory of one
 * encoding; it grows and is used again word after word. */
struct vocab;
struct token_list;

struct bpe_symbol;
struct bpe_pair;

struct bpe {
    const struct vocab *vocab;
    struct bpe_symbol *symbols;
    struct bpe_pair *heap;
    size_t n_symbols, cap_symbols;
    size_t n_heap, cap_heap;
};

void bpe_release(struct bpe *b);
/* Append the ids of word to out.  Any bytes; up to 1 GiB. */
int bpe_encode(struct bpe *b, const char *word, size_t len, struct token_list *out,
               struct err *err) MUST_CHECK;
/* Append one id; ERR_INVALID when the list is at its maximum. */
int token_list_add(struct token_list *l, int32_t id, struct err *err) MUST_CHECK;
