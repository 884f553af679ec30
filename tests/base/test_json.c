/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>

#include "base/json_writer.h"
#include "base/yaml.h"
#include "tests/support.h"

static const struct json_limits small = {.bytes_max = 2000, .depth_max = 4, .values_max = 12};

static void texts_are_accepted_or_refused(void **state)
{
    static const struct {
        const char *text;
        int want;
    } cases[] = {
            {"0", 0},
            {"-0", 0},
            {"1.5e+3", 0},
            {"\"a\"", 0},
            {" [1, 2] ", 0},
            {"{\"a\":{}}", 0},
            {"true", 0},
            {"null", 0},
            {"\"\\u00e9\\ud83d\\ude00\"", 0},
            {"[]", 0},
            {"[[[[]]]]", 0},
            {"", -ERR_INVALID},
            {" ", -ERR_INVALID},
            {"01", -ERR_INVALID},
            {"+1", -ERR_INVALID},
            {"1.", -ERR_INVALID},
            {".5", -ERR_INVALID},
            {"1e", -ERR_INVALID},
            {"1e999", -ERR_INVALID},
            {"NaN", -ERR_INVALID},
            {"Infinity", -ERR_INVALID},
            {"tru", -ERR_INVALID},
            {"truex", -ERR_INVALID},
            {"'a'", -ERR_INVALID},
            {"\"a", -ERR_INVALID},
            {"\"\t\"", -ERR_INVALID},
            {"\"\\x\"", -ERR_INVALID},
            {"\"\\u12\"", -ERR_INVALID},
            {"\"\\u0000\"", -ERR_INVALID},
            {"\"\\ud800\"", -ERR_INVALID},
            {"\"\\ud800\\u0041\"", -ERR_INVALID},
            {"\"\\udc00\"", -ERR_INVALID},
            {"\"\xff\"", -ERR_INVALID},
            {"\"\xc0\xaf\"", -ERR_INVALID},
            {"\xef\xbb\xbf[]", -ERR_INVALID},
            {"[1,]", -ERR_INVALID},
            {"[,1]", -ERR_INVALID},
            {"[1 2]", -ERR_INVALID},
            {"{\"a\"}", -ERR_INVALID},
            {"{\"a\":1,}", -ERR_INVALID},
            {"{a:1}", -ERR_INVALID},
            {"{1:1}", -ERR_INVALID},
            {"[1]]", -ERR_INVALID},
            {"[1}", -ERR_INVALID},
            {"[", -ERR_INVALID},
            {"{\"a\":", -ERR_INVALID},
            {"[] []", -ERR_INVALID},
            {"[[[[[]]]]]", -ERR_INVALID},
            {"[1,1,1,1,1,1,1,1,1,1,1,1,1]", -ERR_INVALID},
            {"//x\n1", -ERR_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(json_freep) cJSON *tree = NULL;
        struct err err = {0};
        int r = json_parse(cases[i].text, strlen(cases[i].text), &small, &tree, &err);

        if (r != cases[i].want)
            fail_msg("'%s' gave %d (%s)", cases[i].text, r, err.msg);
        assert_int_equal(tree != NULL, r == 0);
    }
}

static void raw_nul_and_size_are_refused(void **state)
{
    static char big[3000];
    struct err err;

    (void)state;
    assert_int_equal(json_check("\"a\0b\"", 5, &small, &err), -ERR_INVALID);
    assert_int_equal(json_check("\"\\\0\"", 4, &small, &err), -ERR_INVALID);
    memset(big, ' ', sizeof(big));
    assert_int_equal(json_check(big, sizeof(big), &small, &err), -ERR_INVALID);
}

static void depth_does_not_recurse(void **state)
{
    static char deep[1 << 20];
    static const struct json_limits wide = {
            .bytes_max = 1 << 20, .depth_max = 1 << 20, .values_max = 1 << 20};
    struct err err;

    (void)state;
    memset(deep, '[', sizeof(deep));
    assert_int_equal(json_check(deep, sizeof(deep), &wide, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, "nested too deeply"));
}

static void errors_say_where(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(json_check("{\n \"a\": 01}", 11, &small, &err), -ERR_INVALID);
    assert_string_equal(err.msg, "line 2 column 8: expected ',' or '}'");
}

static void lookups(void **state)
{
    static const char text[] =
            "{\"a\":{\"b\":\"x\",\"n\":7.0,\"t\":true},\"a.b\":1,\"d\":1,\"d\":2}";
    CLEANUP(json_freep) cJSON *t = NULL;
    struct err err;

    (void)state;
    assert_ok(json_parse(text, sizeof(text) - 1, &JSON_LIMITS_DEFAULT, &t, &err), &err);
    assert_string_equal(json_path_str(t, "a.b", ""), "x");
    assert_string_equal(json_path_str(t, "a.c", "none"), "none");
    assert_string_equal(json_path_str(t, "a.b.c", "none"), "none");
    assert_int_equal(json_int(json_get(t, "a"), "n", 0), 7);
    assert_true(json_bool(json_get(t, "a"), "t", false));
    assert_int_equal(json_int(t, "d", 0), 2); /* the last one wins */
    assert_int_equal(cJSON_GetArraySize(t), 3);
    assert_null(json_get(NULL, "a"));
    assert_null(json_get(t, "A"));
}

static int parse_and_free(const char *text)
{
    cJSON *t = NULL;
    struct err err;
    int r = json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &t, &err);

    cJSON_Delete(t);
    return r;
}

