/* SPDX-License-Identifier: Apache-2.0
 *
 * str.c - a bounded string builder, and numbers from text.
 *
 * The builder's one idea: an append never has to be checked.  The first one that fails turns all
 * later ones into no-ops, so a text is whole or known not to be; str_check() asks once.
 */
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_CAP = 64 };

void str_release(struct str *s)
{
    mem_free(s->data);
    *s = (struct str){.max = s->max};
}

void str_clear(struct str *s)
{
    s->len = 0;
    s->failed = false;
    if (s->data)
        s->data[0] = '\0';
}

/* Room for n more bytes and the NUL; false: marks the string as failed. */
static bool reserve(struct str *s, size_t n)
{
    size_t need, cap;
    char *data;

    if (s->failed || n > s->max || s->len > s->max - n) {
        s->failed = true;
        return false;
    }
    need = s->len + n + 1;
    if (need <= s->cap)
        return true;
    cap = s->cap ? s->cap : FIRST_CAP;
    while (cap < need)
        cap *= 2;
    data = mem_realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void str_add(struct str *s, const void *data, size_t len)
{
    if (!reserve(s, len))
        return;
    if (len)
        memcpy(s->data + s->len, data, len);
    s->len += len;
    s->data[s->len] = '\0';
}

void str_adds(struct str *s, const char *cstr)
{
    str_add(s, cstr, strlen(cstr));
}

void str_addc(struct str *s, char c)
{
    str_add(s, &c, 1);
}

void str_vaddf(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        s->failed = true;
    else if (reserve(s, (size_t)n)) {
        (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(s, fmt, ap);
    va_end(ap);
}

void str_consume(struct str *s, size_t n)
{
    if (n >= s->len) {
        s->len = 0;
    } else {
        memmove(s->data, s->data + n, s->len - n);
        s->len -= n;
    }
    if (s->data)
        s->data[s->len] = '\0';
}

const char *str_text(const struct str *s)
{
    return s->data ? s->data : "";
}

int str_check(const struct str *s, const char *what, struct err *err)
{
    if (!s->failed)
        return 0;
    return err_set(err, ERR_NO_MEMORY, "%s: over %zu bytes, or out of memory", what, s->max);
}

char *str_take(struct str *s)
{
    char *data = NULL;

    if (s->failed)
        str_release(s);
    else if (reserve(s, 0)) {
        data = s->data;
        data[s->len] = '\0';
        *s = (struct str){.max = s->max};
    }
    return data;
}

/* strtoX accepts leading spaces and an empty text; a number of ours starts with its sign or digit.
 */
static bool starts_number(const char *s, bool sign_ok)
{
    if (sign_ok && *s == '-')
        s++;
    return (*s >= '0' && *s <= '9') || *s == '.';
}

int parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(s, &end, 10);
    if (!starts_number(s, true) || *end != '\0' || errno == EINVAL)
        return err_set(err, ERR_INVALID, "'%.40s' is not a whole number", s);
    if (errno == ERANGE || v < min || v > max)
        return err_set(err, ERR_INVALID, "%.40s is not in %lld..%lld", s, (long long)min,
                       (long long)max);
    *ret = v;
    return 0;
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *err)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(s, &end, 10);
    if (!starts_number(s, false) || *end != '\0' || errno == EINVAL)
        return err_set(err, ERR_INVALID, "'%.40s' is not a whole number", s);
    if (errno == ERANGE || v < min || v > max)
        return err_set(err, ERR_INVALID, "%.40s is not in %llu..%llu", s, (unsigned long long)min,
                       (unsigned long long)max);
    *ret = v;
    return 0;
}

int parse_f64(const char *s, double min, double max, double *ret, struct err *err)
{
    char *end;
    double v = strtod(s, &end);

    if (!starts_number(s, true) || *end != '\0' || strpbrk(s, "xXpP"))
        return err_set(err, ERR_INVALID, "'%.40s' is not a number", s);
    if (!isfinite(v) || v < min || v > max)
        return err_set(err, ERR_INVALID, "%.40s is not in %g..%g", s, min, max);
    *ret = v;
    return 0;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t len = strlen(s), n = strlen(suffix);

    return n <= len && memcmp(s + len - n, suffix, n) == 0;
}
