/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/text/tiny_vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { KIND_I32 = 5, KIND_F32 = 6, KIND_BOOL = 7, KIND_STRING = 8 };

static const char *const specials[] = {"<s>", "</s>", "<|im_end|>", "<table>"};
static const uint32_t special_types[] = {3, 3, 3, 4};

static const char *const words[] = {"he", "ll", "hell", "hello", "Ġh", "Ġhello", "12"};
static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "Ġ h", "Ġ hello", "1 2"};

static const char *const pieces[] = {"▁",    "h",     "e",      "l", "o",  "he", "ll",
                                     "hell", "hello", "▁hello", "é", "  ", "   "};
enum { N_SPECIALS = 4, N_WORDS = 7, N_PIECES = 13, N_SPACE_PIECES = 2 };

static void common(struct gguf_builder *b, const char *model)
{
    gguf_builder_init(b);
    gguf_builder_string(b, "tokenizer.ggml.model", model);
    gguf_builder_u32(b, "tokenizer.ggml.bos_token_id", TINY_BOS);
    gguf_builder_u32(b, "tokenizer.ggml.eos_token_id", TINY_EOS);
}

static void add_bool(struct gguf_builder *b, const char *key, bool value)
{
    gguf_builder_key(b, key, KIND_BOOL);
    gguf_builder_raw(&b->keys, value, 1);
}

static void add_specials(struct gguf_builder *b)
{
    for (size_t i = 0; i < N_SPECIALS; i++)
        gguf_builder_text(&b->keys, specials[i]);
}

static void add_types(struct gguf_builder *b, uint32_t byte_type, uint64_t n_words, uint64_t n_user)
{
    gguf_builder_array(b, "tokenizer.ggml.token_type", KIND_I32, TINY_WORDS + n_words);
    for (size_t i = 0; i < N_SPECIALS; i++)
        gguf_builder_raw(&b->keys, special_types[i], 4);
    for (size_t i = 0; i < 256; i++)
        gguf_builder_raw(&b->keys, byte_type, 4);
    for (size_t i = 0; i < n_words; i++)
        gguf_builder_raw(&b->keys, i + n_user < n_words ? 1 : 4, 4);
}

/* A byte's letter in the byte-level alphabet. */
static void letter(unsigned byte, char out[5])
{
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    uint32_t cp = itself        ? byte
                  : byte <= 32  ? 0x100 + byte
                  : byte == 173 ? 0x100 + 67
                                : 0x100 + 33 + byte - 127;

    out[utf8_encode(cp, out)] = '\0';
}

void tiny_vocab_byte_level(struct gguf_builder *b, const char *pre)
{
    char text[8];

    common(b, "gpt2");
    gguf_builder_string(b, "tokenizer.ggml.pre", pre);
    gguf_builder_array(b, "tokenizer.ggml.tokens", KIND_STRING, TINY_WORDS + N_WORDS);
    add_specials(b);
    for (unsigned i = 0; i < 256; i++) {
        letter(i, text);
        gguf_builder_text(&b->keys, text);
    }
    for (size_t i = 0; i < N_WORDS; i++)
        gguf_builder_text(&b->keys, words[i]);
    add_types(b, 1, N_WORDS, 0);
    gguf_builder_array(b, "tokenizer.ggml.merges", KIND_STRING, N_WORDS);
    for (size_t i = 0; i < N_WORDS; i++)
        gguf_builder_text(&b->keys, merges[i]);
    gguf_builder_end(b);
}

void tiny_vocab_sentencepiece(struct gguf_builder *b, bool add_space_prefix)
{
    char text[16];

    common(b, "llama");
    add_bool(b, "tokenizer.ggml.add_space_prefix", add_space_prefix);
    gguf_builder_array(b, "tokenizer.ggml.tokens", KIND_STRING, TINY_WORDS + N_PIECES);
    add_specials(b);
    for (unsigned i = 0; i < 256; i++) {
        (void)snprintf(text, sizeof(text), "<0x%02X>", i);
        gguf_builder_text(&b->keys, text);
    }
    for (size_t i = 0; i < N_PIECES; i++)
        gguf_builder_text(&b->keys, pieces[i]);
    add_types(b, 6, N_PIECES, N_SPACE_PIECES);
    gguf_builder_array(b, "tokenizer.ggml.scores", KIND_F32, TINY_WORDS + N_PIECES);
    for (uint32_t i = 0; i < TINY_WORDS + N_PIECES; i++) {
        float score = -(float)i;
        uint32_t bits;

        memcpy(&bits, &score, sizeof(bits));
        gguf_builder_raw(&b->keys, bits, 4);
    }
    gguf_builder_end(b);
}
