/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* A byte string that grows up to a bound.  An append that does not fit or finds no memory
 * sets 'failed' and changes nothing, and so do all later ones: build, then check once with
 * str_check().  Always NUL-terminated once something was appended; may hold NULs.
 *
 *   CLEANUP(str_release) struct str s = STR_INIT(64 << 10);
 */
struct str {
    char *data; /* NULL until the first append */
    size_t len;
    size_t cap;
    size_t max; /* len never exceeds it */
    bool failed;
};

#define STR_INIT(max_bytes) \
    {                       \
        .max = (max_bytes)  \
    }

void str_release(struct str *s); /* back to empty, memory freed, max kept */
void str_clear(struct str *s);   /* back to empty, memory kept */

void str_add(struct str *s, const void *data, size_t len);
void str_adds(struct str *s, const char *cstr);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(struct str *s, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Drop the first n bytes. */
void str_consume(struct str *s, size_t n);
/* The text, "" when empty. */
const char *str_text(const struct str *s);
/* 0, or ERR_NO_MEMORY naming what. */
int str_check(const struct str *s, const char *what, struct err *err) MUST_CHECK;
/* Take the buffer out (mem_free() it); NULL if failed. s is empty after. */
char *str_take(struct str *s);

/* Numbers from text: the whole of s must be the number, or ERR_INVALID. */
int parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *err) MUST_CHECK;
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *err) MUST_CHECK;
int parse_f64(const char *s, double min, double max, double *ret, struct err *err) MUST_CHECK;

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
