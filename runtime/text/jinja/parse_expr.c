/* SPDX-License-Identifier: Apache-2.0
 *
 * parse_expr.c - expressions, one function a level of precedence, the loosest first:
 *
 *   a if b else c · or · and · not · == != < in ... · + - · ~ · * / // % · unary - + ·
 *   .name [item] .method() · |filter · is test
 *
 * Filters and tests bind tighter than any operator.  Functions of every kind are looked up here,
 * and their arguments put into the order of their parameters, so an unknown name or a wrong
 * argument shows when the template is loaded and not at somebody's request.
 */
#include <string.h>

#include "base/arena.h"
#include "runtime/text/jinja/parser.h"

static int parse_unary(struct jinja_parser *p, bool with_filters, struct jinja_node **ret);

static int enter(struct jinja_parser *p)
{
    if (++p->level > JINJA_LEVEL_MAX)
        return jinja_refuse(p, "nested over %d deep", JINJA_LEVEL_MAX);
    return 0;
}

static int binary(struct jinja_parser *p, enum jinja_kind kind, enum jinja_op op,
                  struct jinja_node *a, struct jinja_node *b, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, kind);

    if (!n)
        return -ERR_NO_MEMORY;
    n->op = op;
    n->a = a;
    n->b = b;
    return jinja_node_done(p, n, ret);
}

static int constant(struct jinja_parser *p, struct jinja_value v, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_CONST);

    if (!n)
        return -ERR_NO_MEMORY;
    n->value = v;
    return jinja_node_done(p, n, ret);
}

static struct jinja_str token_str(const struct jinja_token *t)
{
    return (struct jinja_str){.data = t->text, .len = t->len, .literal = true};
}

/* ---- calls ---- */

/* name=... of a call: which parameter that is. */
static int named_slot(struct jinja_parser *p, const struct jinja_function *f, size_t *ret)
{
    for (size_t i = 0; i < JINJA_ARGS_MAX && f->params[i]; i++) {
        if (jinja_at_name(p, f->params[i])) {
            *ret = i;
            p->t += 2;
            return 0;
        }
    }
    return jinja_refuse(p, "'%s' has no argument '%.*s'", f->name,
                        (int)(p->t->len < 64 ? p->t->len : 64), p->t->text);
}

static bool at_named_arg(const struct jinja_parser *p)
{
    return p->t->kind == JINJA_TOKEN_NAME && p->t[1].kind == JINJA_TOKEN_OP && p->t[1].len == 1 &&
           p->t[1].text[0] == '=';
}

/* Behind "(": arguments up to and with ")". */
static int parse_args(struct jinja_parser *p, struct jinja_node *call)
{
    const struct jinja_function *f = call->function;
    size_t n = 0, slot;
    bool named = false;
    int r = 0;

    while (r == 0 && !jinja_take_op(p, ")")) {
        slot = n++;
        if (at_named_arg(p)) {
            named = true;
            r = named_slot(p, f, &slot);
        } else if (named) {
            r = jinja_refuse(p, "an argument without a name follows one with");
        }
        if (r == 0 && (slot >= f->max_args || call->args[slot]))
            r = jinja_refuse(p, "wrong arguments for '%s'", f->name);
        if (r == 0)
            r = jinja_parse_expr(p, &call->args[slot]);
        if (r == 0 && !jinja_at_op(p, ")"))
            r = jinja_expect_op(p, ",");
    }
    return r;
}

static int finish_call(struct jinja_parser *p, struct jinja_node *call, struct jinja_node **ret)
{
    for (unsigned i = 0; i < call->function->min_args; i++)
        if (!call->args[i])
            return jinja_refuse(p, "'%s' needs %u arguments", call->function->name,
                                call->function->min_args);
    return jinja_node_done(p, call, ret);
}

/* A function of whichever kind; the current token is its name. */
static struct jinja_node *call_new(struct jinja_parser *p,
                                   const struct jinja_function *(*find)(struct jinja_str name),
                                   const char *what, struct jinja_node *self)
{
    const struct jinja_function *f = p->t->kind == JINJA_TOKEN_NAME ? find(token_str(p->t)) : NULL;
    struct jinja_node *call;

    if (!f) {
        if (p->t->kind == JINJA_TOKEN_NAME)
            jinja_refuse(p, "%s '%.*s' is not supported", what,
                         (int)(p->t->len < 64 ? p->t->len : 64), p->t->text);
        else
            jinja_expected(p, what);
        return NULL;
    }
    call = jinja_node_new(p, JINJA_NODE_CALL);
    if (!call)
        return NULL;
    call->function = f;
    call->a = self;
    p->t++;
    return call;
}

