/* SPDX-License-Identifier: Apache-2.0
 *
 * parser.c - statements.
 *
 * A body is a list of nodes up to a tag that the caller ends with; who asked for the body checks
 * which one it is.  The parser recurses, so its own depth is bounded, and so is the depth of the
 * tree it makes: long chains ("a + b + c ...") nest to the left without the parser recursing.
 */
#include "runtime/text/jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"

static bool is_text(const struct jinja_token *t, const char *s)
{
    return t->len == strlen(s) && memcmp(t->text, s, t->len) == 0;
}

bool jinja_at_op(const struct jinja_parser *p, const char *op)
{
    return p->t->kind == JINJA_TOKEN_OP && is_text(p->t, op);
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->t->kind == JINJA_TOKEN_NAME && is_text(p->t, name);
}

bool jinja_take_op(struct jinja_parser *p, const char *op)
{
    bool yes = jinja_at_op(p, op);

    p->t += yes;
    return yes;
}

bool jinja_take_name(struct jinja_parser *p, const char *name)
{
    bool yes = jinja_at_name(p, name);

    p->t += yes;
    return yes;
}

int jinja_refuse(struct jinja_parser *p, const char *fmt, ...)
{
    char msg[400];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return err_set(p->err, ERR_INVALID, "line %u: %s", p->t->line, msg);
}

int jinja_expected(struct jinja_parser *p, const char *what)
{
    switch (p->t->kind) {
    case JINJA_TOKEN_TEXT:
    case JINJA_TOKEN_END:
        return jinja_refuse(p, "expected %s, not the end", what);
    case JINJA_TOKEN_OUTPUT_BEGIN:
    case JINJA_TOKEN_BLOCK_BEGIN:
    case JINJA_TOKEN_OUTPUT_END:
    case JINJA_TOKEN_BLOCK_END:
        return jinja_refuse(p, "expected %s, not the end of the tag", what);
    default:
        return jinja_refuse(p, "expected %s, not '%.*s'", what,
                            (int)(p->t->len < 64 ? p->t->len : 64), p->t->text);
    }
}

int jinja_expect_op(struct jinja_parser *p, const char *op)
{
    char what[8];

    if (jinja_take_op(p, op))
        return 0;
    (void)snprintf(what, sizeof(what), "'%s'", op);
    return jinja_expected(p, what);
}

int jinja_expect_name(struct jinja_parser *p, struct jinja_str *ret)
{
    static const char *const keywords[] = {"and",   "or",   "not",  "in",    "is",
                                           "if",    "else", "elif", "for",   "true",
                                           "false", "none", "True", "False", "None"};
    bool keyword = false;

    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++)
        keyword = keyword || jinja_at_name(p, keywords[i]);
    if (p->t->kind != JINJA_TOKEN_NAME || keyword)
        return jinja_expected(p, "a name");
    *ret = (struct jinja_str){.data = p->t->text, .len = p->t->len, .literal = true};
    p->t++;
    return 0;
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_kind kind)
{
    struct jinja_node *n = arena_alloc(p->arena, sizeof(*n));

    if (!n) {
        err_set(p->err, ERR_NO_MEMORY, "template");
        return NULL;
    }
    n->kind = kind;
    n->line = p->t->line;
    return n;
}

static void deepen(struct jinja_node *n, const struct jinja_node *child)
{
    for (; child; child = child->next)
        if (child->depth >= n->depth)
            n->depth = (uint16_t)(child->depth + 1);
}

int jinja_node_done(struct jinja_parser *p, struct jinja_node *n, struct jinja_node **ret)
{
    deepen(n, n->a);
    deepen(n, n->b);
    deepen(n, n->c);
    deepen(n, n->body);
    deepen(n, n->orelse);
    for (int i = 0; i < JINJA_ARGS_MAX; i++)
        deepen(n, n->args[i]);
    if (n->depth > JINJA_DEPTH_MAX)
        return jinja_refuse(p, "nested over %d deep", JINJA_DEPTH_MAX);
    *ret = n;
    return 0;
}

