/* SPDX-License-Identifier: Apache-2.0
 *
 * value.c - values of a template: what Python's would do, within a budget.
 *
 * A rendering may not run for ever, whatever the template and the messages are: every evaluated
 * node costs a step, and so does every 64 bytes looked at or allocated.  Nothing recurses deeper
 * than JINJA_VALUE_DEPTH_MAX: a list knows its depth, and a deeper one is refused when it is made.
 * Namespaces can refer to themselves, so nothing here ever looks into one but by name.
 */
#include "runtime/text/jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/text/jinja/text.h"

enum { BYTES_A_STEP = 64 };

int jinja_fail(struct jinja_run *run, const char *fmt, ...)
{
    char msg[400];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return err_set(run->err, ERR_INVALID, "line %u: %s", run->line, msg);
}

int jinja_charge(struct jinja_run *run, size_t steps)
{
    if (steps > run->steps_left)
        return jinja_fail(run, "the template takes too many steps");
    run->steps_left -= (uint32_t)steps;
    return 0;
}

int jinja_charge_bytes(struct jinja_run *run, size_t bytes)
{
    return jinja_charge(run, bytes / BYTES_A_STEP);
}

void *jinja_alloc(struct jinja_run *run, size_t n, size_t size)
{
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > run->bytes_max ||
        arena_used(run->arena) > run->bytes_max - bytes) {
        jinja_fail(run, "the template needs more than %zu bytes", run->bytes_max);
        return NULL;
    }
    if (jinja_charge_bytes(run, bytes) < 0)
        return NULL;
    p = arena_alloc(run->arena, bytes);
    if (!p)
        err_set(run->err, ERR_NO_MEMORY, "template");
    return p;
}

struct jinja_value jinja_undefined(const char *name, size_t len)
{
    return (struct jinja_value){
            .type = JINJA_UNDEFINED,
            .str = {.data = name, .len = len},
    };
}

struct jinja_str jinja_literal(const char *s)
{
    return (struct jinja_str){.data = s, .len = strlen(s), .literal = true};
}

static unsigned depth_of(struct jinja_value v)
{
    if (v.type == JINJA_LIST)
        return v.list->depth;
    return v.type == JINJA_DICT ? v.dict->depth : 0;
}

static int check_depth(struct jinja_run *run, unsigned depth)
{
    if (depth > JINJA_VALUE_DEPTH_MAX)
        return jinja_fail(run, "lists are nested over %d deep", JINJA_VALUE_DEPTH_MAX);
    return 0;
}

struct jinja_list *jinja_list_new(struct jinja_run *run, size_t n)
{
    struct jinja_list *list = jinja_alloc(run, 1, sizeof(*list));

    if (!list || n == SIZE_MAX) {
        if (list)
            jinja_fail(run, "a list is too long");
        return NULL;
    }
    list->n = n;
    list->depth = 1;
    /* one more than asked for: an empty list has an address, too */
    list->items = jinja_alloc(run, n + 1, sizeof(*list->items));
    return list->items ? list : NULL;
}

int jinja_list_done(struct jinja_run *run, struct jinja_list *list, struct jinja_value *ret)
{
    for (size_t i = 0; i < list->n; i++)
        if (depth_of(list->items[i]) >= list->depth)
            list->depth = depth_of(list->items[i]) + 1;
    *ret = (struct jinja_value){.type = JINJA_LIST, .list = list};
    return check_depth(run, list->depth);
}

struct jinja_dict *jinja_dict_new(struct jinja_run *run, size_t cap)
{
    struct jinja_dict *dict = jinja_alloc(run, 1, sizeof(*dict));

    if (!dict)
        return NULL;
    dict->cap = cap + 1;
    dict->depth = 1;
    dict->entries = jinja_alloc(run, dict->cap, sizeof(*dict->entries));
    return dict->entries ? dict : NULL;
}

static struct jinja_entry *find_entry(struct jinja_run *run, const struct jinja_dict *dict,
                                      struct jinja_str key, int *ret_r)
{
    *ret_r = jinja_charge(run, dict->n / 8);
    for (size_t i = 0; i < dict->n && *ret_r == 0; i++)
        if (jinja_str_equal(dict->entries[i].key, key))
            return &dict->entries[i];
    return NULL;
}

int jinja_dict_put(struct jinja_run *run, struct jinja_dict *dict, struct jinja_str key,
                   struct jinja_value value)
{
    int r;
    struct jinja_entry *e = find_entry(run, dict, key, &r);

