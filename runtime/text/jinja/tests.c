/* SPDX-License-Identifier: Apache-2.0
 *
 * tests.c - "is defined" and its kind.
 */
#include "runtime/text/jinja/eval.h"
#include "runtime/text/jinja/functions.h"
#include "runtime/text/jinja/text.h"

static int answer(bool yes, struct jinja_value *ret)
{
    *ret = jinja_bool(yes);
    return 0;
}

/* Tests that look at the type alone share one shape. */
#define TYPE_TEST(name, expression)                                                  \
    static int name(struct jinja_run *run, struct jinja_value self,                  \
                    const struct jinja_value *const args[], struct jinja_value *ret) \
    {                                                                                \
        (void)run;                                                                   \
        (void)args;                                                                  \
        return answer((expression), ret);                                            \
    }

TYPE_TEST(is_defined, self.type != JINJA_UNDEFINED)
TYPE_TEST(is_undefined, self.type == JINJA_UNDEFINED)
TYPE_TEST(is_none, self.type == JINJA_NONE)
TYPE_TEST(is_string, self.type == JINJA_STR)
TYPE_TEST(is_mapping, self.type == JINJA_DICT)
TYPE_TEST(is_iterable, self.type == JINJA_STR || self.type == JINJA_LIST ||
                               self.type == JINJA_DICT || self.type == JINJA_UNDEFINED ||
                               self.type == JINJA_LOOP)
TYPE_TEST(is_sequence, self.type == JINJA_STR || self.type == JINJA_LIST ||
                               self.type == JINJA_DICT || self.type == JINJA_UNDEFINED)
TYPE_TEST(is_number, self.type == JINJA_INT || self.type == JINJA_FLOAT || self.type == JINJA_BOOL)
TYPE_TEST(is_integer, self.type == JINJA_INT)
TYPE_TEST(is_float, self.type == JINJA_FLOAT)
TYPE_TEST(is_boolean, self.type == JINJA_BOOL)
TYPE_TEST(is_true, self.type == JINJA_BOOL && self.boolean)
TYPE_TEST(is_false, self.type == JINJA_BOOL && !self.boolean)

/* self % by == rest */
static int has_rest(struct jinja_run *run, struct jinja_value self, struct jinja_value by,
                    int64_t rest, struct jinja_value *ret)
{
    struct jinja_value v;
    bool yes = false;
    int r = jinja_arithmetic(run, JINJA_OP_MOD, self, by, &v);

    if (r == 0)
        r = jinja_equal(run, v, jinja_int(rest), &yes);
    *ret = jinja_bool(yes);
    return r;
}

static int is_divisibleby(struct jinja_run *run, struct jinja_value self,
                          const struct jinja_value *const args[], struct jinja_value *ret)
{
    return has_rest(run, self, *args[0], 0, ret);
}

static int is_even(struct jinja_run *run, struct jinja_value self,
                   const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return has_rest(run, self, jinja_int(2), 0, ret);
}

static int is_odd(struct jinja_run *run, struct jinja_value self,
                  const struct jinja_value *const args[], struct jinja_value *ret)
{
    (void)args;
    return has_rest(run, self, jinja_int(2), 1, ret);
}

static int is_equal(struct jinja_run *run, struct jinja_value self,
                    const struct jinja_value *const args[], struct jinja_value *ret)
{
    bool yes = false;
    int r = jinja_equal(run, self, *args[0], &yes);

    *ret = jinja_bool(yes);
    return r;
}

static int is_not_equal(struct jinja_run *run, struct jinja_value self,
                        const struct jinja_value *const args[], struct jinja_value *ret)
{
    int r = is_equal(run, self, args, ret);

    ret->boolean = !ret->boolean;
    return r;
}

/* Identity, for the values where Python's is not an accident. */
static int is_same(struct jinja_run *run, struct jinja_value self,
                   const struct jinja_value *const args[], struct jinja_value *ret)
{
    if (args[0]->type != JINJA_NONE && args[0]->type != JINJA_BOOL)
        return jinja_fail(run, "sameas() of %s", jinja_type_name(*args[0]));
    if (self.type != args[0]->type)
        return answer(false, ret);
    return is_equal(run, self, args, ret);
}

static int is_in(struct jinja_run *run, struct jinja_value self,
                 const struct jinja_value *const args[], struct jinja_value *ret)
{
    bool yes = false;
    int r = jinja_contains(run, *args[0], self, &yes);

    *ret = jinja_bool(yes);
    return r;
}

static int is_less(struct jinja_run *run, struct jinja_value self,
                   const struct jinja_value *const args[], struct jinja_value *ret)
{
    int order = 0;
    int r = jinja_compare(run, self, *args[0], &order);

    *ret = jinja_bool(order < 0);
    return r;
}

static int is_greater(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    int order = 0;
    int r = jinja_compare(run, self, *args[0], &order);

    *ret = jinja_bool(order > 0);
    return r;
}

static int is_at_most(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_value *const args[], struct jinja_value *ret)
{
    int r = is_greater(run, self, args, ret);

    ret->boolean = !ret->boolean;
    return r;
}

static int is_at_least(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_value *const args[], struct jinja_value *ret)
{
    int r = is_less(run, self, args, ret);

    ret->boolean = !ret->boolean;
    return r;
}

const struct jinja_function *jinja_test(struct jinja_str name)
{
    static const struct jinja_function table[] = {
            {"defined", 0, 0, {NULL}, is_defined},
            {"undefined", 0, 0, {NULL}, is_undefined},
            {"none", 0, 0, {NULL}, is_none},
            {"string", 0, 0, {NULL}, is_string},
            {"mapping", 0, 0, {NULL}, is_mapping},
            {"iterable", 0, 0, {NULL}, is_iterable},
            {"sequence", 0, 0, {NULL}, is_sequence},
            {"number", 0, 0, {NULL}, is_number},
            {"integer", 0, 0, {NULL}, is_integer},
            {"float", 0, 0, {NULL}, is_float},
            {"boolean", 0, 0, {NULL}, is_boolean},
            {"true", 0, 0, {NULL}, is_true},
            {"false", 0, 0, {NULL}, is_false},
            {"even", 0, 0, {NULL}, is_even},
            {"odd", 0, 0, {NULL}, is_odd},
            {"divisibleby", 1, 1, {NULL}, is_divisibleby},
            {"equalto", 1, 1, {NULL}, is_equal},
            {"eq", 1, 1, {NULL}, is_equal},
            {"==", 1, 1, {NULL}, is_equal},
            {"ne", 1, 1, {NULL}, is_not_equal},
            {"!=", 1, 1, {NULL}, is_not_equal},
            {"sameas", 1, 1, {NULL}, is_same},
            {"in", 1, 1, {NULL}, is_in},
            {"lt", 1, 1, {NULL}, is_less},
            {"lessthan", 1, 1, {NULL}, is_less},
            {"le", 1, 1, {NULL}, is_at_most},
            {"gt", 1, 1, {NULL}, is_greater},
            {"greaterthan", 1, 1, {NULL}, is_greater},
            {"ge", 1, 1, {NULL}, is_at_least},
            {.name = NULL},
    };

    return jinja_function_find(table, name);
}
