/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_writer.h"

#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "base/utf8.h"

enum { DEPTH_MAX = 32 };

struct json_writer json_writer_start(struct str *out)
{
    return (struct json_writer){.out = out};
}

/* Whatever comes next at this level: a comma before it unless it is the first. */
static void begin_element(struct json_writer *w)
{
    uint32_t bit;

    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->depth == 0)
        return;
    bit = 1u << (w->depth - 1);
    if (w->filled_bits & bit)
        str_addc(w->out, ',');
    w->filled_bits |= bit;
}

static void open_level(struct json_writer *w, bool object)
{
    uint32_t bit;

    begin_element(w);
    ASSERT(w->depth < DEPTH_MAX);
    bit = 1u << w->depth++;
    w->object_bits = object ? w->object_bits | bit : w->object_bits & ~bit;
    w->filled_bits &= ~bit;
    str_addc(w->out, object ? '{' : '[');
}

void json_obj(struct json_writer *w)
{
    open_level(w, true);
}

void json_arr(struct json_writer *w)
{
    open_level(w, false);
}

void json_end(struct json_writer *w)
{
    ASSERT(w->depth > 0 && !w->after_key);
    w->depth--;
    str_addc(w->out, w->object_bits >> w->depth & 1 ? '}' : ']');
}

/* A stretch that needs no escape goes out in one piece. */
static size_t plain_prefix(const char *s, size_t len)
{
    size_t n = 0;

    while (n < len && (unsigned char)s[n] >= 0x20 && s[n] != '"' && s[n] != '\\' && s[n] != 0x7F)
        n++;
    return n;
}

static void escape_one(struct str *out, unsigned char c)
{
    static const char letters[] = {
            ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};

    if (c == '"' || c == '\\')
        str_addf(out, "\\%c", c);
    else if (c < sizeof(letters) && letters[c])
        str_addf(out, "\\%c", letters[c]);
    else
        str_addf(out, "\\u%04x", c);
}

static void escape_valid(struct str *out, const char *s, size_t len)
{
    while (len) {
        size_t n = plain_prefix(s, len);

        str_add(out, s, n);
        if (n < len)
            escape_one(out, (unsigned char)s[n++]);
        s += n;
        len -= n;
    }
}

void json_escape(struct str *out, const char *s, size_t len)
{
    str_addc(out, '"');
    if (utf8_valid(s, len)) {
        escape_valid(out, s, len);
    } else {
        struct str fixed = STR_INIT(3 * len);

        utf8_add_lossy(&fixed, s, len);
        if (fixed.failed)
            out->failed = true;
        else
            escape_valid(out, fixed.data, fixed.len);
        str_release(&fixed);
    }
    str_addc(out, '"');
}

void json_key(struct json_writer *w, const char *key)
{
    ASSERT(w->depth > 0 && (w->object_bits >> (w->depth - 1) & 1) && !w->after_key);
    begin_element(w);
    json_escape(w->out, key, strlen(key));
    str_addc(w->out, ':');
    w->after_key = true;
}

void json_textn(struct json_writer *w, const char *s, size_t len)
{
    begin_element(w);
    json_escape(w->out, s, len);
}

void json_text(struct json_writer *w, const char *s)
{
    if (s)
        json_textn(w, s, strlen(s));
    else
        json_null(w);
}

void json_i64(struct json_writer *w, int64_t v)
{
    begin_element(w);
    str_addf(w->out, "%lld", (long long)v);
}

void json_u64(struct json_writer *w, uint64_t v)
{
    begin_element(w);
    str_addf(w->out, "%llu", (unsigned long long)v);
}

void json_f64(struct json_writer *w, double v)
{
    if (!isfinite(v)) {
        json_null(w);
        return;
    }
    begin_element(w);
    str_addf(w->out, "%.10g", v);
}

void json_boolean(struct json_writer *w, bool v)
{
    begin_element(w);
    str_adds(w->out, v ? "true" : "false");
}

void json_null(struct json_writer *w)
{
    begin_element(w);
    str_adds(w->out, "null");
}

void json_raw(struct json_writer *w, const char *json)
{
    begin_element(w);
    str_adds(w->out, json);
}

void json_kv_text(struct json_writer *w, const char *key, const char *s)
{
    json_key(w, key);
    json_text(w, s);
}

void json_kv_i64(struct json_writer *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_i64(w, v);
}

void json_kv_f64(struct json_writer *w, const char *key, double v)
{
    json_key(w, key);
    json_f64(w, v);
}

void json_kv_bool(struct json_writer *w, const char *key, bool v)
{
    json_key(w, key);
    json_boolean(w, v);
}

void json_kv_null(struct json_writer *w, const char *key)
{
    json_key(w, key);
    json_null(w);
}
