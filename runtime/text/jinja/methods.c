/* SPDX-License-Identifier: Apache-2.0
 *
 * methods.c - methods of strings, dictionaries and the loop, as Python has them.
 *
 * The parser knows a method's name, not the type it will be called on; one that the type lacks is
 * an error when it runs.
 */
#include <string.h>

#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/text.h"

static int lacks(struct jinja_run *run, struct jinja_value self, const char *name)
{
    if (self.type == JINJA_UNDEFINED)
        return jinja_fail(run, "'%.*s' is undefined", (int)(self.str.len < 64 ? self.str.len : 64),
                          self.str.data);
    return jinja_fail(run, "%s has no method '%s'", jinja_type_name(self), name);
}

/* Every string method's first lines: self and args are strings. */
static int want_strings(struct jinja_run *run, const char *name, struct jinja_value self,
                        const struct jinja_value *const args[], size_t n_args)
{
    if (self.type != JINJA_STR)
        return lacks(run, self, name);
    for (size_t i = 0; i < n_args; i++)
        if (args[i] && args[i]->type != JINJA_STR && args[i]->type != JINJA_NONE)
            return jinja_fail(run, "%s() needs strings, not %s", name, jinja_type_name(*args[i]));
    return 0;
}

static const struct jinja_str *str_arg(const struct jinja_value *arg)
{
    return arg && arg->type == JINJA_STR ? &arg->str : NULL;
}

