/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http_guard.h"

#include "tests/support.h"

static const char *check(const char *method, const char *target, const char *version,
                         const char *const headers[][2])
{
    struct http_guard g = {0};

    http_guard_line(&g, method, target, version);
    for (; (*headers)[0]; headers++)
        http_guard_header(&g, (*headers)[0], strlen((*headers)[0]), (*headers)[1],
                          strlen((*headers)[1]));
    return http_guard_finish(&g);
}

#define HOST           \
    {                  \
        "Host", "a:80" \
    }
#define END        \
    {              \
        NULL, NULL \
    }

static void sound_requests_pass(void **state)
{
    static const char *const plain[][2] = {HOST, END};
    static const char *const post[][2] = {HOST, {"Content-Length", "3"}, END};
    static const char *const chunked[][2] = {HOST, {"Transfer-Encoding", "chunked"}, END};
    static const char *const v6[][2] = {{"host", "[::1]:80"}, {"X-A%2fb", "text\t\x80"}, END};
    static const char *const none[][2] = {END};

    (void)state;
    assert_null(check("GET", "/", "HTTP/1.1", plain));
    assert_null(check("POST", "/a?b=%2f&c=//", "HTTP/1.1", post));
    assert_null(check("POST", "/", "HTTP/1.1", chunked));
    assert_null(check("GET", "/", "HTTP/1.1", v6));
    assert_null(check("GET", "/", "HTTP/1.0", none));
}

static void each_rule_refuses(void **state)
{
    static const struct {
        const char *method, *target, *version;
        const char *headers[4][2];
        const char *why;
    } cases[] = {
            {"BREW", "/", "HTTP/1.1", {HOST}, "unknown method"},
            {"GET", "/", "HTTP/2.0", {HOST}, "HTTP version other than 1.0 and 1.1"},
            {"GET", "x", "HTTP/1.1", {HOST}, "the request target must be a path"},
            {"GET", "/%", "HTTP/1.1", {HOST}, "broken percent escape in the request target"},
            {"GET", "/?%00", "HTTP/1.1", {HOST}, "%00 in the request target"},
            {"GET", "/%2Fa", "HTTP/1.1", {HOST}, "%2f in the path"},
            {"GET", "/a#b", "HTTP/1.1", {HOST}, "fragment in the request target"},
            {"GET", "/\x01", "HTTP/1.1", {HOST}, "control byte or space in the request target"},
            {"GET", "/", "HTTP/1.1", {{"A B", ""}, HOST}, "malformed header name"},
            {"GET", "/", "HTTP/1.1", {{"A", "\x02"}, HOST}, "control byte in a header value"},
            {"GET", "/", "HTTP/1.1", {HOST, {"HOST", "a"}}, "repeated Host"},
            {"GET", "/", "HTTP/1.1", {{"Host", "a/b"}}, "malformed Host"},
            {"GET", "/", "HTTP/1.1", {{"X", "y"}}, "no Host header"},
            {"GET",
             "/",
             "HTTP/1.1",
             {HOST, {"Content-Length", "1"}, {"content-length", "1"}},
             "repeated Content-Length"},
            {"GET",
             "/",
             "HTTP/1.1",
             {HOST, {"Transfer-Encoding", "gzip"}},
             "Transfer-Encoding other than chunked"},
            {"GET",
             "/",
             "HTTP/1.1",
             {HOST, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
             "repeated Transfer-Encoding"},
            {"GET",
             "/",
             "HTTP/1.1",
             {HOST, {"Transfer-Encoding", "chunked"}, {"Content-Length", "1"}},
             "both Transfer-Encoding and Content-Length"},
            {"GET",
             "/",
             "HTTP/1.0",
             {{"Transfer-Encoding", "chunked"}},
             "Transfer-Encoding in HTTP/1.0"},
            {"GET",
             "/",
             "HTTP/1.1",
             {HOST, {"Authorization", "a"}, {"AUTHORIZATION", "b"}},
             "repeated Authorization"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why =
                check(cases[i].method, cases[i].target, cases[i].version, cases[i].headers);

        if (!why || strcmp(why, cases[i].why) != 0)
            fail_msg("case %zu: got '%s', want '%s'", i, why ? why : "accepted", cases[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sound_requests_pass),
            cmocka_unit_test(each_rule_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
