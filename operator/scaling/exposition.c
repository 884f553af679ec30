/* SPDX-License-Identifier: Apache-2.0
 *
 * exposition.c - reads the few lines of /metrics that scaling needs.
 *
 * The text comes from a pod, which anybody may have written: lines are bounded by the buffer, a
 * label value may hold anything, and a figure that cannot be a count (negative, not a number, out
 * of range) makes the whole sample missing rather than zero.
 */
#include "operator/scaling/exposition.h"

#include <string.h>

#include "base/str.h"

enum { NUMBER_MAX = 40 };

/* Over the labels: the byte after '}', or NULL. */
static const char *skip_labels(const char *p, const char *end)
{
    bool quoted = false;

    for (; p < end; p++) {
        if (quoted && *p == '\\')
            p++;
        else if (*p == '"')
            quoted = !quoted;
        else if (!quoted && *p == '}')
            return p + 1;
    }
    return NULL;
}

static bool parse_value(const char *p, const char *end, double *ret)
{
    char text[NUMBER_MAX];
    struct err err;
    size_t n = 0;

    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (p + n < end && p[n] != ' ' && p[n] != '\t' && p[n] != '\r')
        n++;
    if (n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    return parse_f64(text, 0, 1e15, ret, &err) == 0;
}

/* 1: a series of name with *ret and its labels, from '{' on; 0: another line; -1: of name, but
 * unreadable */
static int read_line(const char *line, const char *end, const char *name,
                     struct exposition_series *ret)
{
    size_t n = strlen(name);
    const char *p = line + n;

    ret->labels = p;
    ret->labels_len = 0;

    if ((size_t)(end - line) <= n || memcmp(line, name, n) != 0)
        return 0;
    if (*p == '{')
        p = skip_labels(p + 1, end);
    else if (*p != ' ' && *p != '\t')
        return 0;
    if (p)
        ret->labels_len = (size_t)(p - ret->labels);
    return p && parse_value(p, end, &ret->value) ? 1 : -1;
}

int exposition_next(const char **text, const char *end, const char *name,
                    struct exposition_series *ret)
{
    while (*text < end) {
        const char *line = *text;
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        int got;

        if (!line_end)
            line_end = end;
        *text = line_end < end ? line_end + 1 : end;
        got = read_line(line, line_end, name, ret);
        if (got)
            return got;
    }
    return 0;
}

bool exposition_label(const struct exposition_series *s, const char *name, char *out, size_t size)
{
    const char *p = s->labels, *end = p + s->labels_len;
    size_t n = strlen(name);

    while (p < end && (*p == '{' || *p == ',')) {
        const char *value, *close;

        p++;
        value = memchr(p, '"', (size_t)(end - p));
        if (!value)
            return false;
        for (close = ++value; close < end && *close != '"'; close++)
            close += *close == '\\';
        if (close >= end)
            return false;
        if ((size_t)(value - p) == n + 2 && memcmp(p, name, n) == 0 && p[n] == '=') {
            if ((size_t)(close - value) >= size || memchr(value, '\\', (size_t)(close - value)))
                return false;
            memcpy(out, value, (size_t)(close - value));
            out[close - value] = '\0';
            return true;
        }
        p = close + 1;
    }
    return false;
}

bool exposition_sum(const char *text, size_t len, const char *name, double *ret)
{
    const char *end = text + len;
    struct exposition_series s;
    size_t n = 0;
    int got;

    *ret = 0;
    while ((got = exposition_next(&text, end, name, &s)) > 0) {
        *ret += s.value;
        n++;
    }
    return got == 0 && n > 0;
}

bool exposition_mean(const char *text, size_t len, const char *name, double *ret)
{
    const char *end = text + len;
    struct exposition_series s;
    double sum = 0;
    size_t n = 0;
    int got;

    while ((got = exposition_next(&text, end, name, &s)) > 0) {
        sum += s.value;
        n++;
    }
    *ret = n ? sum / (double)n : 0;
    return got == 0 && n > 0;
}
