/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf.c - the parser: bytes to a directory of keys and tensors.
 *
 * One pass with a cursor over the mapped file.  Every read goes through take(), which refuses to
 * go past the end and says where and how much was missing; so no other function does bounds
 * arithmetic.  Values stay where they are in the file: a key is recorded as a pointer to bytes
 * that were already walked (strings of arrays included), which lets the getters in gguf_meta.c
 * read without checking again.  Counts are bounded by the bytes that are left before anything is
 * allocated for them, so a small file cannot ask for much memory.
 *
 * Keys and names are kept sorted: lookups are binary searches and duplicates are neighbours.
 * A struct gguf owns its arrays and, when it came from gguf_open(), the mapping.  It never
 * changes after parsing: any thread may read.  A file that is truncated by somebody else while it
 * is mapped kills the process with SIGBUS, as with every mapped file; penstock writes its own
 * files by rename only.
 */
#include "runtime/formats/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/formats/gguf_file.h"

enum {
    KEY_BYTES_MAX = 65535,
    NAME_BYTES_MAX = 64,
    KEYS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 18,
    KEY_BYTES_LEAST = 8 + 1 + 4 + 1, /* length, one character, kind, a byte */
    TENSOR_BYTES_LEAST = 8 + 1 + 4 + 8 + 4 + 8,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
};

struct cursor {
    const uint8_t *data;
    size_t len;
    size_t pos;
};

/* The next n bytes, or an error that says how many are missing for what. */
static int take(struct cursor *c, uint64_t n, const char *what, const uint8_t **ret,
                struct err *err)
{
    uint64_t left = c->len - c->pos;

    if (n > left)
        return err_set(err, ERR_INVALID, "gguf: file ends at offset %zu, %llu bytes missing in %s",
                       c->len, (unsigned long long)(n - left), what);
    *ret = c->data + c->pos;
    c->pos += (size_t)n;
    return 0;
}

static int take_int(struct cursor *c, size_t bytes, const char *what, uint64_t *ret,
                    struct err *err)
{
    const uint8_t *p = NULL;
    int r = take(c, bytes, what, &p, err);

    if (r == 0)
        *ret = gguf_load(p, bytes);
    return r;
}

static int take_string(struct cursor *c, uint64_t max, const char *what, struct gguf_str *ret,
                       struct err *err)
{
    uint64_t len = 0;
    size_t at = c->pos;
    const uint8_t *p = NULL;
    int r = take_int(c, 8, what, &len, err);

    if (r < 0)
        return r;
    if (len > max)
        return err_set(err, ERR_INVALID, "gguf: offset %zu: %s of %llu bytes, at most %llu", at,
                       what, (unsigned long long)len, (unsigned long long)max);
    r = take(c, len, what, &p, err);
    if (r < 0)
        return r;
    *ret = (struct gguf_str){.data = (const char *)p, .len = (size_t)len};
    return 0;
}

