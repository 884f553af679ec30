/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c - values as text: str() and repr() of Python, and json.dumps().
 *
 * A string goes through as it is, marks and all.  Whatever else is printed is literal when it is
 * one of ours to spell (True, None, a number) and content as soon as it may hold a message's text.
 *
 * One difference is known: repr() of a string escapes control characters only, where Python also
 * escapes what Unicode calls unprintable.  It shows when a template prints a list as it is.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/utf8.h"
#include "runtime/text/jinja/text.h"

/* The shortest decimal that reads back as d, the way Python writes it. */
static void add_float(struct str *out, double d)
{
    char digits[40];
    int precision = 1;
    double back;
    struct err err;

    if (isnan(d) || isinf(d)) {
        str_adds(out, isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    do {
        (void)snprintf(digits, sizeof(digits), "%.*e", precision - 1, d);
    } while ((parse_f64(digits, -INFINITY, INFINITY, &back, &err) < 0 || back != d) &&
             precision++ < 17);
    if (d != 0 && (fabs(d) < 1e-4 || fabs(d) >= 1e16)) {
        str_adds(out, digits);
        return;
    }
    (void)snprintf(digits, sizeof(digits), "%.*g", precision < 17 ? precision : 17, d);
    if (strchr(digits, 'e')) /* 1e+15 of one digit: all of it is wanted */
        (void)snprintf(digits, sizeof(digits), "%.0f", d);
    str_adds(out, digits);
    if (!strchr(digits, '.'))
        str_adds(out, ".0");
}

static void add_repr_char(struct str *out, uint32_t cp, const char *bytes, size_t len, char quote)
{
    if (cp == '\n')
        str_adds(out, "\\n");
    else if (cp == '\r')
        str_adds(out, "\\r");
    else if (cp == '\t')
        str_adds(out, "\\t");
    else if (cp == '\\' || cp == (uint32_t)quote)
        str_addf(out, "\\%c", (char)cp);
    else if (cp < 0x20 || (cp >= 0x7f && cp <= 0xa0) || cp == 0xad)
        str_addf(out, "\\x%02x", cp);
    else
        str_add(out, bytes, len);
}

static void add_repr_str(struct str *out, struct jinja_str s)
{
    bool single = s.len > 0 && memchr(s.data, '\'', s.len);
    bool both = single && memchr(s.data, '"', s.len);
    char quote = single && !both ? '"' : '\'';

    str_addc(out, quote);
    for (size_t at = 0; at < s.len;) {
        uint32_t cp = 0xfffd;
        size_t len = jinja_char_len(s, at);

        (void)utf8_decode(s.data + at, len, &cp);
        add_repr_char(out, cp, s.data + at, len, quote);
        at += len;
    }
    str_addc(out, quote);
}

static int add_repr(struct jinja_run *run, struct jinja_value v, struct str *out);

static int add_repr_list(struct jinja_run *run, const struct jinja_list *list, struct str *out)
{
    int r = 0;

    str_addc(out, list->is_tuple ? '(' : '[');
    for (size_t i = 0; i < list->n && r == 0; i++) {
        if (i > 0)
            str_adds(out, ", ");
        r = add_repr(run, list->items[i], out);
    }
    if (list->is_tuple && list->n == 1)
        str_addc(out, ',');
    str_addc(out, list->is_tuple ? ')' : ']');
    return r;
}

static int add_repr_dict(struct jinja_run *run, const struct jinja_dict *dict, struct str *out)
{
    int r = 0;

    str_addc(out, '{');
    for (size_t i = 0; i < dict->n && r == 0; i++) {
        if (i > 0)
            str_adds(out, ", ");
        add_repr_str(out, dict->entries[i].key);
        str_adds(out, ": ");
        r = add_repr(run, dict->entries[i].value, out);
    }
    str_addc(out, '}');
    return r;
}

static int add_repr(struct jinja_run *run, struct jinja_value v, struct str *out)
{
    int r = jinja_charge(run, 1);

    if (r < 0)
        return r;
    switch (v.type) {
    case JINJA_UNDEFINED:
        str_adds(out, "Undefined");
        return 0;
    case JINJA_NONE:
        str_adds(out, "None");
        return 0;
    case JINJA_BOOL:
        str_adds(out, v.boolean ? "True" : "False");
        return 0;
    case JINJA_INT:
        str_addf(out, "%" PRId64, v.integer);
        return 0;
    case JINJA_FLOAT:
        add_float(out, v.number);
        return 0;
    case JINJA_STR:
        add_repr_str(out, v.str);
        return jinja_charge_bytes(run, v.str.len);
    case JINJA_LIST:
        return add_repr_list(run, v.list, out);
    case JINJA_DICT:
        return add_repr_dict(run, v.dict, out);
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
        break;
    }
    return jinja_fail(run, "a %s cannot be printed", jinja_type_name(v));
}

/* From the heap into the rendering's arena. */
static int keep(struct jinja_run *run, const struct str *s, bool literal, struct jinja_str *ret)
{
    char *copy;

    if (s->failed && s->len + 1024 > s->max)
        return jinja_fail(run, "the template needs more than %zu bytes", run->bytes_max);
    if (str_check(s, "template", run->err) < 0)
        return -(int)run->err->code;
    copy = jinja_alloc(run, s->len + 1, 1);
    if (!copy)
        return -(int)run->err->code;
    memcpy(copy, str_text(s), s->len);
    *ret = (struct jinja_str){.data = copy, .len = s->len, .literal = literal};
    return 0;
}

int jinja_to_str(struct jinja_run *run, struct jinja_value v, struct jinja_str *ret)
{
    struct str out = STR_INIT(run->bytes_max);
    int r;

    if (v.type == JINJA_STR || v.type == JINJA_UNDEFINED) {
        *ret = v.type == JINJA_STR ? v.str : jinja_literal("");
        return 0;
    }
    r = add_repr(run, v, &out);
    if (r == 0)
        r = keep(run, &out, v.type != JINJA_LIST && v.type != JINJA_DICT, ret);
    str_release(&out);
    return r;
}

/* ---- JSON ---- */

/* base/json_writer escapes DEL as well, json.dumps() does not. */
static void add_json_str(struct str *out, struct jinja_str s)
{
    static const char letters[] = {
            ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};

    str_addc(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];

        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c >= 0x20)
            str_addc(out, (char)c);
        else if (c < sizeof(letters) && letters[c])
            str_addf(out, "\\%c", letters[c]);
        else
            str_addf(out, "\\u%04x", c);
    }
    str_addc(out, '"');
}

