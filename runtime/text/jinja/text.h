/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/text/jinja/value.h"

/* Strings of a template: built from parts, cut, searched; marks of literal and content travel with
 * every byte.  Positions are in characters where Python's are.  Private to runtime/text. */

bool jinja_is_space(uint32_t cp); /* Python's str.isspace() */

int jinja_concat(struct jinja_run *run, const struct jinja_str *parts, size_t n,
                 struct jinja_str *ret) MUST_CHECK;
/* Bytes at..at+len of s. */
struct jinja_str jinja_cut(struct jinja_str s, size_t at, size_t len);
/* Like s, with other bytes of the same length. */
struct jinja_str jinja_with_data(struct jinja_str s, const char *data);
bool jinja_str_equal(struct jinja_str a, struct jinja_str b);
bool jinja_str_is(struct jinja_str a, const char *b);
/* Bytes up to the first 'what' from 'at' on; -1: none. */
ptrdiff_t jinja_find(struct jinja_str s, size_t at, struct jinja_str what);
size_t jinja_n_chars(struct jinja_str s);
/* The bytes of the character at byte 'at' (1 for an invalid byte). */
size_t jinja_char_len(struct jinja_str s, size_t at);

enum jinja_side { JINJA_LEFT = 1, JINJA_RIGHT = 2, JINJA_BOTH = 3 };
/* chars NULL: white space. */
int jinja_strip(struct jinja_run *run, struct jinja_str s, const struct jinja_str *chars,
                enum jinja_side side, struct jinja_str *ret) MUST_CHECK;
/* sep NULL: runs of white space.  max < 0: no limit. */
int jinja_split(struct jinja_run *run, struct jinja_str s, const struct jinja_str *sep, int64_t max,
                bool from_right, struct jinja_value *ret) MUST_CHECK;
int jinja_replace(struct jinja_run *run, struct jinja_str s, struct jinja_str from,
                  struct jinja_str to, int64_t max, struct jinja_str *ret) MUST_CHECK;
/* v[start:stop:step] of a string or a list; each bound an integer, or none. */
int jinja_slice(struct jinja_run *run, struct jinja_value v, const struct jinja_value bounds[3],
                struct jinja_value *ret) MUST_CHECK;

/* ---- values as text ---- */

/* What {{ v }} shows. */
int jinja_to_str(struct jinja_run *run, struct jinja_value v, struct jinja_str *ret) MUST_CHECK;
/* json.dumps(v, ensure_ascii=False); indent < 0: on one line. */
int jinja_to_json(struct jinja_run *run, struct jinja_value v, int indent,
                  struct jinja_str *ret) MUST_CHECK;
