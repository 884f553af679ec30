/* SPDX-License-Identifier: Apache-2.0
 *
 * filters.c - "value | filter".
 *
 * map, select and their kin run another filter or test on every item; the parser has checked its
 * name.  What Jinja gives as a generator is a list here, which only printing it as it is would
 * show.
 */
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/text.h"

/* ---- strings; a value that is none is turned into one first, as Jinja does ---- */

static int call_trim(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_str *chars = args[0] && args[0]->type == JINJA_STR ? &args[0]->str : NULL;
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    if (r == 0)
        r = jinja_strip(run, s, chars, JINJA_BOTH, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_upper(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    (void)args;
    if (r == 0)
        r = jinja_case(run, s, true, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_lower(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    (void)args;
    if (r == 0)
        r = jinja_case(run, s, false, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_capitalize(struct jinja_run *run, struct jinja_value self,
                           const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    (void)args;
    if (r == 0)
        r = jinja_capitalize(run, s, &s);
    *ret = jinja_text(s);
    return r;
}

static bool breaks_word(char c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || c == ' ' ||
           (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
}

static int call_title(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    (void)args;
    if (r == 0)
        r = jinja_title(run, s, breaks_word, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_string(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_to_str(run, self, &s);

    (void)args;
    *ret = jinja_text(s);
    return r;
}

static int call_replace(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0}, from = {0}, to = {0};
    int64_t max;
    int r = jinja_to_str(run, self, &s);

    if (r == 0)
        r = jinja_to_str(run, *args[0], &from);
    if (r == 0)
        r = jinja_to_str(run, *args[1], &to);
    if (r == 0)
        r = jinja_int_arg(run, args[2], -1, &max);
    if (r == 0)
        r = jinja_replace(run, s, from, to, max, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_safe(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)run;
    (void)args;
    *ret = self;
    return 0;
}

static int call_tojson(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int64_t indent;
    int r = jinja_int_arg(run, args[0], -1, &indent);

    if (r == 0 && (indent < -1 || indent > 32))
        return jinja_fail(run, "tojson indented by %lld", (long long)indent);
    if (r == 0)
        r = jinja_to_json(run, self, (int)indent, &s);
    *ret = jinja_text(s);
    return r;
}

/* ---- numbers ---- */

static int not_undefined(struct jinja_run *run, struct jinja_value v)
{
    if (v.type != JINJA_UNDEFINED)
        return 0;
    return jinja_fail(run, "'%.*s' is undefined", (int)(v.str.len < 64 ? v.str.len : 64),
                      v.str.data);
}

/* The number that a string is, white space around it allowed; false: it is none. */
static bool parse_number(struct jinja_run *run, struct jinja_str s, double *ret)
{
    char digits[64];
    struct err err;

    if (jinja_strip(run, s, NULL, JINJA_BOTH, &s) < 0 || s.len == 0 || s.len >= sizeof(digits))
        return false;
    memcpy(digits, s.data, s.len);
    digits[s.len] = '\0';
    return parse_f64(digits, -1e308, 1e308, ret, &err) == 0;
}

static int call_int(struct jinja_run *run, struct jinja_value self,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    double d = 0;

    *ret = args[0] ? *args[0] : jinja_int(0);
    if (self.type == JINJA_INT)
        *ret = self;
    else if (self.type == JINJA_BOOL)
        *ret = jinja_int(self.boolean);
    if (self.type == JINJA_FLOAT)
        d = self.number;
    else if (self.type != JINJA_STR || !parse_number(run, self.str, &d))
        return not_undefined(run, self);
    if (!(fabs(d) < 9e18))
        return jinja_fail(run, "a number is too large");
    *ret = jinja_int((int64_t)d);
    return 0;
}

static int call_float(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    double d = 0;

    *ret = args[0] ? *args[0] : jinja_float(0);
    if (self.type == JINJA_FLOAT)
        *ret = self;
    else if (self.type == JINJA_INT)
        *ret = jinja_float((double)self.integer);
    else if (self.type == JINJA_BOOL)
        *ret = jinja_float(self.boolean);
    else if (self.type == JINJA_STR && parse_number(run, self.str, &d))
        *ret = jinja_float(d);
    return not_undefined(run, self);
}

static int call_abs(struct jinja_run *run, struct jinja_value self,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    *ret = self;
    if (self.type == JINJA_FLOAT)
        *ret = jinja_float(fabs(self.number));
    else if (self.type == JINJA_BOOL)
        *ret = jinja_int(self.boolean);
    else if (self.type != JINJA_INT || self.integer == INT64_MIN)
        return jinja_fail(run, "abs of %s", jinja_type_name(self));
    else if (self.integer < 0)
        *ret = jinja_int(-self.integer);
    return 0;
}

/* ---- any value ---- */

static int call_default(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], struct jinja_value *ret)
{
    bool falsy_too = args[1] && jinja_truth(*args[1]);

    (void)run;
    *ret = self;
    if (self.type == JINJA_UNDEFINED || (falsy_too && !jinja_truth(self)))
        *ret = args[0] ? *args[0] : jinja_text(jinja_literal(""));
    return 0;
}

static int call_length(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    size_t n = 0;
    int r = jinja_length(run, self, &n);

    (void)args;
    *ret = jinja_int((int64_t)n);
    return r;
}

/* ---- lists ---- */

static int end_item(struct jinja_run *run, struct jinja_value self, bool last,
                    struct jinja_value *ret)
{
    const struct jinja_list *items;
    int r = jinja_items(run, self, &items);

    if (r < 0)
        return r;
    *ret = items->n > 0 ? items->items[last ? items->n - 1 : 0] : jinja_undefined("item", 4);
    return 0;
}

static int call_first(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return end_item(run, self, false, ret);
}

static int call_last(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return end_item(run, self, true, ret);
}

static int call_list(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_list *items;
    struct jinja_list *list;
    int r = jinja_items(run, self, &items);

    (void)args;
    if (r < 0)
        return r;
    list = jinja_list_new(run, items->n);
    if (!list)
        return -(int)run->err->code;
    memcpy(list->items, items->items, items->n * sizeof(*list->items));
    return jinja_list_done(run, list, ret);
}

static int call_reverse(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_value bounds[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    int r = 0;

    (void)args;
    if (self.type != JINJA_STR)
        r = call_list(run, self, args, &self);
    return r < 0 ? r : jinja_slice(run, self, bounds, ret);
}

static int call_items(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    if (self.type == JINJA_UNDEFINED)
        return call_list(run, self, args, ret);
    if (self.type != JINJA_DICT)
        return jinja_fail(run, "items of %s", jinja_type_name(self));
    return jinja_dict_items(run, self.dict, ret);
}

/* 'a.b' or 'a.0': the attributes one after the other. */
static int dig(struct jinja_run *run, struct jinja_value v, struct jinja_str path,
               struct jinja_value *ret)
{
    struct jinja_str dot = jinja_literal(".");
    int r = 0;

    for (size_t at = 0; r == 0 && at <= path.len;) {
        ptrdiff_t end = jinja_find(path, at, dot);
        size_t len = (end < 0 ? path.len : (size_t)end) - at;
        struct jinja_value key = jinja_text(jinja_cut(path, at, len));
        double d;

        if (len > 0 && path.data[at] >= '0' && path.data[at] <= '9' &&
            parse_number(run, key.str, &d))
            key = jinja_int((int64_t)d);
        r = jinja_item(run, v, key, &v);
        at += len + 1;
    }
    *ret = v;
    return r;
}

static int call_join(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_list *items;
    struct jinja_list *parts;
    struct jinja_str sep = jinja_literal(""), s = {0};
    int r = jinja_items(run, self, &items);

    if (r == 0 && args[0])
        r = jinja_to_str(run, *args[0], &sep);
    if (r < 0)
        return r;
    parts = jinja_list_new(run, items->n);
    if (!parts)
        return -(int)run->err->code;
    for (size_t i = 0; r == 0 && i < items->n; i++) {
        parts->items[i] = items->items[i];
        if (args[1] && args[1]->type == JINJA_STR)
            r = dig(run, items->items[i], args[1]->str, &parts->items[i]);
    }
    if (r == 0)
        r = jinja_join(run, parts, sep, &s);
    *ret = jinja_text(s);
    return r;
}

static int map_item(struct jinja_run *run, struct jinja_value item,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    static const struct jinja_value *const no_args[JINJA_ARGS_MAX] = {NULL};
    int r;

    if (args[0])
        return jinja_filter(args[0]->str)->call(run, item, no_args, ret);
    if (!args[1] || args[1]->type != JINJA_STR)
        return jinja_fail(run, "map without a filter's or an attribute's name");
    r = dig(run, item, args[1]->str, ret);
    if (r == 0 && ret->type == JINJA_UNDEFINED && args[2])
        *ret = *args[2];
    return r;
}

static int call_map(struct jinja_run *run, struct jinja_value self,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_list *items;
    struct jinja_list *list;
    int r = jinja_items(run, self, &items);

    if (r < 0)
        return r;
    list = jinja_list_new(run, items->n);
    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < items->n && r == 0; i++)
        r = jinja_charge(run, 1) < 0 ? -ERR_INVALID
                                     : map_item(run, items->items[i], args, &list->items[i]);
    return r < 0 ? r : jinja_list_done(run, list, ret);
}

/* Keep the items for which test (or truth, without one) gives 'wanted'; attribute NULL: the item
 * itself is tested. */
static int keep_items(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *attribute, const struct jinja_value *test,
                      const struct jinja_value *arg, bool wanted, struct jinja_value *ret)
{
    const struct jinja_value *const test_args[JINJA_ARGS_MAX] = {arg};
    const struct jinja_function *f = test ? jinja_test(test->str) : NULL;
    const struct jinja_list *items;
    struct jinja_list *list;
    size_t n = 0;
    int r = jinja_items(run, self, &items);

    if (r < 0)
        return r;
    if (f && (f->min_args > 0) != (arg != NULL))
        return jinja_fail(run, "wrong arguments for '%s'", f->name);
    list = jinja_list_new(run, items->n);
    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < items->n && r == 0; i++) {
        struct jinja_value v = items->items[i];

        r = jinja_charge(run, 1);
        if (r == 0 && attribute)
            r = dig(run, v, attribute->str, &v);
        if (r == 0 && f)
            r = f->call(run, v, test_args, &v);
        if (r == 0 && jinja_truth(v) == wanted)
            list->items[n++] = items->items[i];
    }
    list->n = n;
    return r < 0 ? r : jinja_list_done(run, list, ret);
}

static int call_select(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    return keep_items(run, self, NULL, args[0], args[1], true, ret);
}

static int call_reject(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    return keep_items(run, self, NULL, args[0], args[1], false, ret);
}

static int by_attribute(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], bool wanted,
                        struct jinja_value *ret)
{
    if (args[0]->type != JINJA_STR)
        return jinja_fail(run, "an attribute's name is %s", jinja_type_name(*args[0]));
    return keep_items(run, self, args[0], args[1], args[2], wanted, ret);
}

static int call_selectattr(struct jinja_run *run, struct jinja_value self,
                           const struct jinja_value *const args[], struct jinja_value *ret)
{
    return by_attribute(run, self, args, true, ret);
}

static int call_rejectattr(struct jinja_run *run, struct jinja_value self,
                           const struct jinja_value *const args[], struct jinja_value *ret)
{
    return by_attribute(run, self, args, false, ret);
}

const struct jinja_function *jinja_filter(struct jinja_str name)
{
    /* "": a parameter that has no name to call it by */
    static const struct jinja_function table[] = {
            {"trim", 0, 1, {"chars"}, call_trim},
            {"upper", 0, 0, {NULL}, call_upper},
            {"lower", 0, 0, {NULL}, call_lower},
            {"capitalize", 0, 0, {NULL}, call_capitalize},
            {"title", 0, 0, {NULL}, call_title},
            {"string", 0, 0, {NULL}, call_string},
            {"replace", 2, 3, {"old", "new", "count"}, call_replace},
            {"safe", 0, 0, {NULL}, call_safe},
            {"tojson", 0, 1, {"indent"}, call_tojson},
            {"int", 0, 1, {"default"}, call_int},
            {"float", 0, 1, {"default"}, call_float},
            {"abs", 0, 0, {NULL}, call_abs},
            {"default", 0, 2, {"default_value", "boolean"}, call_default},
            {"d", 0, 2, {"default_value", "boolean"}, call_default},
            {"length", 0, 0, {NULL}, call_length},
            {"count", 0, 0, {NULL}, call_length},
            {"first", 0, 0, {NULL}, call_first},
            {"last", 0, 0, {NULL}, call_last},
            {"list", 0, 0, {NULL}, call_list},
            {"reverse", 0, 0, {NULL}, call_reverse},
            {"items", 0, 0, {NULL}, call_items},
            {"join", 0, 2, {"d", "attribute"}, call_join},
            {"map", 0, 3, {"", "attribute", "default"}, call_map},
            {"select", 0, 2, {NULL}, call_select},
            {"reject", 0, 2, {NULL}, call_reject},
            {"selectattr", 1, 3, {NULL}, call_selectattr},
            {"rejectattr", 1, 3, {NULL}, call_rejectattr},
            {.name = NULL},
    };

    return jinja_function_find(table, name);
}
