/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Writes JSON text straight into a str, commas and escapes right by construction.  Invalid UTF-8
 * in a value becomes U+FFFD; a number that is not finite becomes null (or the clamp the caller
 * chose beforehand).  Nesting over 32 is our bug (ASSERT).
 *
 *   struct json_writer w = json_writer_start(&out);
 *   json_obj(&w); json_key(&w, "id"); json_text(&w, id); json_end(&w);
 */
struct json_writer {
    struct str *out;
    uint32_t object_bits; /* bit d: level d is an object */
    uint32_t filled_bits; /* bit d: level d has an element already */
    unsigned depth;
    bool after_key;
};

struct json_writer json_writer_start(struct str *out);
void json_obj(struct json_writer *w);
void json_arr(struct json_writer *w);
void json_end(struct json_writer *w); /* closes the innermost object or array */
void json_key(struct json_writer *w, const char *key);
void json_text(struct json_writer *w, const char *s); /* NULL writes null */
void json_textn(struct json_writer *w, const char *s, size_t len);
void json_i64(struct json_writer *w, int64_t v);
void json_u64(struct json_writer *w, uint64_t v);
void json_f64(struct json_writer *w, double v);
void json_boolean(struct json_writer *w, bool v);
void json_null(struct json_writer *w);
void json_raw(struct json_writer *w, const char *json); /* already JSON text */

/* key and value in one line, the usual case */
void json_kv_text(struct json_writer *w, const char *key, const char *s);
void json_kv_i64(struct json_writer *w, const char *key, int64_t v);
void json_kv_f64(struct json_writer *w, const char *key, double v);
void json_kv_bool(struct json_writer *w, const char *key, bool v);
void json_kv_null(struct json_writer *w, const char *key);

/* s as a JSON string with quotes; the escape rules alone. */
void json_escape(struct str *out, const char *s, size_t len);
