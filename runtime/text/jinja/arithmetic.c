/* SPDX-License-Identifier: Apache-2.0
 *
 * arithmetic.c - + - * / // % with Python's rules: / is a float, // and % round towards minus
 * infinity, True counts as 1, + joins strings and lists, * repeats a string or a list.  Integers
 * are 64 bits and an overflow is an error, where Python's would grow.
 */
#include <math.h>
#include <string.h>

#include "runtime/text/jinja/eval.h"
#include "runtime/text/jinja/text.h"

static bool as_int(struct jinja_value v, int64_t *ret)
{
    *ret = v.type == JINJA_INT ? v.integer : v.type == JINJA_BOOL ? v.boolean : 0;
    return v.type == JINJA_INT || v.type == JINJA_BOOL;
}

static bool as_float(struct jinja_value v, double *ret)
{
    int64_t i;

    if (v.type == JINJA_FLOAT) {
        *ret = v.number;
        return true;
    }
    if (!as_int(v, &i))
        return false;
    *ret = (double)i;
    return true;
}

static int overflow(struct jinja_run *run)
{
    return jinja_fail(run, "a number is too large");
}

/* b != 0 */
static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int on_ints(struct jinja_run *run, enum jinja_op op, int64_t a, int64_t b,
                   struct jinja_value *ret)
{
    int64_t v = 0;
    bool over = false;

    if (op >= JINJA_OP_DIV && b == 0)
        return jinja_fail(run, "division by zero");
    if (op >= JINJA_OP_DIV && a == INT64_MIN && b == -1)
        return overflow(run);
    switch (op) {
    case JINJA_OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case JINJA_OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case JINJA_OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case JINJA_OP_FLOOR_DIV:
        v = floor_div(a, b);
        break;
    case JINJA_OP_MOD:
        v = a - floor_div(a, b) * b;
        break;
    default:
        *ret = jinja_float((double)a / (double)b);
        return 0;
    }
    *ret = jinja_int(v);
    return over ? overflow(run) : 0;
}

static int on_floats(struct jinja_run *run, enum jinja_op op, double a, double b,
                     struct jinja_value *ret)
{
    double v;

    if (op >= JINJA_OP_DIV && b == 0)
        return jinja_fail(run, "division by zero");
    switch (op) {
    case JINJA_OP_ADD:
        v = a + b;
        break;
    case JINJA_OP_SUB:
        v = a - b;
        break;
    case JINJA_OP_MUL:
        v = a * b;
        break;
    case JINJA_OP_DIV:
        v = a / b;
        break;
    case JINJA_OP_FLOOR_DIV:
        v = floor(a / b);
        break;
    default:
        v = fmod(a, b);
        v = v != 0 && (v < 0) != (b < 0) ? v + b : v;
        break;
    }
    *ret = jinja_float(v);
    return 0;
}

static int join_lists(struct jinja_run *run, const struct jinja_list *a, const struct jinja_list *b,
                      struct jinja_value *ret)
{
    struct jinja_list *list = jinja_list_new(run, a->n + b->n);

    if (!list)
        return -(int)run->err->code;
    list->is_tuple = a->is_tuple;
    memcpy(list->items, a->items, a->n * sizeof(*a->items));
    memcpy(list->items + a->n, b->items, b->n * sizeof(*b->items));
    return jinja_list_done(run, list, ret);
}

static int join_strings(struct jinja_run *run, struct jinja_str a, struct jinja_str b,
                        struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = jinja_concat(run, (struct jinja_str[]){a, b}, 2, &s);

    *ret = jinja_text(s);
    return r;
}

static int repeat(struct jinja_run *run, struct jinja_str s, int64_t times, struct jinja_value *ret)
{
    struct jinja_str *parts;
    struct jinja_str whole = {0};
    size_t n = times > 0 && s.len > 0 ? (size_t)times : 0;
    int r;

    parts = jinja_alloc(run, n, sizeof(*parts));
    if (!parts)
        return -(int)run->err->code;
    for (size_t i = 0; i < n; i++)
        parts[i] = s;
    r = jinja_concat(run, parts, n, &whole);
    *ret = jinja_text(whole);
    return r;
}

static int repeat_list(struct jinja_run *run, const struct jinja_list *list, int64_t times,
                       struct jinja_value *ret)
{
    size_t n = times > 0 ? (size_t)times : 0, total;
    struct jinja_list *whole;

    if (__builtin_mul_overflow(n, list->n, &total))
        return overflow(run);
    whole = jinja_list_new(run, total);
    if (!whole)
        return -(int)run->err->code;
    whole->is_tuple = list->is_tuple;
    for (size_t i = 0; i < total; i++)
        whole->items[i] = list->items[i % list->n];
    return jinja_list_done(run, whole, ret);
}

int jinja_arithmetic(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                     struct jinja_value b, struct jinja_value *ret)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%"};
    int64_t i, k;
    double x, y;

    if (as_int(a, &i) && as_int(b, &k))
        return on_ints(run, op, i, k, ret);
    if (as_float(a, &x) && as_float(b, &y))
        return on_floats(run, op, x, y, ret);
    if (op == JINJA_OP_ADD && a.type == JINJA_STR && b.type == JINJA_STR)
        return join_strings(run, a.str, b.str, ret);
    if (op == JINJA_OP_ADD && a.type == JINJA_LIST && b.type == JINJA_LIST &&
        a.list->is_tuple == b.list->is_tuple)
        return join_lists(run, a.list, b.list, ret);
    if (op == JINJA_OP_MUL && a.type == JINJA_STR && as_int(b, &k))
        return repeat(run, a.str, k, ret);
    if (op == JINJA_OP_MUL && b.type == JINJA_STR && as_int(a, &k))
        return repeat(run, b.str, k, ret);
    if (op == JINJA_OP_MUL && a.type == JINJA_LIST && as_int(b, &k))
        return repeat_list(run, a.list, k, ret);
    if (op == JINJA_OP_MUL && b.type == JINJA_LIST && as_int(a, &k))
        return repeat_list(run, b.list, k, ret);
    if (a.type == JINJA_UNDEFINED || b.type == JINJA_UNDEFINED) {
        struct jinja_str name = a.type == JINJA_UNDEFINED ? a.str : b.str;

        return jinja_fail(run, "'%.*s' is undefined", (int)(name.len < 64 ? name.len : 64),
                          name.data);
    }
    return jinja_fail(run, "%s %s %s has no meaning", jinja_type_name(a), names[op],
                      jinja_type_name(b));
}

int jinja_negate(struct jinja_run *run, struct jinja_value v, struct jinja_value *ret)
{
    int64_t i;

    if (v.type == JINJA_FLOAT) {
        *ret = jinja_float(-v.number);
        return 0;
    }
    if (!as_int(v, &i))
        return jinja_fail(run, "-%s has no meaning", jinja_type_name(v));
    return on_ints(run, JINJA_OP_SUB, 0, i, ret);
}
