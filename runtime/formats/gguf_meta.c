/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_meta.c - reading what the parser has recorded: keys by name, tensors by name.
 *
 * Values were walked in gguf.c, so nothing here can leave the file.  What is checked here is the
 * caller's expectation: kind, range, length.
 */
#include <string.h>

#include "runtime/formats/gguf.h"
#include "runtime/formats/gguf_file.h"

#include "base/assertion.h"

int gguf_str_cmp(const struct gguf_str *a, const struct gguf_str *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int c = memcmp(a->data, b->data, n);

    return c != 0 ? c : (a->len > b->len) - (a->len < b->len);
}

size_t gguf_kind_bytes(enum gguf_kind kind)
{
    static const uint8_t bytes[KIND_COUNT] = {
            [KIND_U8] = 1,  [KIND_I8] = 1,  [KIND_U16] = 2, [KIND_I16] = 2,
            [KIND_U32] = 4, [KIND_I32] = 4, [KIND_F32] = 4, [KIND_BOOL] = 1,
            [KIND_U64] = 8, [KIND_I64] = 8, [KIND_F64] = 8,
    };

    return bytes[kind];
}

uint64_t gguf_load(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static const struct gguf_kv *kv_find(const struct gguf *g, const char *key)
{
    struct gguf_str want = {.data = key, .len = strlen(key)};
    size_t lo = 0;
    size_t hi = g->n_kv;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = gguf_str_cmp(&want, &g->kv[mid].key);

        if (c == 0)
            return &g->kv[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

static int kv_get(const struct gguf *g, const char *key, bool is_array, const struct gguf_kv **ret,
                  struct err *err)
{
    const struct gguf_kv *kv = kv_find(g, key);

    if (!kv)
        return err_set(err, ERR_NOT_FOUND, "gguf: key '%s' is missing", key);
    if (kv->is_array != is_array)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is %s", key,
                       kv->is_array ? "an array" : "not an array");
    *ret = kv;
    return 0;
}

static bool kind_is_int(enum gguf_kind kind)
{
    return kind != KIND_F32 && kind != KIND_F64 && kind != KIND_STRING && kind != KIND_BOOL;
}

static bool kind_is_signed(enum gguf_kind kind)
{
    return kind == KIND_I8 || kind == KIND_I16 || kind == KIND_I32 || kind == KIND_I64;
}

/* Element i of an integer or bool value, sign-extended into 64 bits. */
static uint64_t element_int(const struct gguf_kv *kv, uint64_t i)
{
    size_t bytes = gguf_kind_bytes(kv->kind);
    uint64_t v = gguf_load(kv->value + i * bytes, bytes);
    uint64_t sign = (uint64_t)1 << (8 * bytes - 1);

    if (kind_is_signed(kv->kind))
        v = (v ^ sign) - sign;
    return kv->kind == KIND_BOOL ? v != 0 : v;
}

static double element_float(const struct gguf_kv *kv, uint64_t i)
{
    uint64_t bits = gguf_load(kv->value + i * gguf_kind_bytes(kv->kind), gguf_kind_bytes(kv->kind));
    uint32_t bits32 = (uint32_t)bits;
    float f;
    double d;

    memcpy(&f, &bits32, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    return kv->kind == KIND_F32 ? (double)f : d;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return kv_find(g, key) != NULL;
}

int gguf_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    uint64_t v;
    int r = kv_get(g, key, false, &kv, err);

    if (r < 0)
        return r;
    if (!kind_is_int(kv->kind))
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not an integer", key);
    v = element_int(kv, 0);
    if ((kind_is_signed(kv->kind) && v > INT64_MAX) || v > max)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is out of range, at most %llu", key,
                       (unsigned long long)max);
    *ret = v;
    return 0;
}

int gguf_f64(const struct gguf *g, const char *key, double *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    int r = kv_get(g, key, false, &kv, err);

    if (r < 0)
        return r;
    if (kv->kind != KIND_F32 && kv->kind != KIND_F64)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not a floating-point number", key);
    *ret = element_float(kv, 0);
    return 0;
}

bool gguf_bool(const struct gguf *g, const char *key, bool fallback)
{
    const struct gguf_kv *kv = kv_find(g, key);

    return kv && !kv->is_array && kv->kind == KIND_BOOL ? element_int(kv, 0) != 0 : fallback;
}

int gguf_string(const struct gguf *g, const char *key, struct gguf_str *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    int r = kv_get(g, key, false, &kv, err);

    if (r < 0)
        return r;
    if (kv->kind != KIND_STRING)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not a string", key);
    ret->len = (size_t)gguf_load(kv->value, 8);
    ret->data = (const char *)kv->value + 8;
    return 0;
}

int gguf_array_len(const struct gguf *g, const char *key, size_t *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    int r = kv_get(g, key, true, &kv, err);

    if (r == 0)
        *ret = (size_t)kv->n;
    return r;
}

static int array_get(const struct gguf *g, const char *key, size_t n, const struct gguf_kv **ret,
                     struct err *err)
{
    int r = kv_get(g, key, true, ret, err);

    if (r == 0 && (*ret)->n != n)
        return err_set(err, ERR_INVALID, "gguf: key '%s' has %llu elements, want %zu", key,
                       (unsigned long long)(*ret)->n, n);
    return r;
}

int gguf_array_strings(const struct gguf *g, const char *key, size_t n, struct gguf_str *ret,
                       struct err *err)
{
    const struct gguf_kv *kv = NULL;
    const uint8_t *p;
    int r = array_get(g, key, n, &kv, err);

    if (r < 0)
        return r;
    if (kv->kind != KIND_STRING)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not an array of strings", key);
    p = kv->value;
    for (size_t i = 0; i < n; i++) {
        ret[i].len = (size_t)gguf_load(p, 8);
        ret[i].data = (const char *)p + 8;
        p += 8 + ret[i].len;
    }
    return 0;
}

int gguf_array_f32(const struct gguf *g, const char *key, size_t n, float *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    int r = array_get(g, key, n, &kv, err);

    if (r < 0)
        return r;
    if (kv->kind != KIND_F32 && kv->kind != KIND_F64)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not an array of numbers", key);
    for (size_t i = 0; i < n; i++)
        ret[i] = (float)element_float(kv, i);
    return 0;
}

int gguf_array_i32(const struct gguf *g, const char *key, size_t n, int32_t *ret, struct err *err)
{
    const struct gguf_kv *kv = NULL;
    int r = array_get(g, key, n, &kv, err);

    if (r < 0)
        return r;
    if (!kind_is_int(kv->kind) && kv->kind != KIND_BOOL)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is not an array of integers", key);
    for (size_t i = 0; i < n; i++) {
        int64_t v = (int64_t)element_int(kv, i);

        if (v < INT32_MIN || v > INT32_MAX)
            return err_set(err, ERR_INVALID, "gguf: key '%s': element %zu is out of range", key, i);
        ret[i] = (int32_t)v;
    }
    return 0;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->len;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    ASSERT(i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    struct gguf_str want = {.data = name, .len = strlen(name)};
    size_t lo = 0;
    size_t hi = g->n_tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = gguf_str_cmp(&want, &g->index[mid]->name);

        if (c == 0)
            return g->index[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