static int end_tag(struct jinja_parser *p)
{
    if (p->t->kind != JINJA_TOKEN_BLOCK_END)
        return jinja_expected(p, "'%}'");
    p->t++;
    return 0;
}

static int parse_body(struct jinja_parser *p, struct jinja_node **ret);

/* {% name %}, after a body. */
static int expect_tag(struct jinja_parser *p, const char *name)
{
    if (p->t->kind != JINJA_TOKEN_BLOCK_BEGIN)
        return jinja_refuse(p, "expected '{%% %s %%}', not the end", name);
    p->t++;
    if (!jinja_take_name(p, name))
        return jinja_expected(p, name);
    return end_tag(p);
}

static bool at_tag(const struct jinja_parser *p, const char *name)
{
    return p->t->kind == JINJA_TOKEN_BLOCK_BEGIN && p->t[1].kind == JINJA_TOKEN_NAME &&
           is_text(p->t + 1, name);
}

/* From a branch's condition (an else has none) to the next branch's tag. */
static int parse_branch(struct jinja_parser *p, bool is_else, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_BRANCH);
    int r = n ? 0 : -ERR_NO_MEMORY;

    if (r == 0 && !is_else)
        r = jinja_parse_expr(p, &n->a);
    if (r == 0)
        r = end_tag(p);
    if (r == 0)
        r = parse_body(p, &n->body);
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

static int parse_if(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_IF);
    struct jinja_node **link = n ? &n->body : NULL;
    bool is_else = false;
    int r = n ? parse_branch(p, false, link) : -ERR_NO_MEMORY;

    while (r == 0 && !is_else && (at_tag(p, "elif") || at_tag(p, "else"))) {
        is_else = at_tag(p, "else");
        p->t += 2;
        link = &(*link)->next;
        r = parse_branch(p, is_else, link);
    }
    if (r == 0)
        r = expect_tag(p, "endif");
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

/* The names of a for loop: a, or a, b, or (a, b). */
static int parse_targets(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node **link = ret;
    bool brackets = jinja_take_op(p, "(");
    int r = 0;

    do {
        struct jinja_node *n = jinja_node_new(p, JINJA_NODE_NAME);

        r = n ? jinja_expect_name(p, &n->name) : -ERR_NO_MEMORY;
        if (r == 0)
            r = jinja_node_done(p, n, link);
        if (r == 0)
            link = &(*link)->next;
    } while (r == 0 && jinja_take_op(p, ","));
    return r == 0 && brackets ? jinja_expect_op(p, ")") : r;
}

static int parse_for(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_FOR);
    int r = n ? parse_targets(p, &n->c) : -ERR_NO_MEMORY;

    if (r == 0 && !jinja_take_name(p, "in"))
        r = jinja_expected(p, "'in'");
    if (r == 0)
        r = jinja_parse_or(p, &n->a);
    if (r == 0 && jinja_take_name(p, "if"))
        r = jinja_parse_expr(p, &n->b);
    if (r == 0 && jinja_at_name(p, "recursive"))
        r = jinja_refuse(p, "a recursive for loop is not supported");
    if (r == 0)
        r = end_tag(p);
    p->loops++;
    if (r == 0)
        r = parse_body(p, &n->body);
    p->loops--;
    if (r == 0 && at_tag(p, "else")) {
        p->t += 2;
        r = end_tag(p);
        if (r == 0)
            r = parse_body(p, &n->orelse);
    }
    if (r == 0)
        r = expect_tag(p, "endfor");
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