/* map('upper'), select('defined'), selectattr('x', 'equalto', 1): the inner name is checked now. */
static int check_inner(struct jinja_parser *p, const struct jinja_node *call)
{
    const char *outer = call->function->name;
    bool is_map = strcmp(outer, "map") == 0;
    bool is_attr = strcmp(outer, "selectattr") == 0 || strcmp(outer, "rejectattr") == 0;
    bool is_select = strcmp(outer, "select") == 0 || strcmp(outer, "reject") == 0;
    const struct jinja_node *name = call->args[is_attr ? 1 : 0];
    const struct jinja_function *inner;

    if ((!is_map && !is_attr && !is_select) || !name)
        return 0;
    if (name->kind != JINJA_NODE_CONST || name->value.type != JINJA_STR)
        return jinja_refuse(p, "'%s' by a name that is not a constant", outer);
    inner = is_map ? jinja_filter(name->value.str) : jinja_test(name->value.str);
    if (!inner || inner->min_args > 1 || (is_map && inner->min_args > 0))
        return jinja_refuse(p, "'%s' by '%.*s' is not supported", outer,
                            (int)(name->value.str.len < 64 ? name->value.str.len : 64),
                            name->value.str.data);
    return 0;
}

static int parse_filter(struct jinja_parser *p, struct jinja_node *self, struct jinja_node **ret)
{
    struct jinja_node *call = call_new(p, jinja_filter, "filter", self);
    int r = call ? 0 : -(int)p->err->code;

    if (r == 0 && jinja_take_op(p, "("))
        r = parse_args(p, call);
    if (r == 0)
        r = check_inner(p, call);
    return r < 0 ? r : finish_call(p, call, ret);
}

/* A test's argument may stand without brackets: "is equalto 3". */
static bool at_bare_argument(const struct jinja_parser *p)
{
    switch (p->t->kind) {
    case JINJA_TOKEN_NAME:
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
               !jinja_at_name(p, "if") && !jinja_at_name(p, "is") && !jinja_at_name(p, "not") &&
               !jinja_at_name(p, "in");
    case JINJA_TOKEN_STR:
    case JINJA_TOKEN_INT:
    case JINJA_TOKEN_FLOAT:
        return true;
    default:
        return jinja_at_op(p, "[") || jinja_at_op(p, "{");
    }
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **ret);
static int parse_postfix(struct jinja_parser *p, struct jinja_node **node);

static int parse_test(struct jinja_parser *p, struct jinja_node *self, struct jinja_node **ret)
{
    bool negated = jinja_take_name(p, "not");
    struct jinja_node *call = call_new(p, jinja_test, "test", self);
    struct jinja_node *inverse = NULL;
    int r = call ? 0 : -(int)p->err->code;

    if (r == 0 && jinja_take_op(p, "(")) {
        r = parse_args(p, call);
    } else if (r == 0 && call->function->max_args > 0 && at_bare_argument(p)) {
        r = parse_primary(p, &call->args[0]);
        if (r == 0)
            r = parse_postfix(p, &call->args[0]);
    }
    if (r == 0)
        r = finish_call(p, call, ret);
    if (r < 0 || !negated)
        return r;
    inverse = jinja_node_new(p, JINJA_NODE_NOT);
    if (!inverse)
        return -ERR_NO_MEMORY;
    inverse->a = *ret;
    return jinja_node_done(p, inverse, ret);
}

static int parse_filters(struct jinja_parser *p, struct jinja_node **node)
{
    int r = 0;

    while (r == 0) {
        if (jinja_take_op(p, "|"))
            r = parse_filter(p, *node, node);
        else if (jinja_take_name(p, "is"))
            r = parse_test(p, *node, node);
        else
            break;
    }
    return r;
}

/* ---- what an operand can be ---- */

/* Items up to and with the closing bracket; *ret_comma: there was one. */
static int parse_items(struct jinja_parser *p, struct jinja_node *list, const char *close,
                       bool *ret_comma)
{
    struct jinja_node **link = &list->body;
    int r = 0;

    *ret_comma = false;
    while (r == 0 && !jinja_take_op(p, close)) {
        r = jinja_parse_expr(p, link);
        if (r == 0)
            link = &(*link)->next;
        if (r == 0 && jinja_take_op(p, ","))
            *ret_comma = true;
        else if (r == 0 && !jinja_at_op(p, close))
            r = jinja_expect_op(p, close);
    }
    return r;
}

static int parse_list(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_LIST);
    bool comma;
    int r = n ? parse_items(p, n, "]", &comma) : -ERR_NO_MEMORY;

    return r < 0 ? r : jinja_node_done(p, n, ret);
}

