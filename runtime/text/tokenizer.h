/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Text <-> token ids, from a GGUF's vocabulary.  Immutable after tokenizer_new(): any thread. */
struct tokenizer;
struct gguf;
struct str;

struct token_list {
    int32_t *ids; /* owned; token_list_release() */
    size_t n, cap;
    size_t max; /* over it: ERR_INVALID, and encoding stops early */
};
void token_list_release(struct token_list *l);

/* A stretch of a text in which special tokens (<|im_start|>) are recognised.  Outside of such
 * spans their spelling is plain text: what a user types can never become a control token.
 * A control token is what the file's token_type calls one; user-defined tokens ("\n\n", "<table>")
 * are ordinary words of the vocabulary and recognised everywhere. */
struct text_span {
    size_t start, end;
};

int tokenizer_new(const struct gguf *g, struct tokenizer **ret, struct err *err) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);
DEFINE_FREEP(tokenizer)

/* Append the ids of text to out.  Any bytes are accepted (invalid UTF-8 by byte tokens; a byte for
 * which a byte-level vocabulary has no token is dropped, as the reference implementation does).
 * add_special: put BOS/EOS where the model's metadata asks for it.  spans: ascending, disjoint;
 * NULL and 0 for none. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     const struct text_span *spans, size_t n_spans, bool add_special,
                     struct token_list *out, struct err *err) MUST_CHECK;

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t); /* -1: none */
/* Ends a generation: eos, eot and the chat template's end tokens. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* control token */
/* SentencePiece: encoding puts a space before the first word, decoding takes it away. */
bool tokenizer_adds_space_prefix(const struct tokenizer *t);
/* The bytes one token stands for, in isolation (special tokens: their spelling). */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len);
/* Spelling of bos / eos for templates; "" if none. */
const char *tokenizer_bos_text(const struct tokenizer *t);
const char *tokenizer_eos_text(const struct tokenizer *t);
