/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/text/tokenizer.h"

/* Token ids -> text as they come, never splitting a UTF-8 character: bytes that may still become
 * one are held (3 at most).  A plain struct, one a sequence, no memory of its own. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    char held[4];
    uint8_t n_held;
    bool at_start; /* SentencePiece drops the space before the first word of a whole text; clear it
                      to go on with a text */
    bool skip_special;
};

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special);
/* Append what id completes to out; always valid UTF-8 (a broken run becomes U+FFFD). */
void detokenizer_add(struct detokenizer *d, int32_t id, struct str *out);
/* The end: a held tail comes out as U+FFFD. */
void detokenizer_finish(struct detokenizer *d, struct str *out);
