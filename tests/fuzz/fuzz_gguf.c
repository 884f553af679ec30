/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a GGUF file: parse, then read everything the parser says is there. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char *const keys[] = {"general.architecture",  "general.alignment",    "a", "b", "c",
                                   "tokenizer.ggml.tokens", "tokenizer.ggml.scores"};

static volatile unsigned sink;

static void read_key(const struct gguf *g, const char *key)
{
    struct err err;
    uint64_t u;
    double d;
    struct gguf_str s;
    size_t n;

    if (gguf_u64(g, key, UINT64_MAX, &u, &err) == 0)
        sink += (unsigned)u;
    if (gguf_f64(g, key, &d, &err) == 0)
        sink += d > 0;
    if (gguf_string(g, key, &s, &err) == 0 && s.len > 0)
        sink += (unsigned char)s.data[s.len - 1];
    sink += gguf_bool(g, key, false);
    if (gguf_array_len(g, key, &n, &err) == 0 && n < 4096) {
        CLEANUP(mem_freep) struct gguf_str *strings = mem_calloc(n + 1, sizeof(*strings));
        CLEANUP(mem_freep) float *floats = mem_calloc(n + 1, sizeof(*floats));
        CLEANUP(mem_freep) int32_t *ints = mem_calloc(n + 1, sizeof(*ints));

        if (gguf_array_strings(g, key, n, strings, &err) == 0)
            for (size_t i = 0; i < n; i++)
                sink += strings[i].len > 0 ? (unsigned char)strings[i].data[strings[i].len - 1] : 0;
        if (gguf_array_f32(g, key, n, floats, &err) < 0)
            sink += (unsigned)gguf_array_i32(g, key, n, ints, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct gguf *g = NULL;
    struct err err;

    if (gguf_parse(data, len, &g, &err) < 0)
        return 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        read_key(g, keys[i]);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *p = t->data;

        sink += p[0];
        sink += p[t->bytes - 1];
        gguf_drop(g, t);
    }
    sink += gguf_tensor(g, "token_embd.weight") != NULL;
    gguf_free(g);
    return 0;
}
