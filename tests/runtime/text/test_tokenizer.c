/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/text/tiny_vocab.h"
#include "tests/support.h"

enum { B = TINY_BYTES, W = TINY_WORDS };

struct fixture {
    struct gguf_builder file;
    struct gguf *g;
    struct tokenizer *t;
};

static void open_tokenizer(struct fixture *f)
{
    struct err err;

    assert_ok(gguf_parse(f->file.file.data, f->file.file.len, &f->g, &err), &err);
    assert_ok(tokenizer_new(f->g, &f->t, &err), &err);
}

static void tear_down(struct fixture *f)
{
    tokenizer_free(f->t);
    gguf_free(f->g);
    gguf_builder_release(&f->file);
}

struct scene {
    const char *text;
    struct text_span spans[2];
    size_t n_spans;
    int32_t ids[12]; /* -1 ends */
};

static void check_scenes(const struct tokenizer *t, const struct scene *scenes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct scene *s = &scenes[i];
        struct token_list ids = {.max = 100};
        struct err err;
        size_t want = 0;

        while (s->ids[want] >= 0)
            want++;
        assert_ok(tokenizer_encode(t, s->text, strlen(s->text), s->spans, s->n_spans, false, &ids,
                                   &err),
                  &err);
        if (ids.n != want || (want > 0 && memcmp(ids.ids, s->ids, want * sizeof(*ids.ids)) != 0))
            fail_msg("'%s': %zu ids, want %zu; the first is %d", s->text, ids.n, want,
                     ids.n > 0 ? ids.ids[0] : -1);
        token_list_release(&ids);
    }
}

static void test_byte_level(void **state)
{
    static const struct scene scenes[] = {
            {"hello", {{0}}, 0, {W + 3, -1}},
            {"hello hello", {{0}}, 0, {W + 3, W + 5, -1}},
            {"hel", {{0}}, 0, {W + 0, B + 'l', -1}},
            {" h", {{0}}, 0, {W + 4, -1}},
            {"  h", {{0}}, 0, {B + ' ', W + 4, -1}},  /* the last space goes with the word */
            {"12", {{0}}, 0, {B + '1', B + '2', -1}}, /* smollm: digits are alone */
            {"", {{0}}, 0, {-1}},
            {"\xff\xfehe", {{0}}, 0, {B + 0xff, B + 0xfe, W + 0, -1}},
            {"h\xc3", {{0}}, 0, {B + 'h', B + 0xc3, -1}},
            /* special tokens: nowhere, in a span, across its border */
            {"<s>", {{0}}, 0, {B + '<', B + 's', B + '>', -1}},
            {"<s>", {{0, 3}}, 1, {TINY_BOS, -1}},
            {"<s>", {{0, 2}}, 1, {B + '<', B + 's', B + '>', -1}},
            {"<s>", {{1, 3}}, 1, {B + '<', B + 's', B + '>', -1}},
            {"<s><s>", {{3, 6}}, 1, {B + '<', B + 's', B + '>', TINY_BOS, -1}},
            {"<s>e</s>", {{0, 3}, {4, 8}}, 2, {TINY_BOS, B + 'e', TINY_EOS, -1}},
            /* a span's border leaves no trace in the text */
            {"hello", {{0, 2}}, 1, {W + 3, -1}},
            {"hello", {{2, 5}}, 1, {W + 3, -1}},
            /* user-defined tokens are text like any other */
            {"e<table>e", {{0}}, 0, {B + 'e', TINY_TABLE, B + 'e', -1}},
            {"e<table>", {{0, 3}}, 1, {B + 'e', TINY_TABLE, -1}},
    };
    struct fixture f = {0};

    (void)state;
    tiny_vocab_byte_level(&f.file, "smollm");
    open_tokenizer(&f);
    check_scenes(f.t, scenes, sizeof(scenes) / sizeof(scenes[0]));
    tear_down(&f);
}

static void test_gpt2_keeps_digits(void **state)
{
    static const struct scene scenes[] = {
            {"12", {{0}}, 0, {W + 6, -1}},
            {"1212", {{0}}, 0, {W + 6, W + 6, -1}},
            {"121", {{0}}, 0, {W + 6, B + '1', -1}},
    };
    struct fixture f = {0};

    (void)state;
    tiny_vocab_byte_level(&f.file, "gpt-2");
    open_tokenizer(&f);
    check_scenes(f.t, scenes, sizeof(scenes) / sizeof(scenes[0]));
    tear_down(&f);
}

