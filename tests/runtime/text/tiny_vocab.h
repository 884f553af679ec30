/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tests/runtime/formats/gguf_builder.h"

/* GGUF files with a vocabulary of a few hundred tokens and nothing else, for tests and fuzzing. */

enum {
    TINY_BOS = 0,   /* <s>, control */
    TINY_EOS = 1,   /* </s>, control */
    TINY_END = 2,   /* <|im_end|>, control */
    TINY_TABLE = 3, /* <table>, user-defined */
    TINY_BYTES = 4, /* the 256 byte tokens, in order */
    TINY_WORDS = 4 + 256,
};

/* gpt2, pre-tokenizer pre; merges make: he ll hell hello " h" " hello" 12 */
void tiny_vocab_byte_level(struct gguf_builder *b, const char *pre);
/* llama; pieces: ▁ h e l o he ll hell hello ▁hello é, user-defined "  " and "   ". */
void tiny_vocab_sentencepiece(struct gguf_builder *b, bool add_space_prefix);
