/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a request's head, cut into line and headers the way libmicrohttpd cuts it, to the
 * guard: what passes holds none of what two readers understand differently. */
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/assertion.h"
#include "base/http_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { HEAD_MAX = 4096 };

struct seen {
    unsigned n_hosts, n_lengths, n_encodings, n_authorizations;
    bool bad_byte, other_encoding;
};

static void look(struct seen *s, const char *name, size_t name_len, const char *value,
                 size_t value_len)
{
    s->n_hosts += name_len == 4 && strncasecmp(name, "Host", 4) == 0;
    s->n_lengths += name_len == 14 && strncasecmp(name, "Content-Length", 14) == 0;
    s->n_authorizations += name_len == 13 && strncasecmp(name, "Authorization", 13) == 0;
    if (name_len == 17 && strncasecmp(name, "Transfer-Encoding", 17) == 0) {
        s->n_encodings++;
        s->other_encoding |= value_len != 7 || strncasecmp(value, "chunked", 7) != 0;
    }
    for (size_t i = 0; i < value_len; i++)
        s->bad_byte |= (unsigned char)value[i] < 0x20 && value[i] != '\t';
    for (size_t i = 0; i < name_len; i++)
        s->bad_byte |= (unsigned char)name[i] <= 0x20 || name[i] == ':';
}

/* Cut the next line off; its length without the line end. */
static size_t cut_line(char **at, char *end, char **ret_line)
{
    char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));

    *ret_line = line;
    *at = stop ? stop + 1 : end;
    if (!stop)
        stop = end;
    return (size_t)(stop - line) - (stop > line && stop[-1] == '\r');
}

static void feed_headers(struct http_guard *g, struct seen *s, char *at, char *end)
{
    while (at < end) {
        char *line, *colon;
        size_t n = cut_line(&at, end, &line);

        colon = memchr(line, ':', n);
        if (n == 0 || !colon)
            return;
        for (colon++; colon < line + n && *colon == ' '; colon++)
            ;
        http_guard_header(g, line, strcspn(line, ":"), colon, (size_t)(line + n - colon));
        look(s, line, strcspn(line, ":"), colon, (size_t)(line + n - colon));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char text[HEAD_MAX + 1], *at = text, *line, *save = NULL;
    char *method, *target, *version;
    struct http_guard g = {0};
    struct seen s = {0};
    size_t n = len < HEAD_MAX ? len : HEAD_MAX;

    memcpy(text, data, n);
    text[n] = '\0';
    line = text;
    line[cut_line(&at, text + n, &line)] = '\0';
    method = strtok_r(line, " ", &save);
    target = method ? strtok_r(NULL, " ", &save) : NULL;
    version = target ? strtok_r(NULL, " ", &save) : NULL;
    if (!version)
        return 0;
    http_guard_line(&g, method, target, version);
    feed_headers(&g, &s, at, text + n);
    if (http_guard_finish(&g))
        return 0;
    ASSERT(target[0] == '/' && !strstr(target, "%00"));
    ASSERT(s.n_hosts <= 1 && s.n_authorizations <= 1 && s.n_lengths + s.n_encodings <= 1);
    ASSERT(!s.bad_byte && !s.other_encoding);
    ASSERT(s.n_hosts == 1 || strcmp(version, "HTTP/1.0") == 0);
    return 0;
}