/* (a) is a; (a,) and (a, b) and () are tuples. */
static int parse_brackets(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_LIST);
    bool comma = false;
    int r = n ? parse_items(p, n, ")", &comma) : -ERR_NO_MEMORY;

    if (r < 0)
        return r;
    if (n->body && !comma) {
        *ret = n->body;
        return 0;
    }
    n->is_tuple = true;
    return jinja_node_done(p, n, ret);
}

static int parse_dict(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_DICT);
    struct jinja_node **link = n ? &n->body : NULL;
    int r = n ? 0 : -ERR_NO_MEMORY;

    while (r == 0 && !jinja_take_op(p, "}")) {
        struct jinja_node *key = NULL, *value = NULL;

        r = jinja_parse_expr(p, &key);
        if (r == 0)
            r = jinja_expect_op(p, ":");
        if (r == 0)
            r = jinja_parse_expr(p, &value);
        if (r == 0)
            r = binary(p, JINJA_NODE_PAIR, JINJA_OP_EQ, key, value, link);
        if (r == 0)
            link = &(*link)->next;
        if (r == 0 && !jinja_at_op(p, "}"))
            r = jinja_expect_op(p, ",");
    }
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

/* Behind "namespace(": name=value pairs. */
static int parse_namespace(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_NODE_NAMESPACE);
    struct jinja_node **link = n ? &n->body : NULL;
    int r = n ? 0 : -ERR_NO_MEMORY;

    while (r == 0 && !jinja_take_op(p, ")")) {
        struct jinja_node *key = NULL, *value = NULL;

        if (!at_named_arg(p))
            return jinja_expected(p, "name=value");
        r = constant(p, jinja_text(token_str(p->t)), &key);
        p->t += 2;
        if (r == 0)
            r = jinja_parse_expr(p, &value);
        if (r == 0)
            r = binary(p, JINJA_NODE_PAIR, JINJA_OP_EQ, key, value, link);
        if (r == 0)
            link = &(*link)->next;
        if (r == 0 && !jinja_at_op(p, ")"))
            r = jinja_expect_op(p, ",");
    }
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

/* Strings side by side are one. */
static int parse_string(struct jinja_parser *p, struct jinja_node **ret)
{
    size_t len = 0, at = 0;
    const struct jinja_token *first = p->t;
    char *data;

    for (; p->t->kind == JINJA_TOKEN_STR; p->t++)
        len += p->t->len;
    data = arena_alloc(p->arena, len + 1);
    if (!data)
        return err_set(p->err, ERR_NO_MEMORY, "template");
    for (const struct jinja_token *t = first; t < p->t; t++) {
        memcpy(data + at, t->text, t->len);
        at += t->len;
    }
    return constant(p, jinja_text((struct jinja_str){.data = data, .len = len, .literal = true}),
                    ret);
}

static int parse_name(struct jinja_parser *p, struct jinja_node **ret)
{
    bool called = p->t[1].kind == JINJA_TOKEN_OP && p->t[1].text[0] == '(';
    struct jinja_node *n;
    int r;

    if (jinja_take_name(p, "true") || jinja_take_name(p, "True"))
        return constant(p, jinja_bool(true), ret);
    if (jinja_take_name(p, "false") || jinja_take_name(p, "False"))
        return constant(p, jinja_bool(false), ret);
    if (jinja_take_name(p, "none") || jinja_take_name(p, "None"))
        return constant(p, jinja_none(), ret);
    if (called && jinja_take_name(p, "namespace")) {
        p->t++;
        return parse_namespace(p, ret);
    }
    n = called ? call_new(p, jinja_global, "function", NULL) : jinja_node_new(p, JINJA_NODE_NAME);
    if (!n)
        return -(int)p->err->code;
    if (!called) {
        r = jinja_expect_name(p, &n->name);
        return r < 0 ? r : jinja_node_done(p, n, ret);
    }
    p->t++;
    r = parse_args(p, n);
    return r < 0 ? r : finish_call(p, n, ret);
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **ret)
{
    const struct jinja_token *t = p->t;

    switch (t->kind) {
    case JINJA_TOKEN_NAME:
        return parse_name(p, ret);
    case JINJA_TOKEN_STR:
        return parse_string(p, ret);
    case JINJA_TOKEN_INT:
        p->t++;
        return constant(p, jinja_int(t->integer), ret);
    case JINJA_TOKEN_FLOAT:
        p->t++;
        return constant(p, jinja_float(t->number), ret);
    default:
        if (jinja_take_op(p, "("))
            return parse_brackets(p, ret);
        if (jinja_take_op(p, "["))
            return parse_list(p, ret);
        if (jinja_take_op(p, "{"))
            return parse_dict(p, ret);
        return jinja_expected(p, "an expression");
    }
}