static void new_line(struct str *out, int indent, unsigned depth)
{
    if (indent < 0)
        return;
    str_addc(out, '\n');
    for (size_t i = 0; i < (size_t)indent * depth; i++)
        str_addc(out, ' ');
}

static int add_json(struct jinja_run *run, struct jinja_value v, int indent, unsigned depth,
                    struct str *out);

static int add_json_children(struct jinja_run *run, struct jinja_value v, int indent,
                             unsigned depth, struct str *out)
{
    size_t n = v.type == JINJA_LIST ? v.list->n : v.dict->n;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (i > 0)
            str_adds(out, indent < 0 ? ", " : ",");
        new_line(out, indent, depth + 1);
        if (v.type == JINJA_DICT) {
            add_json_str(out, v.dict->entries[i].key);
            str_adds(out, ": ");
        }
        r = add_json(run, v.type == JINJA_LIST ? v.list->items[i] : v.dict->entries[i].value,
                     indent, depth + 1, out);
    }
    if (n > 0)
        new_line(out, indent, depth);
    return r;
}

static int add_json(struct jinja_run *run, struct jinja_value v, int indent, unsigned depth,
                    struct str *out)
{
    int r = jinja_charge(run, 1 + (indent > 0 ? depth : 0));

    if (r < 0)
        return r;
    switch (v.type) {
    case JINJA_NONE:
        str_adds(out, "null");
        return 0;
    case JINJA_BOOL:
        str_adds(out, v.boolean ? "true" : "false");
        return 0;
    case JINJA_STR:
        add_json_str(out, v.str);
        return jinja_charge_bytes(run, v.str.len);
    case JINJA_LIST:
    case JINJA_DICT:
        str_addc(out, v.type == JINJA_LIST ? '[' : '{');
        r = add_json_children(run, v, indent, depth, out);
        str_addc(out, v.type == JINJA_LIST ? ']' : '}');
        return r;
    case JINJA_INT:
    case JINJA_FLOAT:
        return add_repr(run, v, out);
    default:
        return jinja_fail(run, "a %s is not JSON", jinja_type_name(v));
    }
}

int jinja_to_json(struct jinja_run *run, struct jinja_value v, int indent, struct jinja_str *ret)
{
    struct str out = STR_INIT(run->bytes_max);
    int r = add_json(run, v, indent, 0, &out);

    if (r == 0)
        r = keep(run, &out, false, ret);
    str_release(&out);
    return r;
}