/* Walk the elements of one value, so that the getters need not look at bounds. */
static int take_value(struct cursor *c, struct gguf_kv *kv, struct err *err)
{
    size_t bytes = gguf_kind_bytes(kv->kind);
    struct gguf_str s;
    const uint8_t *p = NULL;
    int r;

    if (bytes > 0) {
        if (kv->n > (c->len - c->pos) / bytes)
            return err_set(err, ERR_INVALID,
                           "gguf: offset %zu: an array of %llu elements in a file of %zu bytes",
                           c->pos, (unsigned long long)kv->n, c->len);
        r = take(c, kv->n * bytes, "a value", &p, err);
        kv->value = r == 0 ? p : NULL;
        return r;
    }
    kv->value = c->data + c->pos;
    for (uint64_t i = 0; i < kv->n; i++) {
        r = take_string(c, UINT64_MAX, "a string", &s, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_kv(struct cursor *c, struct gguf_kv *kv, struct err *err)
{
    uint64_t kind = 0;
    size_t at = c->pos;
    int r = take_string(c, KEY_BYTES_MAX, "a key", &kv->key, err);

    if (r < 0)
        return r;
    if (kv->key.len == 0)
        return err_set(err, ERR_INVALID, "gguf: offset %zu: an empty key", at);
    at = c->pos;
    r = take_int(c, 4, "a value type", &kind, err);
    if (r < 0)
        return r;
    kv->n = 1;
    if (kind == KIND_ARRAY) {
        kv->is_array = true;
        at = c->pos;
        r = take_int(c, 4, "an array type", &kind, err);
        if (r == 0)
            r = take_int(c, 8, "an array length", &kv->n, err);
        if (r < 0)
            return r;
    }
    if (kind >= KIND_COUNT || kind == KIND_ARRAY)
        return err_set(err, ERR_INVALID, "gguf: offset %zu: value type %llu", at,
                       (unsigned long long)kind);
    kv->kind = (enum gguf_kind)kind;
    return take_value(c, kv, err);
}

static int kv_cmp(const void *a, const void *b)
{
    return gguf_str_cmp(&((const struct gguf_kv *)a)->key, &((const struct gguf_kv *)b)->key);
}

static int parse_keys(struct gguf *g, struct cursor *c, uint64_t n, struct err *err)
{
    int r;

    if (n > KEYS_MAX || n > c->len / KEY_BYTES_LEAST)
        return err_set(err, ERR_INVALID, "gguf: offset 16: %llu keys in a file of %zu bytes",
                       (unsigned long long)n, c->len);
    g->kv = mem_calloc((size_t)n + 1, sizeof(*g->kv));
    if (!g->kv)
        return err_set(err, ERR_NO_MEMORY, "gguf: %llu keys", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        r = take_kv(c, &g->kv[i], err);
        if (r < 0)
            return r;
    }
    g->n_kv = (size_t)n;
    qsort(g->kv, g->n_kv, sizeof(*g->kv), kv_cmp);
    for (size_t i = 1; i < g->n_kv; i++)
        if (kv_cmp(&g->kv[i - 1], &g->kv[i]) == 0)
            return err_set(err, ERR_INVALID, "gguf: key '%.*s' is there twice",
                           (int)g->kv[i].key.len, g->kv[i].key.data);
    return 0;
}

/* Dimensions to bytes, refusing every product that does not fit. */
static int tensor_size(struct gguf_tensor *t, size_t at, struct err *err)
{
    uint32_t block_len = gguf_block_len(t->type);
    uint64_t n = 1;
    bool over = false;

    if (block_len == 0)
        return err_set(err, ERR_INVALID,
                       "gguf: offset %zu: tensor '%.*s' has type %d, which is not supported", at,
                       (int)t->name.len, t->name.data, (int)t->type);
    for (uint32_t d = 0; d < GGUF_DIMS_MAX; d++)
        over = over || t->ne[d] == 0 || __builtin_mul_overflow(n, t->ne[d], &n);
    over = over || n > (uint64_t)1 << 48;
    if (over || t->ne[0] % block_len != 0)
        return err_set(err, ERR_INVALID,
                       "gguf: offset %zu: tensor '%.*s' of type %s has impossible dimensions "
                       "%llu x %llu x %llu x %llu",
                       at, (int)t->name.len, t->name.data, gguf_type_name(t->type),
                       (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                       (unsigned long long)t->ne[2], (unsigned long long)t->ne[3]);
    t->bytes = n / block_len * gguf_block_bytes(t->type);
    return 0;
}

/* One directory entry; *ret_offset is relative to the data section, which is not known yet. */
static int take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *ret_offset,
                       struct err *err)
{
    uint64_t v = 0;
    size_t at = c->pos;
    int r = take_string(c, NAME_BYTES_MAX, "a tensor name", &t->name, err);

    if (r == 0)
        r = take_int(c, 4, "a tensor's dimensions", &v, err);
    if (r < 0)
        return r;
    if (v == 0 || v > GGUF_DIMS_MAX)
        return err_set(err, ERR_INVALID, "gguf: offset %zu: tensor '%.*s' with %llu dimensions", at,
                       (int)t->name.len, t->name.data, (unsigned long long)v);
    t->n_dims = (uint32_t)v;
    for (uint32_t d = 0; d < GGUF_DIMS_MAX; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims)
            r = take_int(c, 8, "a tensor's dimensions", &t->ne[d], err);
        if (r < 0)
            return r;
    }
    r = take_int(c, 4, "a tensor's type", &v, err);
    if (r == 0)
        r = take_int(c, 8, "a tensor's offset", ret_offset, err);
    if (r < 0)
        return r;
    t->type = v <= INT32_MAX ? (enum gguf_type)v : (enum gguf_type)INT32_MAX;
    return tensor_size(t, at, err);
}

static int alignment_get(const struct gguf *g, uint64_t *ret, struct err *err)
{
    int r;

    *ret = ALIGNMENT_DEFAULT;
    if (!gguf_has(g, "general.alignment"))
        return 0;
    r = gguf_u64(g, "general.alignment", ALIGNMENT_MAX, ret, err);
    if (r < 0)
        return r;
    if (*ret < 8 || (*ret & (*ret - 1)) != 0)
        return err_set(err, ERR_INVALID,
                       "gguf: general.alignment is %llu, want a power of two of at least 8",
                       (unsigned long long)*ret);
    return 0;
}

/* Tensors follow each other in the order of the directory, each at the next aligned offset.
 * Anything else would overlap or leave holes, and no writer does it. */
static int place_tensors(struct gguf *g, const struct cursor *c, const uint64_t *offsets,
                         struct err *err)
{
    uint64_t alignment = 0;
    uint64_t start;
    uint64_t want = 0;
    int r = alignment_get(g, &alignment, err);

    if (r < 0)
        return r;
    start = (c->pos + alignment - 1) & ~(alignment - 1);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];

        if (offsets[i] != want)
            return err_set(err, ERR_INVALID,
                           "gguf: tensor '%.*s' is at data offset %llu, want %llu",
                           (int)t->name.len, t->name.data, (unsigned long long)offsets[i],
                           (unsigned long long)want);
        /* below 2^18 tensors x 2^50 bytes: no overflow */
        if (start + want + t->bytes > g->len)
            return err_set(err, ERR_INVALID,
                           "gguf: file ends at offset %zu, %llu bytes missing in tensor '%.*s'",
                           g->len, (unsigned long long)(start + want + t->bytes - g->len),
                           (int)t->name.len, t->name.data);
        t->data = g->data + start + want;
        want = (want + t->bytes + alignment - 1) & ~(alignment - 1);
    }
    return 0;
}

