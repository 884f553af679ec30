/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Cuts a text into the words within which byte-level BPE merges.  Private to runtime/text.
 * A pretokenizer is immutable (any thread); a pretokenizer_cut is the state of one pass. */
struct pretokenizer;

/* name: the value of tokenizer.ggml.pre. */
int pretokenizer_new(const char *name, size_t name_len, struct pretokenizer **ret,
                     struct err *err) MUST_CHECK;
void pretokenizer_free(struct pretokenizer *p);
DEFINE_FREEP(pretokenizer)

struct pretokenizer_cut;
/* text is borrowed; any bytes: a run of invalid UTF-8 is a word of its own. */
int pretokenizer_cut_new(const struct pretokenizer *p, const char *text, size_t len,
                         struct pretokenizer_cut **ret, struct err *err) MUST_CHECK;
void pretokenizer_cut_free(struct pretokenizer_cut *c);
DEFINE_FREEP(pretokenizer_cut)
/* 1: the next word is *ret_word (into the text), 0: the end, < 0: an error.  The words together are
 * the whole text. */
int pretokenizer_cut_next(struct pretokenizer_cut *c, const char **ret_word, size_t *ret_len,
                          struct err *err) MUST_CHECK;