    if (r < 0)
        return r;
    if (!e) {
        if (dict->n == dict->cap) {
            struct jinja_entry *more = jinja_alloc(run, dict->cap * 2, sizeof(*more));

            if (!more)
                return -(int)run->err->code;
            memcpy(more, dict->entries, dict->n * sizeof(*more));
            dict->entries = more;
            dict->cap *= 2;
        }
        e = &dict->entries[dict->n++];
        e->key = key;
    }
    e->value = value;
    if (depth_of(value) >= dict->depth)
        dict->depth = depth_of(value) + 1;
    return check_depth(run, dict->depth);
}

const struct jinja_value *jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict,
                                         struct jinja_str key, int *ret_r)
{
    const struct jinja_entry *e = find_entry(run, dict, key, ret_r);

    return e ? &e->value : NULL;
}

/* ---- from JSON ---- */

static bool is_role(const cJSON *json)
{
    static const char *const roles[] = {"system", "user",      "assistant",
                                        "tool",   "developer", "function"};

    if (!json->string || strcmp(json->string, "role") != 0)
        return false;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(json->valuestring, roles[i]) == 0)
            return true;
    return false;
}

static struct jinja_value number_from_json(double d)
{
    /* cJSON keeps no difference between 1 and 1.0 */
    if (d == floor(d) && fabs(d) < 9e15)
        return jinja_int((int64_t)d);
    return jinja_float(d);
}

static int list_from_json(struct jinja_run *run, const cJSON *json, struct jinja_value *ret)
{
    struct jinja_list *list = jinja_list_new(run, (size_t)cJSON_GetArraySize(json));
    size_t i = 0;

    if (!list)
        return -(int)run->err->code;
    for (const cJSON *c = json->child; c; c = c->next) {
        int r = jinja_from_json(run, c, &list->items[i++]);

        if (r < 0)
            return r;
    }
    return jinja_list_done(run, list, ret);
}

static int dict_from_json(struct jinja_run *run, const cJSON *json, struct jinja_value *ret)
{
    struct jinja_dict *dict = jinja_dict_new(run, (size_t)cJSON_GetArraySize(json));

    if (!dict)
        return -(int)run->err->code;
    for (const cJSON *c = json->child; c; c = c->next) {
        struct jinja_str key = {.data = c->string, .len = strlen(c->string)};
        struct jinja_value v;
        int r = jinja_from_json(run, c, &v);

        if (r == 0)
            r = jinja_dict_put(run, dict, key, v);
        if (r < 0)
            return r;
    }
    *ret = (struct jinja_value){.type = JINJA_DICT, .dict = dict};
    return 0;
}

int jinja_from_json(struct jinja_run *run, const cJSON *json, struct jinja_value *ret)
{
    int r = jinja_charge(run, 1);

    if (r < 0)
        return r;
    if (cJSON_IsArray(json))
        return list_from_json(run, json, ret);
    if (cJSON_IsObject(json))
        return dict_from_json(run, json, ret);
    if (cJSON_IsString(json))
        *ret = jinja_text((struct jinja_str){
                .data = json->valuestring,
                .len = strlen(json->valuestring),
                .literal = is_role(json),
        });
    else if (cJSON_IsNumber(json))
        *ret = number_from_json(json->valuedouble);
    else if (cJSON_IsBool(json))
        *ret = jinja_bool(cJSON_IsTrue(json));
    else
        *ret = jinja_none();
    return 0;
}

/* ---- questions ---- */

