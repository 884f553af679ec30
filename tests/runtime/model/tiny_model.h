/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/formats/gguf.h"
#include "runtime/model/model.h"
#include "tests/runtime/formats/gguf_builder.h"

/* Small seeded models written as GGUF files in memory, for tests that run a whole model in
 * milliseconds.  No tokenizer.  "llama": 3 layers, 4 heads on 2 KV heads of 16, vocabulary 50;
 * "gemma3": 7 layers (one of full attention), 4 heads on 1 KV head of 32, window 40,
 * vocabulary 70; "nine": as "llama", 2 layers, 9 heads on 3 KV heads of 16, vocabulary 60.
 * Matrices are of mixed types. */
struct tiny {
    struct gguf_builder builder; /* its file is what gguf borrows */
    struct gguf *gguf;
};

enum { TINY_CONTEXT = 256, TINY_BLOCKS = 40 };

void tiny_init(struct tiny *t, const char *arch);
void tiny_release(struct tiny *t);
/* The keys and tensors only, for tests that add wrong ones; then gguf_builder_end(). */
void tiny_keys(struct gguf_builder *b, const char *arch);
void tiny_tensors(struct gguf_builder *b, const char *arch);

/* A model with room for 8 slots, 200 tokens a step, TINY_BLOCKS blocks in each group. */
struct model *tiny_model(const struct tiny *t, const char *device, unsigned n_threads);
struct model *tiny_open(const struct tiny *t, const char *device, unsigned n_threads,
                        unsigned n_ranks, bool no_graphs);
struct model *tiny_ranks(const struct tiny *t, const char *device, unsigned n_ranks);

/* One sequence of a plan: its tokens, where they start, and the sample it wants. */
struct tiny_seq {
    uint32_t slot;
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t start_pos;
    bool sample;
    float temperature;
    bool left_behind; /* blocks before the window are gone from the second group's table */
};
/* Sequence in slot s has blocks 5 s .. 5 s + 4 (160 positions), in an order of its own. */
void tiny_logits(struct model *m, const struct tiny_seq *seqs, uint32_t n_seqs, float *ret_logits);
/* Seeded tokens that every tiny vocabulary has. */
void tiny_tokens(int32_t *tokens, uint32_t n, uint32_t seed);
/* A prefill of TINY_N tokens in two chunks, the second beside another sequence's first 20: their
 * logits in this order, TINY_ROWS rows. */
enum { TINY_N = 90, TINY_FIRST = 70, TINY_OTHER = 20, TINY_ROWS = TINY_N + TINY_OTHER };
void tiny_two_chunks(struct model *m, float *ret_logits);
void tiny_step(struct model *m, const struct tiny_seq *seqs, uint32_t n_seqs, int32_t *ret_tokens);