/* Behind ".": an attribute, or a method with its arguments. */
static int parse_attribute(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *n, *key = NULL;
    int r;

    if (p->t->kind == JINJA_TOKEN_INT) {
        r = constant(p, jinja_int(p->t->integer), &key);
        p->t++;
        return r < 0 ? r : binary(p, JINJA_NODE_ITEM, JINJA_OP_EQ, *node, key, node);
    }
    if (p->t->kind != JINJA_TOKEN_NAME)
        return jinja_expected(p, "a name");
    if (p->t[1].kind == JINJA_TOKEN_OP && p->t[1].text[0] == '(') {
        n = call_new(p, jinja_method, "method", *node);
        if (!n)
            return -(int)p->err->code;
        p->t++;
        r = parse_args(p, n);
        return r < 0 ? r : finish_call(p, n, node);
    }
    r = constant(p, jinja_text(token_str(p->t)), &key);
    p->t++;
    return r < 0 ? r : binary(p, JINJA_NODE_ITEM, JINJA_OP_EQ, *node, key, node);
}

/* Behind "[": an index, or up to three bounds with ":" between them. */
static int parse_subscript(struct jinja_parser *p, struct jinja_node **node)
{
    struct jinja_node *bounds[3] = {NULL};
    struct jinja_node *n;
    int n_colons = 0;
    int r = 0;

    while (r == 0 && !jinja_at_op(p, "]")) {
        if (!jinja_take_op(p, ":"))
            r = bounds[n_colons] ? jinja_expected(p, "']'")
                                 : jinja_parse_expr(p, &bounds[n_colons]);
        else if (++n_colons > 2)
            r = jinja_expected(p, "']'");
    }
    if (r == 0)
        r = jinja_expect_op(p, "]");
    if (r < 0)
        return r;
    if (n_colons == 0)
        return bounds[0] ? binary(p, JINJA_NODE_ITEM, JINJA_OP_EQ, *node, bounds[0], node)
                         : jinja_expected(p, "an index");
    for (int i = 0; i < 3 && r == 0; i++)
        if (!bounds[i])
            r = constant(p, jinja_none(), &bounds[i]);
    n = jinja_node_new(p, JINJA_NODE_SLICE);
    if (r < 0 || !n)
        return -ERR_NO_MEMORY;
    bounds[0]->next = bounds[1];
    bounds[1]->next = bounds[2];
    n->a = *node;
    n->body = bounds[0];
    return jinja_node_done(p, n, node);
}

static int parse_postfix(struct jinja_parser *p, struct jinja_node **node)
{
    int r = 0;

    while (r == 0) {
        if (jinja_take_op(p, "."))
            r = parse_attribute(p, node);
        else if (jinja_take_op(p, "["))
            r = parse_subscript(p, node);
        else if (jinja_at_op(p, "("))
            r = jinja_refuse(p, "only functions and methods can be called");
        else
            break;
    }
    return r;
}

/* ---- operators ---- */

static int parse_unary(struct jinja_parser *p, bool with_filters, struct jinja_node **ret)
{
    bool minus = jinja_take_op(p, "-");
    int r = enter(p);

    if (r == 0 && (minus || jinja_take_op(p, "+")))
        r = parse_unary(p, false, ret);
    else if (r == 0)
        r = parse_primary(p, ret);
    if (r == 0 && minus)
        r = binary(p, JINJA_NODE_NEGATE, JINJA_OP_SUB, *ret, NULL, ret);
    if (r == 0)
        r = parse_postfix(p, ret);
    if (r == 0 && with_filters)
        r = parse_filters(p, ret);
    if (r == 0 && jinja_at_op(p, "**"))
        r = jinja_refuse(p, "operator '**' is not supported");
    p->level--;
    return r;
}

static bool take_operator(struct jinja_parser *p, const char *const *names,
                          const enum jinja_op *ops, size_t n, enum jinja_op *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (jinja_take_op(p, names[i])) {
            *ret = ops[i];
            return true;
        }
    }
    return false;
}

