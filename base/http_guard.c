/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http_guard.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static void refuse(struct http_guard *g, const char *why)
{
    if (!g->why)
        g->why = why;
}

static const char *check_escapes(const char *target)
{
    for (const char *p = target; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (c <= 0x20 || c == 0x7F)
            return "control byte or space in the request target";
        if (c != '%')
            continue;
        if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2]))
            return "broken percent escape in the request target";
        if (p[1] == '0' && p[2] == '0')
            return "%00 in the request target";
    }
    return NULL;
}

static const char *check_path(const char *target)
{
    size_t n = strcspn(target, "?");

    for (size_t i = 0; i + 2 < n; i++)
        if (target[i] == '%' && target[i + 1] == '2' && (target[i + 2] | 32) == 'f')
            return "%2f in the path";
    return memchr(target, '#', n) ? "fragment in the request target" : NULL;
}

void http_guard_line(struct http_guard *g, const char *method, const char *target,
                     const char *version)
{
    static const char *const methods[] = {"GET",   "HEAD",   "POST",   "PUT",
                                          "PATCH", "DELETE", "OPTIONS"};
    bool known = false;

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        known |= strcmp(method, methods[i]) == 0;
    if (!known)
        refuse(g, "unknown method");
    g->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    if (!g->http_1_0 && strcmp(version, "HTTP/1.1") != 0)
        refuse(g, "HTTP version other than 1.0 and 1.1");
    if (target[0] != '/')
        refuse(g, "the request target must be a path");
    else if (check_escapes(target))
        refuse(g, check_escapes(target));
    else if (check_path(target))
        refuse(g, check_path(target));
}

static bool is_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !(s[i] && strchr("!#$%&'*+-.^_`|~", s[i])))
            return false;
    return len > 0;
}

static bool is_text(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7F)
            return false;
    return true;
}

/* host[:port]: what a URL's authority may hold, no user information */
static bool is_host(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !(s[i] && strchr(".-_:[]~", s[i])))
            return false;
    return len > 0 && len < 300;
}

static bool name_is(const char *name, size_t len, const char *want)
{
    return len == strlen(want) && strncasecmp(name, want, len) == 0;
}

/* The first of its name: remembered; a second one: refused. */
static void first_of(struct http_guard *g, bool *seen, const char *why)
{
    if (*seen)
        refuse(g, why);
    *seen = true;
}

void http_guard_header(struct http_guard *g, const char *name, size_t name_len, const char *value,
                       size_t value_len)
{
    if (!is_token(name, name_len)) {
        refuse(g, "malformed header name");
    } else if (!is_text(value, value_len)) {
        refuse(g, "control byte in a header value");
    } else if (name_is(name, name_len, "Content-Length")) {
        first_of(g, &g->has_length, "repeated Content-Length");
    } else if (name_is(name, name_len, "Transfer-Encoding")) {
        first_of(g, &g->has_encoding, "repeated Transfer-Encoding");
        if (!name_is(value, value_len, "chunked"))
            refuse(g, "Transfer-Encoding other than chunked");
    } else if (name_is(name, name_len, "Host")) {
        first_of(g, &g->has_host, "repeated Host");
        if (!is_host(value, value_len))
            refuse(g, "malformed Host");
    } else if (name_is(name, name_len, "Authorization")) {
        first_of(g, &g->has_authorization, "repeated Authorization");
    }
}

const char *http_guard_finish(struct http_guard *g)
{
    if (g->has_encoding && g->has_length)
        refuse(g, "both Transfer-Encoding and Content-Length");
    if (g->has_encoding && g->http_1_0)
        refuse(g, "Transfer-Encoding in HTTP/1.0");
    if (!g->has_host && !g->http_1_0)
        refuse(g, "no Host header");
    return g->why;
}