const char *jinja_type_name(struct jinja_value v)
{
    static const char *const names[] = {
            [JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType",
            [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
            [JINJA_FLOAT] = "float",         [JINJA_STR] = "str",
            [JINJA_LIST] = "list",           [JINJA_DICT] = "dict",
            [JINJA_NAMESPACE] = "Namespace", [JINJA_LOOP] = "LoopContext",
    };

    return names[v.type];
}

bool jinja_truth(struct jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.boolean;
    case JINJA_INT:
        return v.integer != 0;
    case JINJA_FLOAT:
        return v.number != 0;
    case JINJA_STR:
        return v.str.len > 0;
    case JINJA_LIST:
        return v.list->n > 0;
    case JINJA_DICT:
        return v.dict->n > 0;
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
        return true;
    }
    return false;
}

static bool is_number(struct jinja_value v)
{
    return v.type == JINJA_BOOL || v.type == JINJA_INT || v.type == JINJA_FLOAT;
}

static double number_of(struct jinja_value v)
{
    if (v.type == JINJA_FLOAT)
        return v.number;
    return v.type == JINJA_INT ? (double)v.integer : (double)v.boolean;
}

static int compare_numbers(struct jinja_value a, struct jinja_value b)
{
    if (a.type != JINJA_FLOAT && b.type != JINJA_FLOAT) {
        int64_t x = a.type == JINJA_INT ? a.integer : a.boolean;
        int64_t y = b.type == JINJA_INT ? b.integer : b.boolean;

        return (x > y) - (x < y);
    }
    return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
}

static int compare_strings(struct jinja_str a, struct jinja_str b)
{
    /* byte order of UTF-8 is the order of code points */
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static int lists_equal(struct jinja_run *run, const struct jinja_list *a,
                       const struct jinja_list *b, bool *ret)
{
    int r = 0;

    *ret = a->n == b->n && a->is_tuple == b->is_tuple;
    for (size_t i = 0; i < a->n && *ret && r == 0; i++)
        r = jinja_equal(run, a->items[i], b->items[i], ret);
    return r;
}

static int dicts_equal(struct jinja_run *run, const struct jinja_dict *a,
                       const struct jinja_dict *b, bool *ret)
{
    int r = 0;

    *ret = a->n == b->n;
    for (size_t i = 0; i < a->n && *ret && r == 0; i++) {
        const struct jinja_value *v = jinja_dict_get(run, b, a->entries[i].key, &r);

        *ret = v != NULL;
        if (v && r == 0)
            r = jinja_equal(run, a->entries[i].value, *v, ret);
    }
    return r;
}

int jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b, bool *ret)
{
    int r = jinja_charge(run, 1);

    if (r < 0)
        return r;
    *ret = false;
    if (is_number(a) && is_number(b)) {
        *ret = compare_numbers(a, b) == 0 && number_of(a) == number_of(b);
        return 0;
    }
    if (a.type != b.type)
        return 0;
    switch (a.type) {
    case JINJA_STR:
        *ret = jinja_str_equal(a.str, b.str);
        return jinja_charge_bytes(run, a.str.len);
    case JINJA_LIST:
        return lists_equal(run, a.list, b.list, ret);
    case JINJA_DICT:
        return dicts_equal(run, a.dict, b.dict, ret);
    case JINJA_NAMESPACE:
        *ret = a.names == b.names;
        return 0;
    case JINJA_LOOP:
        *ret = a.loop == b.loop;
        return 0;
    default:
        *ret = true; /* none, undefined */
        return 0;
    }
}

/* The first items that differ decide, then the lengths. */
static int compare_lists(struct jinja_run *run, const struct jinja_list *a,
                         const struct jinja_list *b, int *ret)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal = false;
        int r = jinja_equal(run, a->items[i], b->items[i], &equal);

        if (r < 0)
            return r;
        if (!equal)
            return jinja_compare(run, a->items[i], b->items[i], ret);
    }
    *ret = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b, int *ret)
{
    if (a.type == JINJA_LIST && b.type == JINJA_LIST && a.list->is_tuple == b.list->is_tuple)
        return compare_lists(run, a.list, b.list, ret);
    if (is_number(a) && is_number(b)) {
        *ret = compare_numbers(a, b);
        return 0;
    }
    if (a.type != JINJA_STR || b.type != JINJA_STR)
        return jinja_fail(run, "%s and %s have no order", jinja_type_name(a), jinja_type_name(b));
    *ret = compare_strings(a.str, b.str);
    return jinja_charge_bytes(run, a.str.len);
}

int jinja_contains(struct jinja_run *run, struct jinja_value all, struct jinja_value item,
                   bool *ret)
{
    int r = 0;

    *ret = false;
    if (all.type == JINJA_STR) {
        if (item.type != JINJA_STR)
            return jinja_fail(run, "'in <string>' needs a string, not %s", jinja_type_name(item));
        *ret = jinja_find(all.str, 0, item.str) >= 0;
        return jinja_charge_bytes(run, all.str.len);
    }
    if (all.type == JINJA_DICT) {
        if (item.type == JINJA_DICT || (item.type == JINJA_LIST && !item.list->is_tuple))
            return jinja_fail(run, "%s is no dictionary's key", jinja_type_name(item));
        *ret = item.type == JINJA_STR && jinja_dict_get(run, all.dict, item.str, &r);
        return r;
    }
    if (all.type == JINJA_UNDEFINED)
        return 0;
    if (all.type != JINJA_LIST)
        return jinja_fail(run, "%s cannot be searched with 'in'", jinja_type_name(all));
    for (size_t i = 0; i < all.list->n && !*ret && r == 0; i++)
        r = jinja_equal(run, all.list->items[i], item, ret);
    return r;
}

