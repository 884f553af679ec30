/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - strings of a template.
 *
 * Nearly all strings are of one kind, wholly literal or wholly content, and then carry no marks;
 * only a concatenation of both gets a mark a byte.  Cutting shares bytes and marks.
 */
#include "runtime/text/jinja/text.h"

#include <string.h>

#include "base/utf8.h"

bool jinja_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

struct jinja_str jinja_cut(struct jinja_str s, size_t at, size_t len)
{
    return (struct jinja_str){
            .data = s.data + at,
            .len = len,
            .marks = s.marks ? s.marks + at : NULL,
            .literal = s.literal,
    };
}

struct jinja_str jinja_with_data(struct jinja_str s, const char *data)
{
    s.data = data;
    return s;
}

bool jinja_str_equal(struct jinja_str a, struct jinja_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool jinja_str_is(struct jinja_str a, const char *b)
{
    return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

ptrdiff_t jinja_find(struct jinja_str s, size_t at, struct jinja_str what)
{
    const char *p;

    if (what.len == 0)
        return (ptrdiff_t)at;
    if (s.len - at < what.len)
        return -1;
    p = memmem(s.data + at, s.len - at, what.data, what.len);
    return p ? p - s.data : -1;
}

size_t jinja_char_len(struct jinja_str s, size_t at)
{
    uint32_t cp;
    int n = utf8_decode(s.data + at, s.len - at, &cp);

    return n > 0 ? (size_t)n : 1;
}

size_t jinja_n_chars(struct jinja_str s)
{
    size_t n = 0;

    for (size_t at = 0; at < s.len; at += jinja_char_len(s, at))
        n++;
    return n;
}

static bool of_one_kind(const struct jinja_str *parts, size_t n, bool *ret_literal)
{
    bool seen = false;

    *ret_literal = false;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len == 0)
            continue;
        if (parts[i].marks || (seen && parts[i].literal != *ret_literal))
            return false;
        *ret_literal = parts[i].literal;
        seen = true;
    }
    return true;
}

int jinja_concat(struct jinja_run *run, const struct jinja_str *parts, size_t n,
                 struct jinja_str *ret)
{
    size_t len = 0, at = 0;
    char *data;
    uint8_t *marks = NULL;
    bool literal;

    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    data = jinja_alloc(run, len + 1, 1);
    if (!data)
        return -(int)run->err->code;
    if (!of_one_kind(parts, n, &literal)) {
        marks = jinja_alloc(run, len + 1, 1);
        if (!marks)
            return -(int)run->err->code;
    }
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len == 0)
            continue;
        memcpy(data + at, parts[i].data, parts[i].len);
        if (marks && parts[i].marks)
            memcpy(marks + at, parts[i].marks, parts[i].len);
        else if (marks)
            memset(marks + at, parts[i].literal, parts[i].len);
        at += parts[i].len;
    }
    *ret = (struct jinja_str){.data = data, .len = len, .marks = marks, .literal = literal};
    return 0;
}

static bool strips(struct jinja_str s, size_t at, size_t len, const struct jinja_str *chars)
{
    uint32_t cp;

    if (chars)
        return jinja_find(*chars, 0, jinja_cut(s, at, len)) >= 0;
    return utf8_decode(s.data + at, len, &cp) > 0 && jinja_is_space(cp);
}

/* The last character's first byte. */
static size_t last_char(struct jinja_str s)
{
    size_t at = s.len - 1;

    while (at > 0 && s.len - at < 4 && ((unsigned char)s.data[at] & 0xc0) == 0x80)
        at--;
    return jinja_char_len(s, at) == s.len - at ? at : s.len - 1;
}

int jinja_strip(struct jinja_run *run, struct jinja_str s, const struct jinja_str *chars,
                enum jinja_side side, struct jinja_str *ret)
{
    size_t before = s.len;

    while ((side & JINJA_LEFT) && s.len > 0) {
        size_t n = jinja_char_len(s, 0);

        if (!strips(s, 0, n, chars))
            break;
        s = jinja_cut(s, n, s.len - n);
    }
    while ((side & JINJA_RIGHT) && s.len > 0) {
        size_t at = last_char(s);

        if (!strips(s, at, s.len - at, chars))
            break;
        s.len = at;
    }
    *ret = s;
    return jinja_charge_bytes(run, (before - s.len) * (chars ? chars->len + 1 : 1));
}

