/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "runtime/text/jinja/value.h"

/* A parsed template: nodes in an arena, immutable once parsed.  Private to runtime/text. */

enum jinja_kind {
    /* statements */
    JINJA_NODE_TEXT,      /* value: as it is */
    JINJA_NODE_OUTPUT,    /* a: what is shown */
    JINJA_NODE_IF,        /* body: JINJA_NODE_BRANCHes */
    JINJA_NODE_BRANCH,    /* a: condition (NULL: else), body */
    JINJA_NODE_FOR,       /* a: over what, b: filter or NULL, c: names, body, orelse */
    JINJA_NODE_SET,       /* name, a: value; with attribute: of the namespace 'name' */
    JINJA_NODE_SET_BLOCK, /* name, body */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
    /* expressions */
    JINJA_NODE_CONST,      /* value */
    JINJA_NODE_NAME,       /* name */
    JINJA_NODE_LIST,       /* body: items; is_tuple */
    JINJA_NODE_DICT,       /* body: pairs */
    JINJA_NODE_PAIR,       /* a: key, b: value */
    JINJA_NODE_ITEM,       /* a[b], and a.b with b a constant */
    JINJA_NODE_SLICE,      /* a[body], three bounds */
    JINJA_NODE_CALL,       /* function with args; a: what it is applied to, or NULL */
    JINJA_NODE_NAMESPACE,  /* body: pairs */
    JINJA_NODE_NOT,        /* a */
    JINJA_NODE_NEGATE,     /* a */
    JINJA_NODE_AND,        /* a, b */
    JINJA_NODE_OR,         /* a, b */
    JINJA_NODE_ARITHMETIC, /* a op b */
    JINJA_NODE_COMPARE,    /* a, body: JINJA_NODE_OPERANDs, a chain as in Python */
    JINJA_NODE_OPERAND,    /* op a */
    JINJA_NODE_CONCAT,     /* body: joined by ~ */
    JINJA_NODE_CONDITION,  /* a if b else c; c may be NULL */
};

enum jinja_op {
    JINJA_OP_ADD,
    JINJA_OP_SUB,
    JINJA_OP_MUL,
    JINJA_OP_DIV,
    JINJA_OP_FLOOR_DIV,
    JINJA_OP_MOD,
    JINJA_OP_EQ,
    JINJA_OP_NE,
    JINJA_OP_LT,
    JINJA_OP_LE,
    JINJA_OP_GT,
    JINJA_OP_GE,
    JINJA_OP_IN,
    JINJA_OP_NOT_IN,
};

enum { JINJA_ARGS_MAX = 4 };

/* A filter, test, method or global function.  args[i] is the i-th parameter's value; absent ones
 * are NULL. */
struct jinja_function {
    const char *name;
    unsigned min_args, max_args;
    const char *params[JINJA_ARGS_MAX]; /* names for keyword arguments; NULL: positional only */
    int (*call)(struct jinja_run *run, struct jinja_value self,
                const struct jinja_value *const args[JINJA_ARGS_MAX], struct jinja_value *ret);
};

struct jinja_node {
    enum jinja_kind kind;
    enum jinja_op op;
    uint32_t line;
    uint16_t depth; /* 1 + the deepest child's */
    bool is_tuple;
    struct jinja_node *next; /* the next in a body */
    struct jinja_node *a, *b, *c;
    struct jinja_node *body;
    struct jinja_node *orelse;
    struct jinja_str name;
    struct jinja_str attribute;
    struct jinja_value value;
    const struct jinja_function *function;
    struct jinja_node *args[JINJA_ARGS_MAX];
};

/* NULL: there is none of that name. */
const struct jinja_function *jinja_filter(struct jinja_str name);
const struct jinja_function *jinja_test(struct jinja_str name);
const struct jinja_function *jinja_method(struct jinja_str name);
const struct jinja_function *jinja_global(struct jinja_str name);
