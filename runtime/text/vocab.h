/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* The tokens of a model, from a GGUF's tokenizer.ggml.* keys: their bytes, their kinds, and the way
 * back from bytes to an id.  Private to runtime/text.  Immutable: any thread. */
struct vocab;
struct gguf;

enum {
    VOCAB_TOKENS_MAX = 1 << 21,
    VOCAB_TOKEN_BYTES_MAX = 4096,
};

/* tokenizer.ggml.token_type */
enum vocab_type {
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN = 2,
    VOCAB_CONTROL = 3,
    VOCAB_USER_DEFINED = 4,
    VOCAB_UNUSED = 5,
    VOCAB_BYTE = 6,
};

enum vocab_kind {
    VOCAB_BYTE_LEVEL,    /* tokenizer.ggml.model = gpt2: merges have ranks */
    VOCAB_SENTENCEPIECE, /* = llama: tokens have scores, unknown characters fall back to bytes */
};

int vocab_new(const struct gguf *g, struct vocab **ret, struct err *err) MUST_CHECK;
void vocab_free(struct vocab *v);
DEFINE_FREEP(vocab)

enum vocab_kind vocab_kind(const struct vocab *v);
uint32_t vocab_n(const struct vocab *v);
enum vocab_type vocab_type(const struct vocab *v, int32_t id);
/* What the token stands for in a text ("▁" is a space, byte-level spelling undone).  An id out of
 * range is "". */
const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *ret_len);
/* The plain token of exactly these bytes (SentencePiece: in its own spelling, with "▁"); control
 * and byte tokens are never found.  -1: none. */
int32_t vocab_find(const struct vocab *v, const char *bytes, size_t len);
/* The token of one byte; -1: the vocabulary has none. */
int32_t vocab_byte(const struct vocab *v, unsigned char byte);

/* What merging two neighbours gives: the id, -1 if they do not merge.  Lower priorities go first;
 * bytes and len are the two together (used by SentencePiece only). */
int32_t vocab_merge(const struct vocab *v, int32_t left, int32_t right, const char *bytes,
                    size_t len, uint64_t *ret_priority);