static int index_cmp(const void *a, const void *b)
{
    const struct gguf_tensor *const *ta = a;
    const struct gguf_tensor *const *tb = b;

    return gguf_str_cmp(&(*ta)->name, &(*tb)->name);
}

static int index_tensors(struct gguf *g, struct err *err)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        g->index[i] = &g->tensors[i];
    qsort(g->index, g->n_tensors, sizeof(*g->index), index_cmp);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (index_cmp(&g->index[i - 1], &g->index[i]) == 0)
            return err_set(err, ERR_INVALID, "gguf: tensor '%.*s' is there twice",
                           (int)g->index[i]->name.len, g->index[i]->name.data);
    return 0;
}

static int parse_tensors(struct gguf *g, struct cursor *c, uint64_t n, struct err *err)
{
    CLEANUP(mem_freep) uint64_t *offsets = NULL;
    int r;

    offsets = mem_calloc((size_t)n + 1, sizeof(*offsets));
    g->tensors = mem_calloc((size_t)n + 1, sizeof(*g->tensors));
    g->index = mem_calloc((size_t)n + 1, sizeof(*g->index));
    if (!offsets || !g->tensors || !g->index)
        return err_set(err, ERR_NO_MEMORY, "gguf: %llu tensors", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        r = take_tensor(c, &g->tensors[i], &offsets[i], err);
        if (r < 0)
            return r;
    }
    g->n_tensors = (size_t)n;
    r = place_tensors(g, c, offsets, err);
    return r < 0 ? r : index_tensors(g, err);
}

