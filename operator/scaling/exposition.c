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

/* 1: a series of name with *ret; 0: another line; -1: of name, but unreadable */
static int read_line(const char *line, const char *end, const char *name, double *ret)
{
    size_t n = strlen(name);
    const char *p = line + n;

    if ((size_t)(end - line) <= n || memcmp(line, name, n) != 0)
        return 0;
    if (*p == '{')
        p = skip_labels(p + 1, end);
    else if (*p != ' ' && *p != '\t')
        return 0;
    return p && parse_value(p, end, ret) ? 1 : -1;
}

bool exposition_sum(const char *text, size_t len, const char *name, double *ret)
{
    const char *p = text, *end = text + len;
    double sum = 0;
    bool found = false;

    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        double value;
        int got;

        if (!line_end)
            line_end = end;
        got = read_line(p, line_end, name, &value);
        if (got < 0)
            return false;
        if (got > 0) {
            sum += value;
            found = true;
        }
        p = line_end < end ? line_end + 1 : end;
    }
    *ret = sum;
    return found;
}