static int chars_of(struct jinja_run *run, struct jinja_str s, const struct jinja_list **ret)
{
    struct jinja_list *list = jinja_list_new(run, jinja_n_chars(s));
    size_t at = 0;

    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < list->n; i++) {
        size_t len = jinja_char_len(s, at);

        list->items[i] = jinja_text(jinja_cut(s, at, len));
        at += len;
    }
    *ret = list;
    return 0;
}

int jinja_items(struct jinja_run *run, struct jinja_value v, const struct jinja_list **ret)
{
    struct jinja_list *list;

    if (v.type == JINJA_LIST) {
        *ret = v.list;
        return 0;
    }
    if (v.type == JINJA_STR)
        return chars_of(run, v.str, ret);
    if (v.type != JINJA_DICT && v.type != JINJA_UNDEFINED)
        return jinja_fail(run, "%s is not iterable", jinja_type_name(v));
    list = jinja_list_new(run, v.type == JINJA_DICT ? v.dict->n : 0);
    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < list->n; i++)
        list->items[i] = jinja_text(v.dict->entries[i].key);
    *ret = list;
    return 0;
}

int jinja_length(struct jinja_run *run, struct jinja_value v, size_t *ret)
{
    switch (v.type) {
    case JINJA_STR:
        *ret = jinja_n_chars(v.str);
        return jinja_charge_bytes(run, v.str.len);
    case JINJA_LIST:
        *ret = v.list->n;
        return 0;
    case JINJA_DICT:
        *ret = v.dict->n;
        return 0;
    case JINJA_UNDEFINED:
        *ret = 0;
        return 0;
    default:
        return jinja_fail(run, "%s has no length", jinja_type_name(v));
    }
}

static struct jinja_value loop_item(const struct jinja_loop *loop, struct jinja_str key)
{
    size_t n = loop->items->n, i = loop->index;

    if (jinja_str_is(key, "index"))
        return jinja_int((int64_t)i + 1);
    if (jinja_str_is(key, "index0"))
        return jinja_int((int64_t)i);
    if (jinja_str_is(key, "revindex"))
        return jinja_int((int64_t)(n - i));
    if (jinja_str_is(key, "revindex0"))
        return jinja_int((int64_t)(n - i) - 1);
    if (jinja_str_is(key, "first"))
        return jinja_bool(i == 0);
    if (jinja_str_is(key, "last"))
        return jinja_bool(i + 1 == n);
    if (jinja_str_is(key, "length"))
        return jinja_int((int64_t)n);
    if (jinja_str_is(key, "depth")) /* only recursive loops have another, and we have none */
        return jinja_int(1);
    if (jinja_str_is(key, "depth0"))
        return jinja_int(0);
    if (jinja_str_is(key, "previtem") && i > 0)
        return loop->items->items[i - 1];
    if (jinja_str_is(key, "nextitem") && i + 1 < n)
        return loop->items->items[i + 1];
    return jinja_undefined(key.data, key.len);
}

/* v[i]; i < 0 counts from the end. */
static int item_at(struct jinja_run *run, struct jinja_value v, int64_t i, struct jinja_value *ret)
{
    size_t n, at = 0;
    int r = jinja_length(run, v, &n);

    *ret = jinja_undefined("item", 4);
    if (r < 0)
        return r;
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n)
        return 0;
    if (v.type == JINJA_LIST) {
        *ret = v.list->items[i];
        return 0;
    }
    while (i-- > 0)
        at += jinja_char_len(v.str, at);
    *ret = jinja_text(jinja_cut(v.str, at, jinja_char_len(v.str, at)));
    return 0;
}

int jinja_item(struct jinja_run *run, struct jinja_value v, struct jinja_value key,
               struct jinja_value *ret)
{
    const struct jinja_value *found = NULL;
    int r = 0;

    if (v.type == JINJA_UNDEFINED)
        return jinja_fail(run, "'%.*s' is undefined", (int)(v.str.len < 64 ? v.str.len : 64),
                          v.str.data);
    if ((v.type == JINJA_LIST || v.type == JINJA_STR) &&
        (key.type == JINJA_INT || key.type == JINJA_BOOL))
        return item_at(run, v, key.type == JINJA_INT ? key.integer : key.boolean, ret);
    *ret = jinja_undefined("item", 4);
    if (key.type != JINJA_STR)
        return 0;
    *ret = jinja_undefined(key.str.data, key.str.len);
    if (v.type == JINJA_LOOP)
        *ret = loop_item(v.loop, key.str);
    else if (v.type == JINJA_DICT)
        found = jinja_dict_get(run, v.dict, key.str, &r);
    else if (v.type == JINJA_NAMESPACE)
        found = jinja_dict_get(run, v.names, key.str, &r);
    if (found)
        *ret = *found;
    return r;
}
