/* SPDX-License-Identifier: Apache-2.0
 *
 * detokenizer.c - token ids to text, a whole character at a time.
 *
 * Byte tokens, and many tokens of a byte-level vocabulary, hold parts of a character.  Bytes go
 * one by one into a window of at most four; it is passed on as soon as it is a character, and
 * replaced by one U+FFFD as soon as it can no longer become one (the byte that broke it starts
 * the next window: Unicode's "substitution of maximal subparts", section 3.9).
 *
 * A struct of one sequence: whichever thread has the sequence calls it.
 */
#include "runtime/text/detokenizer.h"

#include <string.h>

#include "base/str.h"
#include "base/utf8.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){
            .tokenizer = t,
            .at_start = tokenizer_adds_space_prefix(t),
            .skip_special = skip_special,
    };
}

static void add_byte(struct detokenizer *d, char c, struct str *out)
{
    uint32_t cp;
    int n;

    d->held[d->n_held++] = c;
    n = utf8_decode(d->held, d->n_held, &cp);
    if (n == 0 && d->n_held > 1) {
        /* what came before c is broken; c itself may be fine */
        str_adds(out, REPLACEMENT);
        d->held[0] = c;
        d->n_held = 1;
        n = utf8_decode(d->held, 1, &cp);
    }
    if (n < 0)
        return;
    if (n == 0)
        str_adds(out, REPLACEMENT);
    else
        str_add(out, d->held, (size_t)n);
    d->n_held = 0;
}

void detokenizer_add(struct detokenizer *d, int32_t id, struct str *out)
{
    size_t len;
    const char *bytes = tokenizer_bytes(d->tokenizer, id, &len);

    if (d->skip_special && tokenizer_is_special(d->tokenizer, id))
        return;
    if (d->at_start && len > 0) {
        d->at_start = false;
        if (bytes[0] == ' ') {
            bytes++;
            len--;
        }
    }
    for (size_t i = 0; i < len; i++)
        add_byte(d, bytes[i], out);
}

void detokenizer_finish(struct detokenizer *d, struct str *out)
{
    if (d->n_held > 0)
        str_adds(out, REPLACEMENT);
    d->n_held = 0;
}
