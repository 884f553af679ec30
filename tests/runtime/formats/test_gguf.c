/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/formats/gguf.h"
#include "tests/runtime/formats/gguf_builder.h"

static const float floats[8] = {1, 2, 3, 4, 5, 6, 7, 8};

/* A file with a key of every kind and two tensors. */
static void build(struct gguf_builder *b)
{
    gguf_builder_init(b);
    gguf_builder_string(b, "general.architecture", "llama");
    gguf_builder_u32(b, "a", 7);
    gguf_builder_key(b, "negative", 5);
    gguf_builder_raw(&b->keys, (uint32_t)-3, 4);
    gguf_builder_f32(b, "pi", 3.25F);
    gguf_builder_key(b, "flag", 7);
    gguf_builder_raw(&b->keys, 1, 1);
    gguf_builder_key(b, "big", 10);
    gguf_builder_raw(&b->keys, UINT64_MAX, 8);
    gguf_builder_array(b, "words", 8, 3);
    gguf_builder_text(&b->keys, "one");
    gguf_builder_text(&b->keys, "");
    gguf_builder_text(&b->keys, "three");
    gguf_builder_array(b, "ints", 5, 2);
    gguf_builder_raw(&b->keys, (uint32_t)-1, 4);
    gguf_builder_raw(&b->keys, 5, 4);
    gguf_builder_array(b, "wide", 10, 1);
    gguf_builder_raw(&b->keys, (uint64_t)1 << 40, 8);
    gguf_builder_array(b, "scores", 6, 1);
    gguf_builder_raw(&b->keys, 0x3f800000, 4);
    gguf_builder_tensor(b, "second", GGUF_F32, 4, 2, floats, sizeof(floats));
    gguf_builder_tensor(b, "first", GGUF_Q8_0, 32, 0, "0123456789012345678901234567890123", 34);
    gguf_builder_end(b);
}

static void reads_what_was_written(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct err err;
    struct gguf_str s;
    struct gguf_str words[3];
    int32_t ints[2];
    float score;
    uint64_t u;
    double d;
    size_t n;

    (void)state;
    build(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_ok(gguf_string(g, "general.architecture", &s, &err), &err);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "llama", 5);
    assert_ok(gguf_u64(g, "a", 7, &u, &err), &err);
    assert_int_equal(u, 7);
    assert_ok(gguf_u64(g, "big", UINT64_MAX, &u, &err), &err);
    assert_true(u == UINT64_MAX);
    assert_ok(gguf_f64(g, "pi", &d, &err), &err);
    assert_true(d == 3.25);
    assert_true(gguf_bool(g, "flag", false));
    assert_true(gguf_bool(g, "none", true));
    assert_ok(gguf_array_len(g, "words", &n, &err), &err);
    assert_int_equal(n, 3);
    assert_ok(gguf_array_strings(g, "words", 3, words, &err), &err);
    assert_int_equal(words[1].len, 0);
    assert_memory_equal(words[2].data, "three", 5);
    assert_ok(gguf_array_i32(g, "ints", 2, ints, &err), &err);
    assert_int_equal(ints[0], -1);
    assert_int_equal(ints[1], 5);
    assert_ok(gguf_array_f32(g, "scores", 1, &score, &err), &err);
    assert_true(score == 1.0F);
    assert_int_equal(gguf_file_bytes(g), b.file.len);
}

