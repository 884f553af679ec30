/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What a request must be before anything looks at its meaning.  libmicrohttpd 0.9.75 accepts forms
 * that two readers understand differently (request smuggling); all of those are refused:
 *   - Transfer-Encoding other than exactly "chunked", or together with Content-Length, or in
 *     HTTP/1.0;
 *   - a repeated Content-Length, Transfer-Encoding, Host or Authorization;
 *   - a header name that is no token (RFC 9110 5.6.2: so "Content-Length :" too), a control byte in
 *     a value;
 *   - a missing (HTTP/1.1), empty or malformed Host;
 *   - a method out of a short list, a version other than HTTP/1.0 and 1.1;
 *   - a target that does not start with '/', with control bytes, a broken escape, %00 or %2f.
 * The server adds: lines that end in a bare LF, folded lines, a NUL, a header without a name.
 * Pure: feed the request line, then each header, then finish. */
struct http_guard {
    bool http_1_0;
    bool has_length, has_encoding, has_host, has_authorization;
    const char *why; /* NULL so far, else the first reason, a constant */
};

void http_guard_line(struct http_guard *g, const char *method, const char *target,
                     const char *version);
void http_guard_header(struct http_guard *g, const char *name, size_t name_len, const char *value,
                       size_t value_len);
/* NULL: the request is sound.  Else why it gets 400 and its connection is closed. */
const char *http_guard_finish(struct http_guard *g);
