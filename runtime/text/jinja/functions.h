/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/text/jinja/ast.h"

/* What filters.c, methods.c and tests.c share.  Private to runtime/text. */

/* The entry of that name in a table ended by a NULL name. */
const struct jinja_function *jinja_function_find(const struct jinja_function *table,
                                                 struct jinja_str name);
/* Upper and lower case of ASCII letters; others stay as they are. */
int jinja_case(struct jinja_run *run, struct jinja_str s, bool upper,
               struct jinja_str *ret) MUST_CHECK;
/* The first letter large, the rest small. */
int jinja_capitalize(struct jinja_run *run, struct jinja_str s, struct jinja_str *ret) MUST_CHECK;
/* The first letter of every word; words end at what 'breaks' says. */
int jinja_title(struct jinja_run *run, struct jinja_str s, bool (*breaks)(char c),
                struct jinja_str *ret) MUST_CHECK;
/* The strings of a list with sep between them. */
int jinja_join(struct jinja_run *run, const struct jinja_list *list, struct jinja_str sep,
               struct jinja_str *ret) MUST_CHECK;
/* args[i] as an integer; fallback when absent; an error when it is no integer. */
int jinja_int_arg(struct jinja_run *run, const struct jinja_value *arg, int64_t fallback,
                  int64_t *ret) MUST_CHECK;
/* A list of (key, value) tuples. */
int jinja_dict_items(struct jinja_run *run, const struct jinja_dict *dict,
                     struct jinja_value *ret) MUST_CHECK;