static int parse_set(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_SET);
    int r = n ? jinja_expect_name(p, &n->name) : -ERR_NO_MEMORY;

    if (r == 0 && jinja_take_op(p, "."))
        r = jinja_expect_name(p, &n->attribute);
    if (r < 0)
        return r;
    if (jinja_take_op(p, "=")) {
        r = jinja_parse_expr(p, &n->a);
        if (r == 0)
            r = end_tag(p);
        return r < 0 ? r : jinja_node_done(p, n, ret);
    }
    if (p->t->kind != JINJA_TOKEN_BLOCK_END || n->attribute.len > 0)
        return jinja_expected(p, "'='");
    n->kind = JINJA_NODE_SET_BLOCK;
    p->t++;
    r = parse_body(p, &n->body);
    if (r == 0)
        r = expect_tag(p, "endset");
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

static int parse_jump(struct jinja_parser *p, enum jinja_kind kind, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, kind);
    int r = n ? end_tag(p) : -ERR_NO_MEMORY;

    if (r == 0 && p->loops == 0)
        return jinja_refuse(p, "break or continue outside of a loop");
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

/* Behind "{%". */
static int parse_tag(struct jinja_parser *p, struct jinja_node **ret)
{
    if (jinja_take_name(p, "if"))
        return parse_if(p, ret);
    if (jinja_take_name(p, "for"))
        return parse_for(p, ret);
    if (jinja_take_name(p, "set"))
        return parse_set(p, ret);
    if (jinja_take_name(p, "break"))
        return parse_jump(p, JINJA_NODE_BREAK, ret);
    if (jinja_take_name(p, "continue"))
        return parse_jump(p, JINJA_NODE_CONTINUE, ret);
    if (p->t->kind != JINJA_TOKEN_NAME)
        return jinja_expected(p, "a tag's name");
    return jinja_refuse(p, "tag '%.*s' is not supported", (int)(p->t->len < 64 ? p->t->len : 64),
                        p->t->text);
}

static int parse_output(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_OUTPUT);
    int r = n ? jinja_parse_expr(p, &n->a) : -ERR_NO_MEMORY;

    if (r < 0)
        return r;
    if (p->t->kind != JINJA_TOKEN_OUTPUT_END)
        return jinja_expected(p, "'}}'");
    p->t++;
    return jinja_node_done(p, n, ret);
}

static int parse_text(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_TEXT);

    if (!n)
        return -ERR_NO_MEMORY;
    n->value =
            jinja_text((struct jinja_str){.data = p->t->text, .len = p->t->len, .literal = true});
    p->t++;
    return jinja_node_done(p, n, ret);
}

static bool ends_body(const struct jinja_parser *p)
{
    return p->t->kind == JINJA_TOKEN_END || at_tag(p, "elif") || at_tag(p, "else") ||
           at_tag(p, "endif") || at_tag(p, "endfor") || at_tag(p, "endset");
}

static int parse_body(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node **link = ret;
    int r = 0;

    if (++p->level > JINJA_LEVEL_MAX)
        return jinja_refuse(p, "tags nested over %d deep", JINJA_LEVEL_MAX);
    while (r == 0 && !ends_body(p)) {
        enum jinja_token_kind kind = p->t->kind;

        if (kind == JINJA_TOKEN_TEXT) {
            r = parse_text(p, link);
        } else {
            p->t++;
            r = kind == JINJA_TOKEN_OUTPUT_BEGIN ? parse_output(p, link) : parse_tag(p, link);
        }
        if (r == 0)
            link = &(*link)->next;
    }
    p->level--;
    return r;
}

int jinja_parse(struct arena *arena, const struct jinja_tokens *tokens, struct jinja_node **ret,
                struct err *err)
{
    struct jinja_parser p = {.arena = arena, .err = err, .t = tokens->items};
    int r;

    *ret = NULL;
    r = parse_body(&p, ret);
    if (r < 0)
        return r;
    if (p.t->kind == JINJA_TOKEN_END)
        return 0;
    p.t++;
    return jinja_refuse(&p, "unexpected '%.*s'", (int)p.t->len, p.t->text);
}
