/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/str.h"
#include "base/url.h"
#include "base/utf8.h"
#include "tests/support.h"

static void a_string_keeps_its_bound(void **state)
{
    CLEANUP(str_release) struct str s = STR_INIT(10);
    struct err err;

    (void)state;
    assert_string_equal(str_text(&s), "");
    str_adds(&s, "0123456789");
    assert_int_equal(s.len, 10);
    assert_ok(str_check(&s, "text", &err), &err);
    str_addc(&s, 'x'); /* does not fit: nothing changes, and nothing goes in after */
    str_clear(&s);
    str_addf(&s, "%d-%s", 42, "abc");
    assert_string_equal(str_text(&s), "42-abc");
    str_consume(&s, 3);
    assert_string_equal(str_text(&s), "abc");
    str_adds(&s, "12345678");
    str_addc(&s, 'y');
    assert_string_equal(str_text(&s), "abc");
    assert_int_equal(str_check(&s, "text", &err), -ERR_NO_MEMORY);
}

static int build_text(void)
{
    CLEANUP(str_release) struct str s = STR_INIT(10000);
    struct err err;

    for (int i = 0; i < 500; i++)
        str_addf(&s, "%d,", i);
    return str_check(&s, "text", &err);
}

static void a_string_survives_every_oom(void **state)
{
    (void)state;
    mem_sweep(build_text());
}

static void numbers_are_whole_or_refused(void **state)
{
    static const struct {
        const char *text;
        int want;
        int64_t value;
    } cases[] = {
            {"0", 0, 0},
            {"-5", 0, -5},
            {"100", 0, 100},
            {"101", -1, 0},
            {"-6", -1, 0},
            {"", -1, 0},
            {" 1", -1, 0},
            {"1 ", -1, 0},
            {"1.0", -1, 0},
            {"0x1", -1, 0},
            {"+1", -1, 0},
            {"-", -1, 0},
            {"99999999999999999999", -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t v = 0;
        struct err err;

        assert_int_equal(parse_i64(cases[i].text, -5, 100, &v, &err),
                         cases[i].want * (int)ERR_INVALID);
        assert_int_equal(v, cases[i].value);
    }
}

static void floats_are_whole_or_refused(void **state)
{
    static const char *const bad[] = {"nan", "inf", "1e999", "0x1p3", "1,5", "", "--1", "1e"};
    struct err err;
    double v;

    (void)state;
    assert_ok(parse_f64("-2.5e-1", -1, 1, &v, &err), &err);
    assert_true(v == -0.25);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_f64(bad[i], -1e9, 1e9, &v, &err), -ERR_INVALID);
}

static void utf8_round_trips_every_scalar_value(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char bytes[4];
        uint32_t back;
        int n;

        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        n = utf8_encode(cp, bytes);
        assert_int_equal(utf8_decode(bytes, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        if (n > 1)
            assert_int_equal(utf8_decode(bytes, (size_t)n - 1, &back), -1);
    }
}

static void broken_utf8_is_replaced_part_by_part(void **state)
{
#define FFFD "\xef\xbf\xbd"
    static const struct {
        const char *in, *want;
    } cases[] = {
            {"abc", "abc"},
            {"a\x80z", "a" FFFD "z"},
            {"\xc0\xaf", FFFD FFFD},
            {"\xe2\x82", FFFD}, /* the start of a character, cut off */
            {"\xe2\x82z", FFFD "z"},
            {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
            {"\xed\xa0\x80", FFFD FFFD FFFD}, /* a surrogate */
            {"\xf5\x80\x80\x80", FFFD FFFD FFFD FFFD},
            {"\xf0\x9f\xf0\x9f\x98\x80", FFFD "\xf0\x9f\x98\x80"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(str_release) struct str out = STR_INIT(100);

        utf8_add_lossy(&out, cases[i].in, strlen(cases[i].in));
        assert_string_equal(str_text(&out), cases[i].want);
    }
}

static void urls_are_taken_apart(void **state)
{
    struct url u;
    struct err err;

    (void)state;
    assert_ok(url_parse("HTTPS://Example.org:8443/a%20b/c?d=e", &u, &err), &err);
    assert_string_equal(u.scheme, "https");
    assert_string_equal(u.host, "example.org");
    assert_int_equal(u.port, 8443);
    assert_string_equal(u.path, "/a%20b/c");
    assert_string_equal(u.query, "d=e");
    assert_ok(url_parse("http://[2001:DB8::1]?x", &u, &err), &err);
    assert_string_equal(u.host, "2001:db8::1");
    assert_string_equal(u.path, "/");
    assert_string_equal(u.query, "x");
}

static void urls_with_two_readings_are_refused(void **state)
{
    static const char *const bad[] = {
            "",
            "example.org",
            "//a/b",
            "http:/a",
            "http://",
            "http:///x",
            "http://a@b/",
            "http://a b/",
            "http://a\\b/",
            "http://a/\n",
            "http://a:0/",
            "http://a:65536/",
            "http://a:/",
            "http://a:x/",
            "http://[::1/",
            "http://[::1]x/",
            "http://a/%",
            "http://a/%g0",
            "http://a/#f",
            "http://a\x80/",
            "1http://a/",
            "http://a,b/",
    };
    struct url u;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (url_parse(bad[i], &u, &err) != -ERR_INVALID)
            fail_msg("'%s' was accepted", bad[i]);
}

static void private_addresses_are_known(void **state)
{
    static const struct {
        const char *address;
        bool is_private;
    } cases[] = {
            {"127.0.0.1", true},
            {"10.1.2.3", true},
            {"172.16.0.1", true},
            {"172.31.255.255", true},
            {"172.32.0.1", false},
            {"192.168.1.1", true},
            {"169.254.169.254", true},
            {"100.64.0.1", true},
            {"100.128.0.1", false},
            {"0.0.0.0", true},
            {"224.0.0.1", true},
            {"255.255.255.255", true},
            {"8.8.8.8", false},
            {"192.0.0.1", true},
            {"::1", true},
            {"::", true},
            {"fe80::1", true},
            {"fc00::1", true},
            {"fd12::1", true},
            {"ff02::1", true},
            {"::ffff:10.0.0.1", true},
            {"::ffff:8.8.8.8", false},
            {"64:ff9b::7f00:1", true},
            {"2002:7f00:1::", true},
            {"2001:4860:4860::8888", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        bool is_v4 = inet_pton(AF_INET, cases[i].address, &v4.sin_addr) == 1;

        if (!is_v4)
            assert_int_equal(inet_pton(AF_INET6, cases[i].address, &v6.sin6_addr), 1);
        if (url_address_is_private(is_v4 ? (void *)&v4 : (void *)&v6) != cases[i].is_private)
            fail_msg("%s", cases[i].address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(a_string_keeps_its_bound),
            cmocka_unit_test(a_string_survives_every_oom),
            cmocka_unit_test(numbers_are_whole_or_refused),
            cmocka_unit_test(floats_are_whole_or_refused),
            cmocka_unit_test(utf8_round_trips_every_scalar_value),
            cmocka_unit_test(broken_utf8_is_replaced_part_by_part),
            cmocka_unit_test(urls_are_taken_apart),
            cmocka_unit_test(urls_with_two_readings_are_refused),
            cmocka_unit_test(private_addresses_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