/* Where the next separator is: its start and end in bytes, from 'at' on. */
static bool next_gap(struct jinja_str s, const struct jinja_str *sep, size_t at, size_t *ret_start,
                     size_t *ret_end)
{
    if (sep) {
        ptrdiff_t found = jinja_find(s, at, *sep);

        if (found < 0)
            return false;
        *ret_start = (size_t)found;
        *ret_end = (size_t)found + sep->len;
        return true;
    }
    for (; at < s.len; at += jinja_char_len(s, at))
        if (strips(s, at, jinja_char_len(s, at), NULL))
            break;
    *ret_start = at;
    while (at < s.len && strips(s, at, jinja_char_len(s, at), NULL))
        at += jinja_char_len(s, at);
    *ret_end = at;
    return *ret_start < s.len;
}

/* The bytes of white space that s begins with. */
static size_t space_before(struct jinja_str s)
{
    size_t at = 0;

    while (at < s.len && strips(s, at, jinja_char_len(s, at), NULL))
        at += jinja_char_len(s, at);
    return at;
}

static size_t count_gaps(struct jinja_str s, const struct jinja_str *sep)
{
    size_t n = 0, start, end, at = 0;

    for (; next_gap(s, sep, at, &start, &end); at = end)
        n++;
    return n;
}

int jinja_split(struct jinja_run *run, struct jinja_str s, const struct jinja_str *sep, int64_t max,
                bool from_right, struct jinja_value *ret)
{
    struct jinja_list *list;
    struct jinja_str core = s;
    size_t gaps, skip = 0, start, end, at = 0, from = 0, n = 0;
    int r = jinja_charge_bytes(run, 2 * s.len);

    if (r == 0 && sep && sep->len == 0)
        return jinja_fail(run, "split() by an empty string");
    if (r == 0 && !sep) /* the white space around separates nothing */
        r = jinja_strip(run, s, NULL, JINJA_BOTH, &core);
    if (r < 0)
        return r;
    gaps = count_gaps(core, sep);
    if (max >= 0 && (uint64_t)max <= gaps && core.len > 0) {
        skip = from_right ? gaps - (size_t)max : 0;
        gaps = from_right ? gaps : (size_t)max;
        if (!sep) /* the part that was not split keeps what Python did not look at */
            core = from_right ? jinja_cut(s, 0, (size_t)(core.data - s.data) + core.len)
                              : jinja_cut(s, (size_t)(core.data - s.data),
                                          s.len - (size_t)(core.data - s.data));
        if (!sep && from_right)
            at = space_before(core);
    }
    list = jinja_list_new(run, !sep && core.len == 0 ? 0 : gaps - skip + 1);
    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < gaps && next_gap(core, sep, at, &start, &end); i++, at = end) {
        if (i < skip)
            continue;
        list->items[n++] = jinja_text(jinja_cut(core, from, start - from));
        from = end;
    }
    if (n < list->n)
        list->items[n] = jinja_text(jinja_cut(core, from, core.len - from));
    return jinja_list_done(run, list, ret);
}

/* Every character with 'to' before it, and one 'to' behind the last: replacing an empty string. */
static int replace_empty(struct jinja_run *run, struct jinja_str s, struct jinja_str to, size_t max,
                         struct jinja_str *ret)
{
    size_t n_chars = jinja_n_chars(s), n = 0, at = 0;
    struct jinja_str *parts = jinja_alloc(run, 2 * n_chars + 1, sizeof(*parts));

    if (!parts)
        return -(int)run->err->code;
    for (size_t i = 0; i <= n_chars; i++) {
        size_t len = i < n_chars ? jinja_char_len(s, at) : 0;

        if (i < max)
            parts[n++] = to;
        if (i < n_chars)
            parts[n++] = jinja_cut(s, at, len);
        at += len;
    }
    return jinja_concat(run, parts, n, ret);
}

int jinja_replace(struct jinja_run *run, struct jinja_str s, struct jinja_str from,
                  struct jinja_str to, int64_t max, struct jinja_str *ret)
{
    size_t limit = max < 0 ? SIZE_MAX : (size_t)max;
    size_t n_hits, n = 0, at = 0;
    struct jinja_str *parts;
    int r = jinja_charge_bytes(run, 2 * s.len);