static int parse(struct gguf *g, struct err *err)
{
    struct cursor c = {.data = g->data, .len = g->len};
    const uint8_t *magic = NULL;
    uint64_t version = 0;
    uint64_t n_tensors = 0;
    uint64_t n_kv = 0;
    int r = take(&c, 4, "the header", &magic, err);

    if (r == 0 && memcmp(magic, "GGUF", 4) != 0)
        return err_set(err, ERR_INVALID, "gguf: offset 0: not a GGUF file");
    if (r == 0)
        r = take_int(&c, 4, "the header", &version, err);
    if (r == 0 && version != 2 && version != 3)
        return err_set(err, ERR_INVALID, "gguf: offset 4: version %llu, want 2 or 3%s",
                       (unsigned long long)version,
                       (version & 0xffff) == 0 ? " (a big-endian file?)" : "");
    if (r == 0)
        r = take_int(&c, 8, "the header", &n_tensors, err);
    if (r == 0)
        r = take_int(&c, 8, "the header", &n_kv, err);
    if (r < 0)
        return r;
    if (n_tensors > TENSORS_MAX || n_tensors > g->len / TENSOR_BYTES_LEAST)
        return err_set(err, ERR_INVALID, "gguf: offset 8: %llu tensors in a file of %zu bytes",
                       (unsigned long long)n_tensors, g->len);
    r = parse_keys(g, &c, n_kv, err);
    return r < 0 ? r : parse_tensors(g, &c, n_tensors, err);
}

int gguf_parse(const void *data, size_t len, struct gguf **ret, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *g = mem_calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_set(err, ERR_NO_MEMORY, "gguf");
    g->data = data;
    g->len = len;
    r = parse(g, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(g);
    return 0;
}

/* Map the whole file.  The descriptor is not needed after. */
static int map(const char *path, const uint8_t **ret, size_t *ret_len, struct err *err)
{
    struct stat st;
    void *p = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = 0;

    if (fd < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED, "cannot open '%s': %s",
                       path, strerror(errno));
    if (fstat(fd, &st) < 0)
        r = err_set(err, ERR_DENIED, "cannot stat '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size <= 0)
        r = err_set(err, ERR_INVALID, "'%s' is empty or not a file", path);
    if (r == 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            r = err_set(err, ERR_NO_MEMORY, "cannot map '%s': %s", path, strerror(errno));
    }
    close(fd);
    if (r < 0)
        return r;
    *ret = p;
    *ret_len = (size_t)st.st_size;
    return 0;
}

int gguf_open(const char *path, struct gguf **ret, struct err *err)
{
    const uint8_t *data = NULL;
    size_t len = 0;
    int r = map(path, &data, &len, err);

    if (r < 0)
        return r;
    r = gguf_parse(data, len, ret, err);
    if (r < 0) {
        munmap((void *)(uintptr_t)data, len);
        return err_wrap(err, "'%s'", path);
    }
    (*ret)->mapped = true;
    return 0;
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    if (g->mapped)
        munmap((void *)(uintptr_t)g->data, g->len);
    mem_free(g->kv);
    mem_free(g->tensors);
    mem_free(g->index);
    mem_free(g);
}

void gguf_drop(const struct gguf *g, const struct gguf_tensor *t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)t->data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)t->data + t->bytes) & ~(page - 1);

    if (g->mapped && first < end)
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
}
