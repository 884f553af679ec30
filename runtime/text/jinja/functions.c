/* SPDX-License-Identifier: Apache-2.0
 *
 * functions.c - what filters and methods have in common, and the global functions.
 *
 * Case changes touch ASCII letters only.  Python's follow Unicode; no template in use changes the
 * case of what a person wrote.
 */
#include "runtime/text/jinja/functions.h"

#include <string.h>

#include "runtime/text/jinja/text.h"

enum { RANGE_MAX = 100000 }; /* as Jinja's sandbox has it */

const struct jinja_function *jinja_function_find(const struct jinja_function *table,
                                                 struct jinja_str name)
{
    for (; table->name; table++)
        if (jinja_str_is(name, table->name))
            return table;
    return NULL;
}

static char to_case(char c, bool upper)
{
    if (upper)
        return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int jinja_case(struct jinja_run *run, struct jinja_str s, bool upper, struct jinja_str *ret)
{
    char *data = jinja_alloc(run, s.len + 1, 1);

    if (!data)
        return -(int)run->err->code;
    for (size_t i = 0; i < s.len; i++)
        data[i] = to_case(s.data[i], upper);
    *ret = jinja_with_data(s, data);
    return 0;
}

static bool never(char c)
{
    (void)c;
    return false;
}

int jinja_capitalize(struct jinja_run *run, struct jinja_str s, struct jinja_str *ret)
{
    return jinja_title(run, s, never, ret);
}

int jinja_title(struct jinja_run *run, struct jinja_str s, bool (*breaks)(char c),
                struct jinja_str *ret)
{
    char *data = jinja_alloc(run, s.len + 1, 1);

    if (!data)
        return -(int)run->err->code;
    for (size_t i = 0; i < s.len; i++)
        data[i] = to_case(s.data[i], i == 0 || breaks(s.data[i - 1]));
    *ret = jinja_with_data(s, data);
    return 0;
}

int jinja_join(struct jinja_run *run, const struct jinja_list *list, struct jinja_str sep,
               struct jinja_str *ret)
{
    struct jinja_str *parts = jinja_alloc(run, 2 * list->n + 1, sizeof(*parts));
    size_t n = 0;
    int r = parts ? 0 : -(int)run->err->code;

    for (size_t i = 0; i < list->n && r == 0; i++) {
        if (i > 0)
            parts[n++] = sep;
        r = jinja_to_str(run, list->items[i], &parts[n++]);
    }
    return r < 0 ? r : jinja_concat(run, parts, n, ret);
}

int jinja_int_arg(struct jinja_run *run, const struct jinja_value *arg, int64_t fallback,
                  int64_t *ret)
{
    *ret = fallback;
    if (!arg || arg->type == JINJA_NONE)
        return 0;
    if (arg->type != JINJA_INT)
        return jinja_fail(run, "expected an integer, not %s", jinja_type_name(*arg));
    *ret = arg->integer;
    return 0;
}

int jinja_dict_items(struct jinja_run *run, const struct jinja_dict *dict, struct jinja_value *ret)
{
    struct jinja_list *list = jinja_list_new(run, dict->n);
    int r = list ? 0 : -(int)run->err->code;

    for (size_t i = 0; r == 0 && i < dict->n; i++) {
        struct jinja_list *pair = jinja_list_new(run, 2);

        if (!pair)
            return -(int)run->err->code;
        pair->is_tuple = true;
        pair->items[0] = jinja_text(dict->entries[i].key);
        pair->items[1] = dict->entries[i].value;
        r = jinja_list_done(run, pair, &list->items[i]);
    }
    return r < 0 ? r : jinja_list_done(run, list, ret);
}

/* ---- globals ---- */

static int call_raise_exception(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str text;
    int r = jinja_to_str(run, *args[0], &text);

    (void)self;
    (void)ret;
    if (r < 0)
        return r;
    return err_set(run->err, ERR_INVALID, "%.*s", (int)(text.len < 500 ? text.len : 500),
                   text.data);
}

static int call_range(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    int64_t start = 0, stop, step, n;
    struct jinja_list *list;
    int r = jinja_int_arg(run, args[args[1] ? 1 : 0], 0, &stop);

    (void)self;
    if (r == 0 && args[1])
        r = jinja_int_arg(run, args[0], 0, &start);
    if (r == 0)
        r = jinja_int_arg(run, args[2], 1, &step);
    if (r < 0)
        return r;
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX || start < -INT32_MAX ||
        start > INT32_MAX || stop < -INT32_MAX || stop > INT32_MAX)
        return jinja_fail(run, "range() out of its limits");
    n = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    if (n > RANGE_MAX)
        return jinja_fail(run, "range() of over %d numbers", RANGE_MAX);
    list = jinja_list_new(run, n > 0 ? (size_t)n : 0);
    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < list->n; i++)
        list->items[i] = jinja_int(start + (int64_t)i * step);
    return jinja_list_done(run, list, ret);
}

const struct jinja_function *jinja_global(struct jinja_str name)
{
    static const struct jinja_function table[] = {
            {"raise_exception", 1, 1, {NULL}, call_raise_exception},
            {"range", 1, 3, {NULL}, call_range},
            {.name = NULL},
    };

    return jinja_function_find(table, name);
}