    if (r < 0)
        return r;
    if (from.len == 0)
        return replace_empty(run, s, to, limit, ret);
    n_hits = count_gaps(s, &from);
    if (n_hits > limit)
        n_hits = limit;
    parts = jinja_alloc(run, 2 * n_hits + 1, sizeof(*parts));
    if (!parts)
        return -(int)run->err->code;
    for (size_t i = 0; i < n_hits; i++) {
        size_t hit = (size_t)jinja_find(s, at, from);

        parts[n++] = jinja_cut(s, at, hit - at);
        parts[n++] = to;
        at = hit + from.len;
    }
    parts[n++] = jinja_cut(s, at, s.len - at);
    return jinja_concat(run, parts, n, ret);
}

struct slice {
    int64_t first, step;
    size_t count;
};

/* Python's rules for the bounds of a slice over n items. */
static int slice_bounds(struct jinja_run *run, const struct jinja_value bounds[3], size_t n,
                        struct slice *ret)
{
    int64_t len = (int64_t)n, step = bounds[2].type == JINJA_INT ? bounds[2].integer : 1;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? len : len - 1;
    int64_t limits[2], distance;

    for (int i = 0; i < 3; i++)
        if (bounds[i].type != JINJA_INT && bounds[i].type != JINJA_NONE)
            return jinja_fail(run, "a slice by %s", jinja_type_name(bounds[i]));
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
        return jinja_fail(run, "a slice in steps of %lld", (long long)step);
    for (int i = 0; i < 2; i++) {
        int64_t v = (i == 0) == (step > 0) ? low : high; /* what an absent bound means */

        if (bounds[i].type == JINJA_INT)
            v = bounds[i].integer >= 0     ? bounds[i].integer
                : bounds[i].integer < -len ? low
                                           : bounds[i].integer + len;
        limits[i] = v < low ? low : v > high ? high : v;
    }
    distance = step > 0 ? limits[1] - limits[0] : limits[0] - limits[1];
    *ret = (struct slice){.first = limits[0], .step = step};
    if (distance > 0)
        ret->count = (size_t)((distance - 1) / (step > 0 ? step : -step) + 1);
    return 0;
}

static int slice_str(struct jinja_run *run, const struct jinja_list *chars, struct jinja_str s,
                     struct slice slice, struct jinja_value *ret)
{
    struct jinja_str *parts;
    struct jinja_str whole = {0};
    int r;

    if (slice.count > 0 && slice.step == 1) { /* the usual case shares the bytes */
        struct jinja_str first = chars->items[slice.first].str;
        struct jinja_str last = chars->items[(size_t)slice.first + slice.count - 1].str;

        *ret = jinja_text(jinja_cut(s, (size_t)(first.data - s.data),
                                    (size_t)(last.data + last.len - first.data)));
        return 0;
    }
    parts = jinja_alloc(run, slice.count + 1, sizeof(*parts));
    if (!parts)
        return -(int)run->err->code;
    for (size_t i = 0; i < slice.count; i++)
        parts[i] = chars->items[slice.first + (int64_t)i * slice.step].str;
    r = jinja_concat(run, parts, slice.count, &whole);
    *ret = jinja_text(whole);
    return r;
}

int jinja_slice(struct jinja_run *run, struct jinja_value v, const struct jinja_value bounds[3],
                struct jinja_value *ret)
{
    const struct jinja_list *items;
    struct jinja_list *list;
    struct slice slice = {0};
    int r;

    if (v.type != JINJA_STR && v.type != JINJA_LIST)
        return jinja_fail(run, "%s cannot be sliced", jinja_type_name(v));
    r = jinja_items(run, v, &items);
    if (r == 0)
        r = slice_bounds(run, bounds, items->n, &slice);
    if (r < 0)
        return r;
    if (v.type == JINJA_STR)
        return slice_str(run, items, v.str, slice, ret);
    list = jinja_list_new(run, slice.count);
    if (!list)
        return -(int)run->err->code;
    list->is_tuple = v.list->is_tuple;
    for (size_t i = 0; i < slice.count; i++)
        list->items[i] = items->items[slice.first + (int64_t)i * slice.step];
    return jinja_list_done(run, list, ret);
}