static void test_sentencepiece(void **state)
{
    static const struct scene scenes[] = {
            {"hello", {{0}}, 0, {W + 8, -1}},
            {" hello", {{0}}, 0, {W + 9, -1}},
            {"hel", {{0}}, 0, {W + 5, W + 3, -1}},
            {"\xc3\xa9", {{0}}, 0, {W + 10, -1}},
            {"x", {{0}}, 0, {B + 'x', -1}}, /* no piece: its bytes */
            {"\xe4\xb8\xad", {{0}}, 0, {B + 0xe4, B + 0xb8, B + 0xad, -1}},
            {"\xff\xc3", {{0}}, 0, {B + 0xff, B + 0xc3, -1}},
            /* runs of spaces: user-defined pieces first, the longest, from the left */
            {"  ", {{0}}, 0, {W + 11, -1}},
            {"   ", {{0}}, 0, {W + 12, -1}},
            {"    ", {{0}}, 0, {W + 12, W + 0, -1}},
            {"    hello", {{0}}, 0, {W + 12, W + 9, -1}},
            {"     ", {{0}}, 0, {W + 12, W + 11, -1}},
            {"<s>", {{0, 3}}, 1, {TINY_BOS, -1}},
            {"<table>hello", {{0}}, 0, {TINY_TABLE, W + 8, -1}},
            /* a byte token's name is no byte token */
            {"<0x41>", {{0, 6}}, 1, {B + '<', B + '0', B + 'x', B + '4', B + '1', B + '>', -1}},
    };
    struct fixture f = {0};

    (void)state;
    tiny_vocab_sentencepiece(&f.file, false);
    open_tokenizer(&f);
    check_scenes(f.t, scenes, sizeof(scenes) / sizeof(scenes[0]));
    tear_down(&f);
}

static void test_space_prefix(void **state)
{
    static const struct scene scenes[] = {
            {"hello", {{0}}, 0, {W + 9, -1}},
            {"", {{0}}, 0, {-1}},
            {"<s>hello", {{0, 8}}, 1, {TINY_BOS, W + 9, -1}},
    };
    struct fixture f = {0};

    (void)state;
    tiny_vocab_sentencepiece(&f.file, true);
    open_tokenizer(&f);
    assert_true(tokenizer_adds_space_prefix(f.t));
    check_scenes(f.t, scenes, sizeof(scenes) / sizeof(scenes[0]));
    tear_down(&f);
}

static void test_special_ids(void **state)
{
    struct fixture f = {0};
    struct token_list ids = {.max = 2};
    char many[100];
    struct err err;
    size_t len;

    (void)state;
    tiny_vocab_sentencepiece(&f.file, false);
    open_tokenizer(&f);
    assert_int_equal(tokenizer_bos(f.t), TINY_BOS);
    assert_int_equal(tokenizer_eos(f.t), TINY_EOS);
    assert_string_equal(tokenizer_bos_text(f.t), "<s>");
    assert_string_equal(tokenizer_eos_text(f.t), "</s>");
    assert_true(tokenizer_is_end(f.t, TINY_EOS));
    assert_true(tokenizer_is_end(f.t, TINY_END)); /* by its name */
    assert_false(tokenizer_is_end(f.t, TINY_BOS));
    assert_true(tokenizer_is_special(f.t, TINY_BOS));
    assert_false(tokenizer_is_special(f.t, TINY_TABLE));
    assert_false(tokenizer_is_special(f.t, -1));
    assert_int_equal(tokenizer_n_vocab(f.t), W + 13);
    assert_memory_equal(tokenizer_bytes(f.t, W + 9, &len), " hello", 6);
    assert_int_equal(len, 6);
    assert_memory_equal(tokenizer_bytes(f.t, B, &len), "", 1);
    assert_int_equal(len, 1);
    (void)tokenizer_bytes(f.t, 1 << 20, &len);
    assert_int_equal(len, 0);
    /* the BOS that the metadata asks for (SentencePiece's default), and the list's bound */
    assert_ok(tokenizer_encode(f.t, "hello", 5, NULL, 0, true, &ids, &err), &err);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], TINY_BOS);
    assert_int_equal(tokenizer_encode(f.t, "h", 1, NULL, 0, false, &ids, &err), -ERR_INVALID);
    assert_string_equal(err.msg, "text has more than 2 tokens");
    /* seen by the length alone: even the longest token would not do */
    ids.n = 0;
    memset(many, 'h', sizeof(many));
    assert_int_equal(tokenizer_encode(f.t, many, sizeof(many), NULL, 0, false, &ids, &err),
                     -ERR_INVALID);
    assert_string_equal(err.msg, "text of 100 bytes has more than 2 tokens");
    assert_int_equal(ids.n, 0);
    token_list_release(&ids);
    tear_down(&f);
}