static void finds_tensors(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    const struct gguf_tensor *t;
    struct err err;

    (void)state;
    build(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_int_equal(gguf_n_tensors(g), 2);
    t = gguf_tensor(g, "second");
    assert_ptr_equal(t, gguf_tensor_at(g, 0));
    assert_int_equal(t->ne[0], 4);
    assert_int_equal(t->ne[1], 2);
    assert_int_equal(t->ne[3], 1);
    assert_int_equal(t->bytes, 32);
    assert_memory_equal(t->data, floats, sizeof(floats));
    t = gguf_tensor(g, "first");
    assert_int_equal(t->bytes, 34);
    assert_memory_equal(t->data, "0123", 4);
    assert_null(gguf_tensor(g, "third"));
    assert_null(gguf_tensor(g, "firs"));
}

static void wrong_expectations_are_refused(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct err err;
    struct gguf_str s[4];
    int32_t ints[2];
    float f[2];
    uint64_t u;
    double d;
    size_t n;

    (void)state;
    build(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_int_equal(gguf_u64(g, "none", 1, &u, &err), -ERR_NOT_FOUND);
    assert_int_equal(gguf_u64(g, "a", 6, &u, &err), -ERR_INVALID);
    assert_int_equal(gguf_u64(g, "negative", UINT64_MAX, &u, &err), -ERR_INVALID);
    assert_int_equal(gguf_u64(g, "pi", 9, &u, &err), -ERR_INVALID);
    assert_int_equal(gguf_u64(g, "words", 9, &u, &err), -ERR_INVALID);
    assert_int_equal(gguf_f64(g, "a", &d, &err), -ERR_INVALID);
    assert_int_equal(gguf_f64(g, "ints", &d, &err), -ERR_INVALID);
    assert_int_equal(gguf_string(g, "a", s, &err), -ERR_INVALID);
    assert_int_equal(gguf_string(g, "none", s, &err), -ERR_NOT_FOUND);
    assert_int_equal(gguf_array_len(g, "a", &n, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_strings(g, "words", 4, s, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_strings(g, "ints", 2, s, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_i32(g, "wide", 1, ints, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_i32(g, "scores", 1, ints, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_f32(g, "ints", 2, f, &err), -ERR_INVALID);
    assert_int_equal(gguf_array_f32(g, "none", 2, f, &err), -ERR_NOT_FOUND);
}

/* Every prefix of a good file is refused with the offset where it ends. */
static void every_truncation_is_refused(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;

    (void)state;
    build(&b);
    for (size_t len = 0; len < b.file.len - 30; len++) { /* the last 30 bytes are padding */
        CLEANUP(mem_freep) void *copy = mem_calloc(1, len + 1);
        struct gguf *g = NULL;
        struct err err;
        char want[64];

        memcpy(copy, b.file.data, len);
        assert_int_equal(gguf_parse(copy, len, &g, &err), -ERR_INVALID);
        assert_null(g);
        (void)snprintf(want, sizeof(want), "file ends at offset %zu", len);
        if (!strstr(err.msg, want))
            assert_non_null(strstr(err.msg, "in a file of"));
    }
}

enum lie {
    LIE_MAGIC,
    LIE_VERSION_1,
    LIE_BIG_ENDIAN,
    LIE_MANY_KEYS,
    LIE_MANY_TENSORS,
    LIE_KIND,
    LIE_NESTED_ARRAY,
    LIE_ARRAY_LENGTH,
    LIE_STRING_LENGTH,
    LIE_KEY_TWICE,
    LIE_EMPTY_KEY,
    LIE_TENSOR_TWICE,
    LIE_TENSOR_TYPE,
    LIE_TENSOR_TYPE_REMOVED,
    LIE_NO_DIMENSIONS,
    LIE_FIVE_DIMENSIONS,
    LIE_ZERO_DIMENSION,
    LIE_PRODUCT,
    LIE_HALF_BLOCK,
    LIE_OFFSET,
    LIE_ALIGNMENT,
    LIE_ALIGNMENT_KIND,
    LIE_NAME_LENGTH,
};

static void info(struct gguf_builder *b, const char *name, uint32_t n_dims, uint64_t ne,
                 uint32_t type, uint64_t offset)
{
    gguf_builder_text(&b->infos, name);
    gguf_builder_raw(&b->infos, n_dims, 4);
    for (uint32_t d = 0; d < n_dims; d++)
        gguf_builder_raw(&b->infos, ne, 8);
    gguf_builder_raw(&b->infos, type, 4);
    gguf_builder_raw(&b->infos, offset, 8);
    b->n_tensors++;
}

static void lie_in_keys(struct gguf_builder *b, enum lie lie)
{
    if (lie == LIE_KIND)
        gguf_builder_key(b, "k", 13);
    if (lie == LIE_NESTED_ARRAY)
        gguf_builder_array(b, "k", 9, 1);
    if (lie == LIE_ARRAY_LENGTH)
        gguf_builder_array(b, "k", 10, UINT64_MAX / 8 + 2);
    if (lie == LIE_STRING_LENGTH) {
        gguf_builder_key(b, "k", 8);
        gguf_builder_raw(&b->keys, UINT64_MAX, 8);
    }
    if (lie == LIE_KEY_TWICE)
        gguf_builder_u32(b, "a", 1);
    if (lie == LIE_EMPTY_KEY)
        gguf_builder_u32(b, "", 1);
    if (lie == LIE_ALIGNMENT)
        gguf_builder_u32(b, "general.alignment", 48);
    if (lie == LIE_ALIGNMENT_KIND)
        gguf_builder_string(b, "general.alignment", "32");
}

static void lie_in_tensors(struct gguf_builder *b, enum lie lie)
{
    if (lie == LIE_TENSOR_TWICE)
        gguf_builder_tensor(b, "first", GGUF_F32, 8, 0, floats, sizeof(floats));
    if (lie == LIE_TENSOR_TYPE)
        info(b, "t", 1, 32, 99, b->data.len);
    if (lie == LIE_TENSOR_TYPE_REMOVED)
        info(b, "t", 1, 32, 4, b->data.len);
    if (lie == LIE_NO_DIMENSIONS)
        info(b, "t", 0, 32, 0, b->data.len);
    if (lie == LIE_FIVE_DIMENSIONS)
        info(b, "t", 5, 1, 0, b->data.len);
    if (lie == LIE_ZERO_DIMENSION)
        info(b, "t", 2, 0, 0, b->data.len);
    if (lie == LIE_PRODUCT)
        info(b, "t", 4, (uint64_t)1 << 16, 0, b->data.len);
    if (lie == LIE_HALF_BLOCK)
        info(b, "t", 1, 48, GGUF_Q4_0, b->data.len);
    if (lie == LIE_OFFSET)
        info(b, "t", 1, 8, 0, 0);
    if (lie == LIE_NAME_LENGTH)
        info(b, "0123456789012345678901234567890123456789012345678901234567890123456789", 1, 8, 0,
             b->data.len);
}

static void lies_are_refused(void **state)
{
    static const struct {
        enum lie lie;
        const char *says;
    } table[] = {
            {LIE_MAGIC, "not a GGUF file"},
            {LIE_VERSION_1, "version 1"},
            {LIE_BIG_ENDIAN, "big-endian"},
            {LIE_MANY_KEYS, "keys in a file"},
            {LIE_MANY_TENSORS, "tensors in a file"},
            {LIE_KIND, "value type 13"},
            {LIE_NESTED_ARRAY, "value type 9"},
            {LIE_ARRAY_LENGTH, "an array of"},
            {LIE_STRING_LENGTH, "bytes missing in a string"},
            {LIE_KEY_TWICE, "key 'a' is there twice"},
            {LIE_EMPTY_KEY, "an empty key"},
            {LIE_TENSOR_TWICE, "tensor 'first' is there twice"},
            {LIE_TENSOR_TYPE, "type 99"},
            {LIE_TENSOR_TYPE_REMOVED, "type 4"},
            {LIE_NO_DIMENSIONS, "0 dimensions"},
            {LIE_FIVE_DIMENSIONS, "5 dimensions"},
            {LIE_ZERO_DIMENSION, "impossible dimensions"},
            {LIE_PRODUCT, "impossible dimensions"},
            {LIE_HALF_BLOCK, "impossible dimensions"},
            {LIE_OFFSET, "at data offset 0"},
            {LIE_ALIGNMENT, "power of two"},
            {LIE_ALIGNMENT_KIND, "general.alignment"},
            {LIE_NAME_LENGTH, "a tensor name of 70 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        CLEANUP(gguf_builder_release) struct gguf_builder b;
        struct gguf *g = NULL;
        struct err err;

        build(&b);
        lie_in_keys(&b, table[i].lie);
        lie_in_tensors(&b, table[i].lie);
        if (table[i].lie == LIE_VERSION_1)
            b.version = 1;
        if (table[i].lie == LIE_BIG_ENDIAN)
            b.version = 0x03000000;
        if (table[i].lie == LIE_MANY_KEYS)
            b.n_keys = UINT64_MAX;
        if (table[i].lie == LIE_MANY_TENSORS)
            b.n_tensors = (uint64_t)1 << 40;
        gguf_builder_end(&b);
        if (table[i].lie == LIE_MAGIC)
            b.file.data[3] = 'X';
        assert_int_equal(gguf_parse(b.file.data, b.file.len, &g, &err), -ERR_INVALID);
        if (!strstr(err.msg, table[i].says))
            fail_msg("want '%s' in '%s'", table[i].says, err.msg);
    }
}

static void opens_a_file(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    char path[] = "/tmp/test_gguf_XXXXXX";
    struct gguf *none = NULL;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    build(&b);
    assert_true(write(fd, b.file.data, b.file.len) == (ssize_t)b.file.len);
    assert_ok(gguf_open(path, &g, &err), &err);
    gguf_drop(g, gguf_tensor_at(g, 0));
    assert_memory_equal(gguf_tensor_at(g, 0)->data, floats, sizeof(floats));
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(gguf_open(path, &none, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(gguf_open(path, &none, &err), -ERR_INVALID);
    close(fd);
    unlink(path);
    assert_int_equal(gguf_open(path, &none, &err), -ERR_NOT_FOUND);
    assert_int_equal(gguf_open("/", &none, &err), -ERR_INVALID);
}

static int parse_once(const struct gguf_builder *b, struct err *err)
{
    struct gguf *g = NULL;
    int r = gguf_parse(b->file.data, b->file.len, &g, err);

    gguf_free(g);
    return r;
}

static void survives_no_memory(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    struct err err;

    (void)state;
    build(&b);
    mem_sweep(parse_once(&b, &err));
}

static void types_have_sizes(void **state)
{
    (void)state;
    assert_int_equal(gguf_block_len(GGUF_Q4_K), 256);
    assert_int_equal(gguf_block_bytes(GGUF_Q6_K), 210);
    assert_string_equal(gguf_type_name(GGUF_BF16), "BF16");
    assert_int_equal(gguf_block_len((enum gguf_type)10), 0);
    assert_int_equal(gguf_block_bytes((enum gguf_type)10), 0);
    assert_string_equal(gguf_type_name((enum gguf_type)10), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(reads_what_was_written),
            cmocka_unit_test(finds_tensors),
            cmocka_unit_test(wrong_expectations_are_refused),
            cmocka_unit_test(every_truncation_is_refused),
            cmocka_unit_test(lies_are_refused),
            cmocka_unit_test(opens_a_file),
            cmocka_unit_test(survives_no_memory),
            cmocka_unit_test(types_have_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
