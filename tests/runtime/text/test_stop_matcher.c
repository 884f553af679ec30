/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "runtime/text/stop_matcher.h"
#include "tests/support.h"

enum { PIECES_MAX = 8 };

struct scene {
    const char *stops[4];
    const char *pieces[PIECES_MAX];
    const char *shown[PIECES_MAX]; /* what each piece lets out */
    int which;                     /* -1: no stop */
    const char *rest;              /* what the end lets out */
};

static const struct scene scenes[] = {
        {{"END"}, {"abc", "def"}, {"abc", "def"}, -1, ""},
        {{"END"}, {"abE", "N", "Dxyz", "more"}, {"ab", "", "", ""}, 0, ""},
        {{"END"}, {"abE", "N", "Nx"}, {"ab", "", "ENNx"}, -1, ""},
        {{"END"}, {"abEN"}, {"ab"}, -1, "EN"},
        {{"\n\nUser:"}, {"hi\n", "\n", "Use", "r:", " x"}, {"hi", "", "", "", ""}, 0, ""},
        {{"\n\nUser:"}, {"hi\n", "\n", "Use", "d"}, {"hi", "", "", "\n\nUsed"}, -1, ""},
        /* the one that ends first wins, also inside of a longer one */
        {{"abcd", "bc"}, {"xabcd"}, {"xa"}, 1, ""},
        /* two that end together: the longest */
        {{"bc", "abc"}, {"xabc"}, {"x"}, 1, ""},
        {{"bc", "abc"}, {"xa", "b", "c"}, {"x", "", ""}, 1, ""},
        /* what is held changes its string: "aab" held by one, then "b" by the other */
        {{"aabx", "by"}, {"aab", "y"}, {"", "aa"}, 1, ""},
        {{"aaab"}, {"aa", "aa", "a", "b"}, {"", "a", "a", ""}, 0, ""},
        {{"aaab"}, {"aaaa"}, {"a"}, -1, "aaa"},
        {{"a"}, {"a"}, {""}, 0, ""},
        {{NULL}, {"anything"}, {"anything"}, -1, ""},
        {{"é"}, {"caf\xc3", "\xa9!"}, {"caf", ""}, 0, ""},
};

static void test_scenes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        const struct scene *s = &scenes[i];
        CLEANUP(stop_matcher_freep) struct stop_matcher *m = NULL;
        CLEANUP(str_release) struct str out = STR_INIT(1000);
        struct err err;
        size_t n = 0, which = 99;
        bool matched = false;

        while (n < 4 && s->stops[n])
            n++;
        assert_ok(stop_matcher_new(s->stops, n, &m, &err), &err);
        for (size_t p = 0; p < PIECES_MAX && s->pieces[p]; p++) {
            str_clear(&out);
            matched = stop_matcher_add(m, s->pieces[p], strlen(s->pieces[p]), &out, &which);
            assert_string_equal(str_text(&out), s->shown[p]);
        }
        assert_int_equal(matched, s->which >= 0);
        if (matched)
            assert_int_equal(which, s->which);
        str_clear(&out);
        stop_matcher_finish(m, &out);
        assert_string_equal(str_text(&out), s->rest);
    }
}

/* The end of the first stop string in text, by trying every end; its start in *ret_start. */
static size_t first_stop(const char *text, size_t len, const char *const *stops, size_t n,
                         size_t *ret_start)
{
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;

        for (size_t k = 0; k < n; k++) {
            size_t size = strlen(stops[k]);

            if (size <= end && size > longest && memcmp(text + end - size, stops[k], size) == 0)
                longest = size;
        }
        if (longest > 0) {
            *ret_start = end - longest;
            return end;
        }
    }
    return 0;
}

/* Random texts of two letters in random pieces: what comes out is the text up to the stop, and
 * nothing is held that cannot become one. */
static void test_random_pieces(void **state)
{
    static const char *const stops[] = {"abab", "bba", "aaaa", "babba"};
    uint32_t seed = 1;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        CLEANUP(stop_matcher_freep) struct stop_matcher *m = NULL;
        CLEANUP(str_release) struct str out = STR_INIT(1000);
        struct err err;
        char text[41];
        size_t n_stops = 1 + (size_t)round % 4, start = 40, which;
        bool matched = false;

        for (size_t i = 0; i < 40; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = seed >> 31 ? 'a' : 'b';
        }
        text[40] = '\0';
        assert_ok(stop_matcher_new(stops, n_stops, &m, &err), &err);
        for (size_t at = 0, step; at < 40; at += step) {
            step = 1 + (seed >> 8) % 7;
            seed = seed * 1664525u + 1013904223u;
            if (step > 40 - at)
                step = 40 - at;
            matched = stop_matcher_add(m, text + at, step, &out, &which);
        }
        stop_matcher_finish(m, &out);
        assert_int_equal(matched, first_stop(text, 40, stops, n_stops, &start) > 0);
        assert_int_equal(out.len, start);
        assert_memory_equal(str_text(&out), text, start);
    }
}

static void test_refusals(void **state)
{
    const char *many[STOP_STRINGS_MAX + 1];
    char longest[STOP_BYTES_MAX + 2];
    const char *one = longest;
    struct stop_matcher *m = NULL;
    struct err err;

    (void)state;
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++)
        many[i] = "x";
    memset(longest, 'x', sizeof(longest));
    longest[STOP_BYTES_MAX + 1] = '\0';
    assert_int_equal(stop_matcher_new(many, STOP_STRINGS_MAX + 1, &m, &err), -ERR_INVALID);
    assert_int_equal(stop_matcher_new(&one, 1, &m, &err), -ERR_INVALID);
    one = "";
    assert_int_equal(stop_matcher_new(&one, 1, &m, &err), -ERR_INVALID);
    longest[STOP_BYTES_MAX] = '\0';
    one = longest;
    assert_ok(stop_matcher_new(&one, 1, &m, &err), &err);
    stop_matcher_free(m);
}

static void test_out_of_memory(void **state)
{
    static const char *const stops[] = {"one", "two"};
    struct stop_matcher *m = NULL;
    struct err err;

    (void)state;
    mem_sweep(stop_matcher_new(stops, 2, &m, &err));
    stop_matcher_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_scenes),
            cmocka_unit_test(test_random_pieces),
            cmocka_unit_test(test_refusals),
            cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