/* A quadratic merge would take hours. */
static void test_a_megabyte(void **state)
{
    static const char chars[] = {'h', ' ', 'l', '1', '\n', (char)0xff};

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        CLEANUP(mem_freep) char *text = mem_calloc(1 << 20, 1);
        struct fixture f = {0};

        if (kind == 0)
            tiny_vocab_byte_level(&f.file, "smollm");
        else
            tiny_vocab_sentencepiece(&f.file, false);
        open_tokenizer(&f);
        for (size_t i = 0; i < sizeof(chars); i++) {
            struct token_list ids = {.max = 1 << 20};
            struct err err;

            memset(text, chars[i], 1 << 20);
            assert_ok(tokenizer_encode(f.t, text, 1 << 20, NULL, 0, false, &ids, &err), &err);
            assert_in_range(ids.n, (1 << 20) / 3, 1 << 20);
            token_list_release(&ids);
        }
        tear_down(&f);
    }
}

/* ---- files that are refused ---- */

static void expect_refused(struct gguf_builder *b, const char *want)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err err = {0};

    if (b->file.len == 0)
        gguf_builder_end(b);
    assert_ok(gguf_parse(b->file.data, b->file.len, &g, &err), &err);
    assert_true(tokenizer_new(g, &t, &err) < 0);
    if (!strstr(err.msg, want))
        fail_msg("'%s' is not in '%s'", want, err.msg);
    gguf_free(g);
    gguf_builder_release(b);
}