static int parse_product(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const names[] = {"*", "/", "//", "%"};
    static const enum jinja_op ops[] = {JINJA_OP_MUL, JINJA_OP_DIV, JINJA_OP_FLOOR_DIV,
                                        JINJA_OP_MOD};
    struct jinja_node *right = NULL;
    enum jinja_op op;
    int r = parse_unary(p, true, ret);

    while (r == 0 && take_operator(p, names, ops, 4, &op)) {
        r = parse_unary(p, true, &right);
        if (r == 0)
            r = binary(p, JINJA_NODE_ARITHMETIC, op, *ret, right, ret);
    }
    return r;
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n, **link;
    int r = parse_product(p, ret);

    if (r < 0 || !jinja_at_op(p, "~"))
        return r;
    n = jinja_node_new(p, JINJA_NODE_CONCAT);
    if (!n)
        return -ERR_NO_MEMORY;
    n->body = *ret;
    link = &n->body->next;
    while (r == 0 && jinja_take_op(p, "~")) {
        r = parse_product(p, link);
        if (r == 0)
            link = &(*link)->next;
    }
    return r < 0 ? r : jinja_node_done(p, n, ret);
}

static int parse_sum(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const names[] = {"+", "-"};
    static const enum jinja_op ops[] = {JINJA_OP_ADD, JINJA_OP_SUB};
    struct jinja_node *right = NULL;
    enum jinja_op op;
    int r = parse_concat(p, ret);

    while (r == 0 && take_operator(p, names, ops, 2, &op)) {
        r = parse_concat(p, &right);
        if (r == 0)
            r = binary(p, JINJA_NODE_ARITHMETIC, op, *ret, right, ret);
    }
    return r;
}

static bool take_comparison(struct jinja_parser *p, enum jinja_op *ret)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    static const enum jinja_op ops[] = {JINJA_OP_EQ, JINJA_OP_NE, JINJA_OP_LT,
                                        JINJA_OP_LE, JINJA_OP_GT, JINJA_OP_GE};

    if (take_operator(p, names, ops, 6, ret))
        return true;
    *ret = JINJA_OP_IN;
    if (jinja_take_name(p, "in"))
        return true;
    *ret = JINJA_OP_NOT_IN;
    if (!jinja_at_name(p, "not") || p->t[1].kind != JINJA_TOKEN_NAME || p->t[1].len != 2 ||
        memcmp(p->t[1].text, "in", 2) != 0)
        return false;
    p->t += 2;
    return true;
}

static int parse_comparison(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n = NULL, *operand = NULL;
    struct jinja_node **link = NULL;
    enum jinja_op op;
    int r = parse_sum(p, ret);

    while (r == 0 && take_comparison(p, &op)) {
        if (!n) {
            n = jinja_node_new(p, JINJA_NODE_COMPARE);
            if (!n)
                return -ERR_NO_MEMORY;
            n->a = *ret;
            link = &n->body;
        }
        r = parse_sum(p, &operand);
        if (r == 0)
            r = binary(p, JINJA_NODE_OPERAND, op, operand, NULL, link);
        if (r == 0)
            link = &(*link)->next;
    }
    return r < 0 || !n ? r : jinja_node_done(p, n, ret);
}

static int parse_not(struct jinja_parser *p, struct jinja_node **ret)
{
    int r;

    if (!jinja_take_name(p, "not"))
        return parse_comparison(p, ret);
    r = enter(p);
    if (r == 0)
        r = parse_not(p, ret);
    p->level--;
    return r < 0 ? r : binary(p, JINJA_NODE_NOT, JINJA_OP_EQ, *ret, NULL, ret);
}

static int parse_and(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *right = NULL;
    int r = parse_not(p, ret);

    while (r == 0 && jinja_take_name(p, "and")) {
        r = parse_not(p, &right);
        if (r == 0)
            r = binary(p, JINJA_NODE_AND, JINJA_OP_EQ, *ret, right, ret);
    }
    return r;
}

int jinja_parse_or(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *right = NULL;
    int r = parse_and(p, ret);

    while (r == 0 && jinja_take_name(p, "or")) {
        r = parse_and(p, &right);
        if (r == 0)
            r = binary(p, JINJA_NODE_OR, JINJA_OP_EQ, *ret, right, ret);
    }
    return r;
}

int jinja_parse_expr(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *n;
    int r = enter(p);

    if (r == 0)
        r = jinja_parse_or(p, ret);
    while (r == 0 && jinja_take_name(p, "if")) {
        n = jinja_node_new(p, JINJA_NODE_CONDITION);
        if (!n)
            return -ERR_NO_MEMORY;
        n->a = *ret;
        r = jinja_parse_or(p, &n->b);
        if (r == 0 && jinja_take_name(p, "else"))
            r = jinja_parse_expr(p, &n->c);
        if (r == 0)
            r = jinja_node_done(p, n, ret);
    }
    p->level--;
    return r;
}
