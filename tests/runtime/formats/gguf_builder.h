/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "runtime/formats/gguf.h"

/* Writes small GGUF files in memory, right ones and wrong ones, for tests.  Keys first, then
 * tensors, then gguf_builder_end(); the bytes are then in 'file'. */
struct gguf_builder {
    struct str file;
    struct str keys;
    struct str infos;
    struct str data;
    uint32_t version;
    uint64_t n_keys;
    uint64_t n_tensors;
};

void gguf_builder_init(struct gguf_builder *b);
void gguf_builder_release(struct gguf_builder *b);

void gguf_builder_raw(struct str *s, uint64_t value, size_t bytes); /* little-endian */
void gguf_builder_text(struct str *s, const char *text);            /* length, bytes */

/* Key and kind (gguf's value type numbers); the caller adds the value to b->keys. */
void gguf_builder_key(struct gguf_builder *b, const char *key, uint32_t kind);
void gguf_builder_u32(struct gguf_builder *b, const char *key, uint32_t value);
void gguf_builder_f32(struct gguf_builder *b, const char *key, float value);
void gguf_builder_string(struct gguf_builder *b, const char *key, const char *value);
/* Kind and length of an array; the caller adds the elements to b->keys. */
void gguf_builder_array(struct gguf_builder *b, const char *key, uint32_t kind, uint64_t n);

/* A tensor of ne0 x ne1 (ne1 0: one dimension) with its bytes, padded to 32. */
void gguf_builder_tensor(struct gguf_builder *b, const char *name, enum gguf_type type,
                         uint64_t ne0, uint64_t ne1, const void *bytes, size_t len);
void gguf_builder_end(struct gguf_builder *b);
