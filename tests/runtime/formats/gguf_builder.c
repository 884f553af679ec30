/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/formats/gguf_builder.h"

#include <string.h>

#include "base/assertion.h"

enum { BYTES_MAX = 64 << 20 };

void gguf_builder_init(struct gguf_builder *b)
{
    *b = (struct gguf_builder){
            .file = STR_INIT(BYTES_MAX),
            .keys = STR_INIT(BYTES_MAX),
            .infos = STR_INIT(BYTES_MAX),
            .data = STR_INIT(BYTES_MAX),
            .version = 3,
    };
}

void gguf_builder_release(struct gguf_builder *b)
{
    str_release(&b->file);
    str_release(&b->keys);
    str_release(&b->infos);
    str_release(&b->data);
}

void gguf_builder_raw(struct str *s, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        str_addc(s, (char)(unsigned char)(value >> (8 * i)));
}

void gguf_builder_text(struct str *s, const char *text)
{
    gguf_builder_raw(s, strlen(text), 8);
    str_adds(s, text);
}

void gguf_builder_key(struct gguf_builder *b, const char *key, uint32_t kind)
{
    gguf_builder_text(&b->keys, key);
    gguf_builder_raw(&b->keys, kind, 4);
    b->n_keys++;
}

void gguf_builder_u32(struct gguf_builder *b, const char *key, uint32_t value)
{
    gguf_builder_key(b, key, 4);
    gguf_builder_raw(&b->keys, value, 4);
}

void gguf_builder_f32(struct gguf_builder *b, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    gguf_builder_key(b, key, 6);
    gguf_builder_raw(&b->keys, bits, 4);
}

void gguf_builder_string(struct gguf_builder *b, const char *key, const char *value)
{
    gguf_builder_key(b, key, 8);
    gguf_builder_text(&b->keys, value);
}

void gguf_builder_array(struct gguf_builder *b, const char *key, uint32_t kind, uint64_t n)
{
    gguf_builder_key(b, key, 9);
    gguf_builder_raw(&b->keys, kind, 4);
    gguf_builder_raw(&b->keys, n, 8);
}

static void pad(struct str *s)
{
    while (s->len % 32 != 0)
        str_addc(s, '\0');
}

void gguf_builder_tensor(struct gguf_builder *b, const char *name, enum gguf_type type,
                         uint64_t ne0, uint64_t ne1, const void *bytes, size_t len)
{
    gguf_builder_text(&b->infos, name);
    gguf_builder_raw(&b->infos, ne1 == 0 ? 1 : 2, 4);
    gguf_builder_raw(&b->infos, ne0, 8);
    if (ne1 != 0)
        gguf_builder_raw(&b->infos, ne1, 8);
    gguf_builder_raw(&b->infos, (uint64_t)type, 4);
    gguf_builder_raw(&b->infos, b->data.len, 8);
    str_add(&b->data, bytes, len);
    pad(&b->data);
    b->n_tensors++;
}

void gguf_builder_end(struct gguf_builder *b)
{
    struct str *f = &b->file;

    str_clear(f);
    str_add(f, "GGUF", 4);
    gguf_builder_raw(f, b->version, 4);
    gguf_builder_raw(f, b->n_tensors, 8);
    gguf_builder_raw(f, b->n_keys, 8);
    str_add(f, b->keys.data, b->keys.len);
    str_add(f, b->infos.data, b->infos.len);
    pad(f);
    str_add(f, b->data.data, b->data.len);
    ASSERT(!f->failed && !b->keys.failed && !b->infos.failed && !b->data.failed);
}