static void parsing_survives_every_oom(void **state)
{
    (void)state;
    mem_sweep(parse_and_free("{\"a\":[1,\"b\",{\"c\":null}],\"d\":\"\\u0041\"}"));
}

static void writer_writes_json(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(1000);
    struct json_writer w = json_writer_start(&out);
    struct err err;

    (void)state;
    json_obj(&w);
    json_kv_text(&w, "a\"b", "x\n\x01\\\x7f\xff");
    json_key(&w, "list");
    json_arr(&w);
    json_i64(&w, -5);
    json_u64(&w, UINT64_MAX);
    json_f64(&w, 0.25);
    json_f64(&w, NAN);
    json_text(&w, NULL);
    json_arr(&w);
    json_end(&w);
    json_obj(&w);
    json_end(&w);
    json_end(&w);
    json_kv_bool(&w, "t", true);
    json_end(&w);
    assert_string_equal(str_text(&out),
                        "{\"a\\\"b\":\"x\\n\\u0001\\\\\\u007f\xef\xbf\xbd\",\"list\":[-5,"
                        "18446744073709551615,0.25,null,null,[],{}],\"t\":true}");
    assert_ok(json_check(out.data, out.len, &JSON_LIMITS_DEFAULT, &err), &err);
}

static void yaml_documents(void **state)
{
    static const struct {
        const char *yaml, *json; /* json NULL: refused */
    } cases[] = {
            {"a: 1\nb: [x, 'y', \"z\"]\nc: {d: null, e: true}\n",
             "{\"a\":1,\"b\":[\"x\",\"y\",\"z\"],\"c\":{\"d\":null,\"e\":true}}"},
            {"- 1.5\n- '1.5'\n- 1.2.3\n- ~\n- 0x10\n", "[1.5,\"1.5\",\"1.2.3\",null,\"0x10\"]"},
            {"", "null"},
            {"k: |\n  two\n  lines\n", "{\"k\":\"two\\nlines\\n\"}"},
            {"a: &x 1\nb: *x\n", NULL},
            {"a: !!str 1\n", NULL},
            {"a: 1\na: 2\n", NULL},
            {"? [1]\n: 2\n", NULL},
            {"a: 1\n---\nb: 2\n", NULL},
            {"a: [1\n", NULL},
            {"a:\n\t- 1\n", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(json_freep) cJSON *tree = NULL;
        struct err err;
        int r = yaml_parse(cases[i].yaml, strlen(cases[i].yaml), &JSON_LIMITS_DEFAULT, &tree, &err);
        char *text;

        if (!cases[i].json) {
            if (r != -ERR_INVALID)
                fail_msg("'%s' was accepted", cases[i].yaml);
            continue;
        }
        assert_ok(r, &err);
        text = json_print(tree);
        assert_string_equal(text, cases[i].json);
        mem_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(texts_are_accepted_or_refused),
            cmocka_unit_test(raw_nul_and_size_are_refused),
            cmocka_unit_test(depth_does_not_recurse),
            cmocka_unit_test(errors_say_where),
            cmocka_unit_test(lookups),
            cmocka_unit_test(parsing_survives_every_oom),
            cmocka_unit_test(writer_writes_json),
            cmocka_unit_test(yaml_documents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
