/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/formats/gguf.h"

/* What gguf.c (the parser) and gguf_meta.c (the getters) share; nobody else includes it. */

/* Value types of the format. */
enum gguf_kind {
    KIND_U8 = 0,
    KIND_I8 = 1,
    KIND_U16 = 2,
    KIND_I16 = 3,
    KIND_U32 = 4,
    KIND_I32 = 5,
    KIND_F32 = 6,
    KIND_BOOL = 7,
    KIND_STRING = 8,
    KIND_ARRAY = 9,
    KIND_U64 = 10,
    KIND_I64 = 11,
    KIND_F64 = 12,
    KIND_COUNT = 13,
};

/* One key.  The value was walked while parsing: 'value' up to its end lies inside the file. */
struct gguf_kv {
    struct gguf_str key;
    enum gguf_kind kind; /* of the elements, when is_array */
    bool is_array;
    uint64_t n;           /* elements; 1 for a scalar */
    const uint8_t *value; /* first element; a string starts with its length */
};

struct gguf {
    const uint8_t *data;
    size_t len;
    bool mapped; /* ours to unmap */
    size_t n_kv;
    struct gguf_kv *kv; /* sorted by key */
    size_t n_tensors;
    struct gguf_tensor *tensors;      /* in the file's order */
    const struct gguf_tensor **index; /* the same sorted by name */
};

/* Order of names: bytes, then length. */
int gguf_str_cmp(const struct gguf_str *a, const struct gguf_str *b);
/* Bytes of one element of a scalar kind, 0 for strings and arrays. */
size_t gguf_kind_bytes(enum gguf_kind kind);
/* Little-endian load of 1, 2, 4 or 8 bytes from any address. */
uint64_t gguf_load(const uint8_t *p, size_t bytes);