static void two_tokens(struct gguf_builder *b, const char *model)
{
    gguf_builder_init(b);
    gguf_builder_string(b, "tokenizer.ggml.model", model);
    gguf_builder_string(b, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_array(b, "tokenizer.ggml.tokens", 8, 2);
    gguf_builder_text(&b->keys, "a");
    gguf_builder_text(&b->keys, "b");
}

static void one_merge(struct gguf_builder *b, const char *merge)
{
    two_tokens(b, "gpt2");
    gguf_builder_array(b, "tokenizer.ggml.merges", 8, 1);
    gguf_builder_text(&b->keys, merge);
}

static void test_refused_merges(void **state)
{
    static const char *const merges[] = {"", "a", "ab", " a", "a ", "a b", "a  b", "x a", "\x01 a"};
    struct gguf_builder b;

    (void)state;
    for (size_t i = 0; i < sizeof(merges) / sizeof(merges[0]); i++) {
        one_merge(&b, merges[i]);
        expect_refused(&b, "merge 0");
    }
}

static void test_refused_files(void **state)
{
    struct gguf_builder b;

    (void)state;
    gguf_builder_init(&b);
    expect_refused(&b, "tokenizer.ggml.model");
    two_tokens(&b, "bert");
    expect_refused(&b, "'bert' is neither gpt2 nor llama");
    two_tokens(&b, "gpt2");
    expect_refused(&b, "tokenizer.ggml.merges");
    two_tokens(&b, "llama");
    expect_refused(&b, "tokenizer.ggml.scores");
    two_tokens(&b, "llama");
    gguf_builder_u32(&b, "tokenizer.ggml.bos_token_id", 2);
    gguf_builder_array(&b, "tokenizer.ggml.scores", 6, 2);
    gguf_builder_raw(&b.keys, 0, 8);
    expect_refused(&b, "tokenizer.ggml.bos_token_id");
    two_tokens(&b, "llama");
    gguf_builder_array(&b, "tokenizer.ggml.scores", 6, 2);
    gguf_builder_raw(&b.keys, 0x7fc00000, 4); /* not a number */
    gguf_builder_raw(&b.keys, 0, 4);
    expect_refused(&b, "no finite score");
    two_tokens(&b, "llama");
    gguf_builder_array(&b, "tokenizer.ggml.token_type", 5, 2);
    gguf_builder_raw(&b.keys, 1, 4);
    gguf_builder_raw(&b.keys, 9, 4);
    expect_refused(&b, "unknown type 9");
    two_tokens(&b, "llama");
    gguf_builder_array(&b, "tokenizer.ggml.token_type", 5, 2);
    gguf_builder_raw(&b.keys, 6, 4);
    gguf_builder_raw(&b.keys, 1, 4);
    expect_refused(&b, "byte token 0");
    tiny_vocab_byte_level(&b, "llama-bpe");
    expect_refused(&b, "pre-tokenizer 'llama-bpe' is not supported");
}

/* ---- words ---- */

static void test_words(void **state)
{
    static const struct {
        const char *kind, *text, *words; /* words: with | between them */
    } cases[] = {
            {"gpt-2", "Hello world", "Hello| world"},
            {"gpt-2", "I'm you're WE'VE", "I|'m| you|'re| WE|'|VE"},
            {"gpt-2", "a  b   c  ", "a| | b|  | c|  "},
            {"gpt-2", "a\n\nb", "a|\n|\n|b"},
            {"gpt-2", "x=12!?", "x|=|12|!?"},
            {"gpt-2", "\xc3\xa9t\xc3\xa9 \xe4\xb8\xad", "\xc3\xa9t\xc3\xa9| \xe4\xb8\xad"},
            {"gpt-2",
             "a\xc2\xa0\xc2\xa0"
             "b",
             "a|\xc2\xa0|\xc2\xa0|b"},
            {"gpt-2",
             "a\xe1\xa0\x8e"
             "b",
             "a|\xe1\xa0\x8e|b"}, /* U+180E is no white space */
            {"gpt-2",
             "ab\xff\xfe"
             "cd",
             "ab|\xff\xfe|cd"},
            {"gpt-2", "", ""},
            {"smollm", "ab 123", "ab| |1|2|3"},
            {"smollm", "a  1", "a|  |1"}, /* the look-ahead stops at the digit */
            {"smollm", "\xc2\xbd\xe2\x85\xa7x", "\xc2\xbd|\xe2\x85\xa7|x"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(pretokenizer_freep) struct pretokenizer *p = NULL;
        CLEANUP(pretokenizer_cut_freep) struct pretokenizer_cut *c = NULL;
        CLEANUP(str_release) struct str got = STR_INIT(200);
        struct err err;
        const char *word;
        size_t len;
        int r;

        assert_ok(pretokenizer_new(cases[i].kind, strlen(cases[i].kind), &p, &err), &err);
        assert_ok(pretokenizer_cut_new(p, cases[i].text, strlen(cases[i].text), &c, &err), &err);
        while ((r = pretokenizer_cut_next(c, &word, &len, &err)) > 0) {
            if (got.len > 0)
                str_addc(&got, '|');
            str_add(&got, word, len);
        }
        assert_ok(r, &err);
        assert_string_equal(str_text(&got), cases[i].words);
    }
}

/* ---- out of memory ---- */

static int encode_once(const struct tokenizer *t, struct err *err)
{
    struct token_list ids = {.max = 1000};
    int r = tokenizer_encode(t, "hello 12 <s> \xff", 14, (struct text_span[]){{0, 14}}, 1, true,
                             &ids, err);

    token_list_release(&ids);
    return r;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct fixture f = {0};
        struct err err;

        if (kind == 0)
            tiny_vocab_byte_level(&f.file, "smollm");
        else
            tiny_vocab_sentencepiece(&f.file, false);
        assert_ok(gguf_parse(f.file.file.data, f.file.file.len, &f.g, &err), &err);
        mem_sweep(tokenizer_new(f.g, &f.t, &err));
        mem_sweep(encode_once(f.t, &err));
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_byte_level),     cmocka_unit_test(test_gpt2_keeps_digits),
            cmocka_unit_test(test_sentencepiece),  cmocka_unit_test(test_space_prefix),
            cmocka_unit_test(test_special_ids),    cmocka_unit_test(test_a_megabyte),
            cmocka_unit_test(test_refused_merges), cmocka_unit_test(test_refused_files),
            cmocka_unit_test(test_words),          cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
