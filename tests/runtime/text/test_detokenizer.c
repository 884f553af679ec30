/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "base/utf8.h"
#include "runtime/text/detokenizer.h"
#include "tests/runtime/text/tiny_vocab.h"
#include "tests/support.h"

#define FFFD "\xEF\xBF\xBD"

struct fixture {
    struct gguf_builder file;
    struct gguf *g;
    struct tokenizer *t;
};

static void set_up(struct fixture *f, bool sentencepiece, bool prefix)
{
    struct err err;

    if (sentencepiece)
        tiny_vocab_sentencepiece(&f->file, prefix);
    else
        tiny_vocab_byte_level(&f->file, "gpt-2");
    assert_ok(gguf_parse(f->file.file.data, f->file.file.len, &f->g, &err), &err);
    assert_ok(tokenizer_new(f->g, &f->t, &err), &err);
}

static void tear_down(struct fixture *f)
{
    tokenizer_free(f->t);
    gguf_free(f->g);
    gguf_builder_release(&f->file);
}

/* One byte token after the other: after each one everything so far is valid UTF-8, and the whole is
 * what decoding it at once gives. */
static void test_bytes(void **state)
{
    static const struct {
        const char *bytes, *want;
    } cases[] = {
            {"abc", "abc"},
            {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
             "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7"},
            {"a\xF0\x9F\x91", "a" FFFD},
            {"\xFFx", FFFD "x"},
            {"\x80\x80", FFFD FFFD},
            {"\xF0\x9Fx", FFFD "x"},
            {"\xE2\x82\xE2\x82\xAC", FFFD "\xE2\x82\xAC"},
            {"\xED\xA0\x80", FFFD FFFD FFFD},
            {"\xC0\xAF", FFFD FFFD},
            {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
            {"\xF0\xF0\x9F\x98\x80", FFFD "\xF0\x9F\x98\x80"},
    };
    struct fixture f = {0};

    (void)state;
    set_up(&f, false, false);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(str_release) struct str out = STR_INIT(100);
        CLEANUP(str_release) struct str lossy = STR_INIT(100);
        struct detokenizer d;

        detokenizer_init(&d, f.t, true);
        for (const char *p = cases[i].bytes; *p; p++) {
            detokenizer_add(&d, TINY_BYTES + (unsigned char)*p, &out);
            assert_true(utf8_valid(str_text(&out), out.len));
            assert_in_range(d.n_held, 0, 3);
        }
        detokenizer_finish(&d, &out);
        utf8_add_lossy(&lossy, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(str_text(&out), cases[i].want);
        assert_string_equal(str_text(&out), str_text(&lossy));
    }
    tear_down(&f);
}

static void test_special_tokens(void **state)
{
    struct fixture f = {0};

    (void)state;
    set_up(&f, false, false);
    for (int skip = 0; skip < 2; skip++) {
        CLEANUP(str_release) struct str out = STR_INIT(100);
        struct detokenizer d;

        detokenizer_init(&d, f.t, skip);
        detokenizer_add(&d, TINY_BOS, &out);
        detokenizer_add(&d, TINY_WORDS + 3, &out);
        detokenizer_add(&d, TINY_TABLE, &out);
        detokenizer_add(&d, TINY_END, &out);
        detokenizer_add(&d, -1, &out);
        detokenizer_add(&d, INT32_MAX, &out);
        detokenizer_finish(&d, &out);
        assert_string_equal(str_text(&out), skip ? "hello<table>" : "<s>hello<table><|im_end|>");
    }
    tear_down(&f);
}

static void test_first_space(void **state)
{
    (void)state;
    for (int prefix = 0; prefix < 2; prefix++) {
        CLEANUP(str_release) struct str out = STR_INIT(100);
        struct fixture f = {0};
        struct detokenizer d;

        set_up(&f, true, prefix);
        detokenizer_init(&d, f.t, true);
        detokenizer_add(&d, TINY_BOS, &out);
        detokenizer_add(&d, TINY_WORDS + 9, &out); /* "▁hello" */
        detokenizer_add(&d, TINY_WORDS + 9, &out);
        detokenizer_add(&d, TINY_WORDS + 11, &out);
        detokenizer_finish(&d, &out);
        assert_string_equal(str_text(&out), prefix ? "hello hello  " : " hello hello  ");
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_bytes),
            cmocka_unit_test(test_special_tokens),
            cmocka_unit_test(test_first_space),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
