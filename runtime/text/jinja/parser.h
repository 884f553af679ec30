/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/lexer.h"

/* Tokens to nodes.  What the subset lacks (a tag, filter, test, method, function) is refused here,
 * by line and name.  Private to runtime/text. */

enum {
    JINJA_DEPTH_MAX = 200, /* of nodes: what evaluates them recurses as deep */
    JINJA_LEVEL_MAX = 120, /* of the parser in itself; a pair of brackets takes two */
};

struct jinja_parser {
    struct arena *arena;
    struct err *err;
    const struct jinja_token *t; /* the current token */
    unsigned level;              /* how deep the parser is in itself */
    unsigned loops;              /* for loops around */
};

/* *ret: the first node of the template's body; NULL for an empty one. */
int jinja_parse(struct arena *arena, const struct jinja_tokens *tokens, struct jinja_node **ret,
                struct err *err) MUST_CHECK;

/* ---- between parser.c (statements) and parse_expr.c ---- */

int jinja_parse_expr(struct jinja_parser *p, struct jinja_node **ret) MUST_CHECK;
/* The same without a trailing "if ... else": what a for loop runs over. */
int jinja_parse_or(struct jinja_parser *p, struct jinja_node **ret) MUST_CHECK;

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_kind kind); /* NULL: err set */
/* A node whose children are all in place: checks the depth. */
int jinja_node_done(struct jinja_parser *p, struct jinja_node *n,
                    struct jinja_node **ret) MUST_CHECK;
/* "line 3: <what>", at the current token. */
int jinja_refuse(struct jinja_parser *p, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/* "expected 'x', not 'y'" */
int jinja_expected(struct jinja_parser *p, const char *what);
bool jinja_at_op(const struct jinja_parser *p, const char *op);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_take_op(struct jinja_parser *p, const char *op);
bool jinja_take_name(struct jinja_parser *p, const char *name);
int jinja_expect_op(struct jinja_parser *p, const char *op) MUST_CHECK;
/* A name that is no keyword. */
int jinja_expect_name(struct jinja_parser *p, struct jinja_str *ret) MUST_CHECK;