static int strip(struct jinja_run *run, const char *name, struct jinja_value self,
                 const struct jinja_value *const args[], enum jinja_side side,
                 struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = want_strings(run, name, self, args, 1);

    if (r == 0)
        r = jinja_strip(run, self.str, str_arg(args[0]), side, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_strip(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    return strip(run, "strip", self, args, JINJA_BOTH, ret);
}

static int call_lstrip(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    return strip(run, "lstrip", self, args, JINJA_LEFT, ret);
}

static int call_rstrip(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    return strip(run, "rstrip", self, args, JINJA_RIGHT, ret);
}

static int split(struct jinja_run *run, const char *name, struct jinja_value self,
                 const struct jinja_value *const args[], bool from_right, struct jinja_value *ret)
{
    int64_t max;
    int r = want_strings(run, name, self, args, 1);

    if (r == 0)
        r = jinja_int_arg(run, args[1], -1, &max);
    return r < 0 ? r : jinja_split(run, self.str, str_arg(args[0]), max, from_right, ret);
}

static int call_split(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    return split(run, "split", self, args, false, ret);
}

static int call_rsplit(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    return split(run, "rsplit", self, args, true, ret);
}

static bool has_affix(struct jinja_str s, struct jinja_str affix, bool at_end)
{
    return affix.len <= s.len &&
           jinja_str_equal(jinja_cut(s, at_end ? s.len - affix.len : 0, affix.len), affix);
}

/* startswith(), endswith(): one string, or a tuple of them. */
static int test_affix(struct jinja_run *run, const char *name, struct jinja_value self,
                      struct jinja_value arg, bool at_end, struct jinja_value *ret)
{
    bool yes = false;

    if (self.type != JINJA_STR)
        return lacks(run, self, name);
    if (arg.type == JINJA_STR) {
        *ret = jinja_bool(has_affix(self.str, arg.str, at_end));
        return jinja_charge_bytes(run, arg.str.len);
    }
    if (arg.type != JINJA_LIST || !arg.list->is_tuple)
        return jinja_fail(run, "%s() needs a string, not %s", name, jinja_type_name(arg));
    for (size_t i = 0; i < arg.list->n; i++) {
        if (arg.list->items[i].type != JINJA_STR)
            return jinja_fail(run, "%s() needs strings", name);
        yes = yes || has_affix(self.str, arg.list->items[i].str, at_end);
    }
    *ret = jinja_bool(yes);
    return jinja_charge(run, arg.list->n);
}

static int call_startswith(struct jinja_run *run, struct jinja_value self,
                           const struct jinja_value *const args[], struct jinja_value *ret)
{
    return test_affix(run, "startswith", self, *args[0], false, ret);
}

static int call_endswith(struct jinja_run *run, struct jinja_value self,
                         const struct jinja_value *const args[], struct jinja_value *ret)
{
    return test_affix(run, "endswith", self, *args[0], true, ret);
}

static int remove_affix(struct jinja_run *run, const char *name, struct jinja_value self,
                        const struct jinja_value *const args[], bool at_end,
                        struct jinja_value *ret)
{
    int r = want_strings(run, name, self, args, 1);
    const struct jinja_str *affix = str_arg(args[0]);

    if (r == 0 && !affix)
        return jinja_fail(run, "%s() needs a string", name);
    if (r < 0)
        return r;
    *ret = self;
    if (has_affix(self.str, *affix, at_end))
        *ret = jinja_text(jinja_cut(self.str, at_end ? 0 : affix->len, self.str.len - affix->len));
    return 0;
}

static int call_removeprefix(struct jinja_run *run, struct jinja_value self,
                             const struct jinja_value *const args[], struct jinja_value *ret)
{
    return remove_affix(run, "removeprefix", self, args, false, ret);
}

static int call_removesuffix(struct jinja_run *run, struct jinja_value self,
                             const struct jinja_value *const args[], struct jinja_value *ret)
{
    return remove_affix(run, "removesuffix", self, args, true, ret);
}

static int call_replace(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int64_t max;
    int r = want_strings(run, "replace", self, args, 2);

    if (r == 0 && (!str_arg(args[0]) || !str_arg(args[1])))
        return jinja_fail(run, "replace() needs strings");
    if (r == 0)
        r = jinja_int_arg(run, args[2], -1, &max);
    if (r == 0)
        r = jinja_replace(run, self.str, args[0]->str, args[1]->str, max, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_find(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    ptrdiff_t at;
    int r = want_strings(run, "find", self, args, 1);

    if (r == 0 && !str_arg(args[0]))
        return jinja_fail(run, "find() needs a string");
    if (r == 0)
        r = jinja_charge_bytes(run, self.str.len);
    if (r < 0)
        return r;
    at = jinja_find(self.str, 0, args[0]->str);
    *ret = jinja_int(at < 0 ? -1 : (int64_t)jinja_n_chars(jinja_cut(self.str, 0, (size_t)at)));
    return 0;
}

static int call_count(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    int64_t n = 0;
    int r = want_strings(run, "count", self, args, 1);

    if (r == 0 && (!str_arg(args[0]) || args[0]->str.len == 0))
        return jinja_fail(run, "count() needs a string that is not empty");
    if (r == 0)
        r = jinja_charge_bytes(run, self.str.len);
    if (r < 0)
        return r;
    for (ptrdiff_t at = 0; (at = jinja_find(self.str, (size_t)at, args[0]->str)) >= 0; n++)
        at += (ptrdiff_t)args[0]->str.len;
    *ret = jinja_int(n);
    return 0;
}

static int call_upper(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = want_strings(run, "upper", self, args, 0);

    if (r == 0)
        r = jinja_case(run, self.str, true, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_lower(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = want_strings(run, "lower", self, args, 0);

    if (r == 0)
        r = jinja_case(run, self.str, false, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_capitalize(struct jinja_run *run, struct jinja_value self,
                           const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = want_strings(run, "capitalize", self, args, 0);

    if (r == 0)
        r = jinja_capitalize(run, self.str, &s);
    *ret = jinja_text(s);
    return r;
}

static bool is_no_letter(char c)
{
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || ((unsigned char)c & 0x80));
}

static int call_title(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    struct jinja_str s = {0};
    int r = want_strings(run, "title", self, args, 0);

    if (r == 0)
        r = jinja_title(run, self.str, is_no_letter, &s);
    *ret = jinja_text(s);
    return r;
}

static int call_join(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_list *list;
    struct jinja_str s = {0};
    int r = want_strings(run, "join", self, args, 0);

    if (r == 0)
        r = jinja_items(run, *args[0], &list);
    for (size_t i = 0; r == 0 && i < list->n; i++)
        if (list->items[i].type != JINJA_STR)
            r = jinja_fail(run, "join() of %s", jinja_type_name(list->items[i]));
    if (r == 0)
        r = jinja_join(run, list, self.str, &s);
    *ret = jinja_text(s);
    return r;
}

/* ---- dictionaries ---- */

static int call_items(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return self.type == JINJA_DICT ? jinja_dict_items(run, self.dict, ret)
                                   : lacks(run, self, "items");
}

static int dict_part(struct jinja_run *run, const struct jinja_dict *dict, bool keys,
                     struct jinja_value *ret)
{
    struct jinja_list *list = jinja_list_new(run, dict->n);

    if (!list)
        return -(int)run->err->code;
    for (size_t i = 0; i < dict->n; i++)
        list->items[i] = keys ? jinja_text(dict->entries[i].key) : dict->entries[i].value;
    return jinja_list_done(run, list, ret);
}

static int call_keys(struct jinja_run *run, struct jinja_value self,
                     const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return self.type == JINJA_DICT ? dict_part(run, self.dict, true, ret)
                                   : lacks(run, self, "keys");
}

static int call_values(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return self.type == JINJA_DICT ? dict_part(run, self.dict, false, ret)
                                   : lacks(run, self, "values");
}

static int call_get(struct jinja_run *run, struct jinja_value self,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    const struct jinja_value *found = NULL;
    int r = 0;

    if (self.type != JINJA_DICT)
        return lacks(run, self, "get");
    if (args[0]->type == JINJA_STR)
        found = jinja_dict_get(run, self.dict, args[0]->str, &r);
    *ret = found ? *found : args[1] ? *args[1] : jinja_none();
    return r;
}

/* loop.cycle('odd', 'even') */
static int call_cycle(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    size_t n = 0;

    if (self.type != JINJA_LOOP)
        return lacks(run, self, "cycle");
    while (n < JINJA_ARGS_MAX && args[n])
        n++;
    *ret = *args[self.loop->index % n];
    return 0;
}

const struct jinja_function *jinja_method(struct jinja_str name)
{
    static const struct jinja_function table[] = {
            {"strip", 0, 1, {NULL}, call_strip},
            {"lstrip", 0, 1, {NULL}, call_lstrip},
            {"rstrip", 0, 1, {NULL}, call_rstrip},
            {"split", 0, 2, {"sep", "maxsplit"}, call_split},
            {"rsplit", 0, 2, {"sep", "maxsplit"}, call_rsplit},
            {"startswith", 1, 1, {NULL}, call_startswith},
            {"endswith", 1, 1, {NULL}, call_endswith},
            {"removeprefix", 1, 1, {NULL}, call_removeprefix},
            {"removesuffix", 1, 1, {NULL}, call_removesuffix},
            {"replace", 2, 3, {NULL}, call_replace},
            {"find", 1, 1, {NULL}, call_find},
            {"count", 1, 1, {NULL}, call_count},
            {"upper", 0, 0, {NULL}, call_upper},
            {"lower", 0, 0, {NULL}, call_lower},
            {"capitalize", 0, 0, {NULL}, call_capitalize},
            {"title", 0, 0, {NULL}, call_title},
            {"join", 1, 1, {NULL}, call_join},
            {"items", 0, 0, {NULL}, call_items},
            {"keys", 0, 0, {NULL}, call_keys},
            {"values", 0, 0, {NULL}, call_values},
            {"get", 1, 2, {NULL}, call_get},
            {"cycle", 1, 4, {NULL}, call_cycle},
            {.name = NULL},
    };

    return jinja_function_find(table, name);
}
