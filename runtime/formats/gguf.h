/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* GGUF v2/v3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata and tensor
 * directory of one memory-mapped file.  Trusts nothing: every count, length, offset, type,
 * alignment and product is bounded before use; a lie is ERR_INVALID with the byte offset, a file
 * that ends early says how many bytes are missing.  Strings are not NUL-terminated in the file;
 * gguf_str() returns a view with a length.  Read-only after gguf_open(): any thread. */
struct gguf;

enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q5_0 = 6,
    GGUF_Q5_1 = 7,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30,
};

struct gguf_str {
    const char *data; /* into the mapping; any bytes */
    size_t len;
};

enum { GGUF_DIMS_MAX = 4 };

struct gguf_tensor {
    struct gguf_str name;
    enum gguf_type type;
    uint32_t n_dims;
    uint64_t ne[GGUF_DIMS_MAX]; /* ne[0] is the fastest (the row length); 1 beyond n_dims */
    const void *data;           /* into the mapping */
    uint64_t bytes;
};

int gguf_open(const char *path, struct gguf **ret, struct err *err) MUST_CHECK;
/* From memory (tests, fuzzing); data is borrowed. */
int gguf_parse(const void *data, size_t len, struct gguf **ret, struct err *err) MUST_CHECK;
void gguf_free(struct gguf *g);
DEFINE_FREEP(gguf)

uint64_t gguf_file_bytes(const struct gguf *g);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name); /* NULL: absent */

/* Metadata by key.  Absent: false, or the fallback.  A key of another type than asked for is
 * ERR_INVALID where an err is given. */
bool gguf_has(const struct gguf *g, const char *key);
int gguf_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *ret,
             struct err *err) MUST_CHECK; /* any integer type; ERR_NOT_FOUND when absent */
int gguf_f64(const struct gguf *g, const char *key, double *ret, struct err *err) MUST_CHECK;
bool gguf_bool(const struct gguf *g, const char *key, bool fallback);
int gguf_string(const struct gguf *g, const char *key, struct gguf_str *ret,
                struct err *err) MUST_CHECK;
/* Arrays: the length, then elements.  ERR_NOT_FOUND when absent. */
int gguf_array_len(const struct gguf *g, const char *key, size_t *ret, struct err *err) MUST_CHECK;
int gguf_array_strings(const struct gguf *g, const char *key, size_t n, struct gguf_str *ret,
                       struct err *err) MUST_CHECK; /* n must be the array's length */
int gguf_array_f32(const struct gguf *g, const char *key, size_t n, float *ret,
                   struct err *err) MUST_CHECK;
int gguf_array_i32(const struct gguf *g, const char *key, size_t n, int32_t *ret,
                   struct err *err) MUST_CHECK; /* integers or bools */

/* The tensor's bytes will not be read again soon: give their pages back.  They come back from the
 * file when touched, so this is only about resident memory.  Nothing for gguf_parse(). */
void gguf_drop(const struct gguf *g, const struct gguf_tensor *t);

/* Elements a block and bytes a block of a type; 0 for a type that is not in the enum. */
uint32_t gguf_block_len(enum gguf_type type);
uint32_t gguf_block_bytes(enum gguf_type type);
const char *gguf_type_name(enum gguf_type type);
