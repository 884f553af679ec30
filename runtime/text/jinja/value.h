/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The values of a template, and the budget of one rendering.  Values are immutable once made
 * (namespaces excepted), live in the rendering's arena, and are passed by value.  Private to
 * runtime/text.  One rendering is one thread's. */
struct arena;
struct str;

/* ---- the budget ---- */

enum { JINJA_VALUE_DEPTH_MAX = 100 }; /* lists in lists; what recurses over values stays shallow */

struct jinja_run {
    struct arena *arena;
    size_t bytes_max; /* of the arena */
    uint32_t steps_left;
    uint32_t line; /* where the template is, for messages */
    struct err *err;
};

/* "line 3: ..." as ERR_INVALID. */
int jinja_fail(struct jinja_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Take so many steps off the budget. */
int jinja_charge(struct jinja_run *run, size_t steps) MUST_CHECK;
/* Work over so many bytes: charged, 64 of them a step. */
int jinja_charge_bytes(struct jinja_run *run, size_t bytes) MUST_CHECK;
/* Zeroed memory of the rendering, its bytes charged; NULL: run->err is set. */
void *jinja_alloc(struct jinja_run *run, size_t n, size_t size);

/* ---- values ---- */

enum jinja_type {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
};

/* Text, of which each byte is either the template's own (a literal) or came from a message. */
struct jinja_str {
    const char *data;
    size_t len;
    const uint8_t *marks; /* a byte's 1: literal; NULL: all bytes are what 'literal' says */
    bool literal;
};

struct jinja_value {
    enum jinja_type type;
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct jinja_str str; /* also the name of what is undefined, for messages */
        const struct jinja_list *list;
        const struct jinja_dict *dict;
        struct jinja_dict *names; /* a namespace: the one thing that changes */
        const struct jinja_loop *loop;
    };
};

struct jinja_list {
    struct jinja_value *items;
    size_t n;
    unsigned depth; /* 1 + the deepest item's */
    bool is_tuple;  /* printed with () */
};

struct jinja_entry {
    struct jinja_str key;
    struct jinja_value value;
};

struct jinja_dict {
    struct jinja_entry *entries; /* in order of insertion */
    size_t n, cap;
    unsigned depth;
};

struct jinja_loop {
    const struct jinja_list *items;
    size_t index; /* from 0 */
};

static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.type = JINJA_BOOL, .boolean = b};
}
static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.type = JINJA_INT, .integer = i};
}
static inline struct jinja_value jinja_float(double d)
{
    return (struct jinja_value){.type = JINJA_FLOAT, .number = d};
}
static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.type = JINJA_NONE};
}
static inline struct jinja_value jinja_text(struct jinja_str s)
{
    return (struct jinja_value){.type = JINJA_STR, .str = s};
}
struct jinja_value jinja_undefined(const char *name, size_t len);
/* A constant of ours. */
struct jinja_str jinja_literal(const char *s);

/* Room for n items; the caller fills them, then calls jinja_list_done(). */
struct jinja_list *jinja_list_new(struct jinja_run *run, size_t n);
int jinja_list_done(struct jinja_run *run, struct jinja_list *list,
                    struct jinja_value *ret) MUST_CHECK;
struct jinja_dict *jinja_dict_new(struct jinja_run *run, size_t cap);
/* Put or replace. */
int jinja_dict_put(struct jinja_run *run, struct jinja_dict *dict, struct jinja_str key,
                   struct jinja_value value) MUST_CHECK;
/* NULL: absent, or run->err is set and *ret_r negative. */
const struct jinja_value *jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict,
                                         struct jinja_str key, int *ret_r);
/* A message tree as values; its strings are borrowed and are content, but for the well-known names
 * of roles: templates build special tokens from them. */
int jinja_from_json(struct jinja_run *run, const cJSON *json, struct jinja_value *ret) MUST_CHECK;

/* ---- what can be asked of any value ---- */

const char *jinja_type_name(struct jinja_value v); /* as Python calls it */
bool jinja_truth(struct jinja_value v);
int jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                bool *ret) MUST_CHECK;
/* *ret < 0, 0, > 0; numbers, strings, and lists of them. */
int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                  int *ret) MUST_CHECK;
int jinja_contains(struct jinja_run *run, struct jinja_value all, struct jinja_value item,
                   bool *ret) MUST_CHECK;
/* The items that a for loop sees. */
int jinja_items(struct jinja_run *run, struct jinja_value v,
                const struct jinja_list **ret) MUST_CHECK;
int jinja_length(struct jinja_run *run, struct jinja_value v, size_t *ret) MUST_CHECK;
/* v[key] and v.key; what is absent is undefined, and so is anything of a non-container; of an
 * undefined value it is an error. */
int jinja_item(struct jinja_run *run, struct jinja_value v, struct jinja_value key,
               struct jinja_value *ret) MUST_CHECK;
