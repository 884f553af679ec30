/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.c - walks the tree and writes the text.
 *
 * Recursion is as deep as the tree, which the parser has bounded; every node visited is charged to
 * the rendering's budget.  Each iteration of a loop has variables of its own, so what is set in it
 * is gone with it (as in Jinja: that is what namespaces are for); an if has none.
 *
 * Output goes to a text with a list of spans: where the template's own literals stand.  Two spans
 * that touch are one, so a special token may be put together from literals, but never from a
 * literal and a message.
 */
#include "runtime/text/jinja/eval.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/text/jinja/text.h"

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

struct variable {
    struct variable *next;
    struct jinja_str name;
    struct jinja_value value;
};

struct scope {
    struct scope *parent; /* NULL: the template's top */
    struct variable *variables;
};

struct eval {
    struct jinja_run *run;
    const struct jinja_dict *globals;
    struct scope *scope;
    struct chat_rendered *out;
    enum jump jump; /* a break or continue on its way to its loop */
};

static int eval_expr(struct eval *e, const struct jinja_node *n, struct jinja_value *ret);
static int eval_body(struct eval *e, const struct jinja_node *n);

/* ---- output ---- */

static int add_span(struct eval *e, size_t start, size_t end)
{
    struct chat_rendered *out = e->out;

    if (out->n_spans > 0 && out->spans[out->n_spans - 1].end == start) {
        out->spans[out->n_spans - 1].end = end;
        return 0;
    }
    if (out->n_spans == out->cap_spans) {
        size_t cap = out->cap_spans == 0 ? 32 : out->cap_spans * 2;
        struct text_span *spans = mem_realloc(out->spans, cap * sizeof(*spans));

        if (!spans)
            return err_set(e->run->err, ERR_NO_MEMORY, "template");
        out->spans = spans;
        out->cap_spans = cap;
    }
    out->spans[out->n_spans++] = (struct text_span){.start = start, .end = end};
    return 0;
}

static int emit_piece(struct eval *e, const char *data, size_t len, bool literal)
{
    struct str *text = e->out->text;
    size_t start = text->len;

    if (len == 0)
        return 0;
    if (len > text->max || start > text->max - len)
        return err_set(e->run->err, ERR_INVALID, "the rendered prompt is over %zu bytes",
                       text->max);
    str_add(text, data, len);
    if (str_check(text, "rendered prompt", e->run->err) < 0)
        return -ERR_NO_MEMORY;
    return literal ? add_span(e, start, start + len) : 0;
}

static int emit(struct eval *e, struct jinja_str s)
{
    size_t start = 0;
    int r = jinja_charge_bytes(e->run, s.len);

    if (r == 0 && !s.marks)
        return emit_piece(e, s.data, s.len, s.literal);
    while (r == 0 && start < s.len) {
        size_t end = start;

        while (end < s.len && s.marks[end] == s.marks[start])
            end++;
        r = emit_piece(e, s.data + start, end - start, s.marks[start]);
        start = end;
    }
    return r;
}

/* ---- names ---- */

static int find_variable(struct eval *e, const struct scope *scope, struct jinja_str name,
                         struct variable **ret)
{
    size_t n = 0;

    for (*ret = scope->variables; *ret && !jinja_str_equal((*ret)->name, name); *ret = (*ret)->next)
        n++;
    return jinja_charge(e->run, n / 8);
}

static int set_variable(struct eval *e, struct jinja_str name, struct jinja_value value)
{
    struct variable *v;
    int r = find_variable(e, e->scope, name, &v);

    if (r < 0)
        return r;
    if (!v) {
        v = jinja_alloc(e->run, 1, sizeof(*v));
        if (!v)
            return -(int)e->run->err->code;
        v->name = name;
        v->next = e->scope->variables;
        e->scope->variables = v;
    }
    v->value = value;
    return 0;
}

static int eval_name(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    const struct jinja_value *global;
    struct variable *v = NULL;
    int r = 0;

    for (const struct scope *s = e->scope; s && !v && r == 0; s = s->parent)
        r = find_variable(e, s, n->name, &v);
    if (r < 0)
        return r;
    if (v) {
        *ret = v->value;
        return 0;
    }
    global = jinja_dict_get(e->run, e->globals, n->name, &r);
    *ret = global ? *global : jinja_undefined(n->name.data, n->name.len);
    return r;
}

/* ---- expressions ---- */

static size_t count(const struct jinja_node *n)
{
    size_t k = 0;

    for (; n; n = n->next)
        k++;
    return k;
}

static int eval_list(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_list *list = jinja_list_new(e->run, count(n->body));
    size_t i = 0;

    if (!list)
        return -(int)e->run->err->code;
    list->is_tuple = n->is_tuple;
    for (const struct jinja_node *c = n->body; c; c = c->next) {
        int r = eval_expr(e, c, &list->items[i++]);

        if (r < 0)
            return r;
    }
    return jinja_list_done(e->run, list, ret);
}

static int eval_dict(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_dict *dict = jinja_dict_new(e->run, count(n->body));

    if (!dict)
        return -(int)e->run->err->code;
    for (const struct jinja_node *c = n->body; c; c = c->next) {
        struct jinja_value key, value;
        int r = eval_expr(e, c->a, &key);

        if (r == 0)
            r = eval_expr(e, c->b, &value);
        if (r == 0 && key.type != JINJA_STR)
            r = jinja_fail(e->run, "a dictionary's key is %s, not a string", jinja_type_name(key));
        if (r == 0)
            r = jinja_dict_put(e->run, dict, key.str, value);
        if (r < 0)
            return r;
    }
    if (n->kind == JINJA_NODE_NAMESPACE)
        *ret = (struct jinja_value){.type = JINJA_NAMESPACE, .names = dict};
    else
        *ret = (struct jinja_value){.type = JINJA_DICT, .dict = dict};
    return 0;
}

static int eval_item(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value v, key;
    int r = eval_expr(e, n->a, &v);

    if (r == 0)
        r = eval_expr(e, n->b, &key);
    return r < 0 ? r : jinja_item(e->run, v, key, ret);
}

static int eval_slice(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value v, bounds[3];
    const struct jinja_node *c = n->body;
    int r = eval_expr(e, n->a, &v);

    for (int i = 0; i < 3 && r == 0; i++, c = c->next)
        r = eval_expr(e, c, &bounds[i]);
    return r < 0 ? r : jinja_slice(e->run, v, bounds, ret);
}

static int eval_call(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value self = jinja_none();
    struct jinja_value values[JINJA_ARGS_MAX];
    const struct jinja_value *args[JINJA_ARGS_MAX] = {NULL};
    int r = n->a ? eval_expr(e, n->a, &self) : 0;

    for (int i = 0; i < JINJA_ARGS_MAX && r == 0; i++) {
        if (!n->args[i])
            continue;
        r = eval_expr(e, n->args[i], &values[i]);
        args[i] = &values[i];
    }
    e->run->line = n->line;
    return r < 0 ? r : n->function->call(e->run, self, args, ret);
}

static int compare(struct eval *e, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                   bool *ret)
{
    int order, r;

    switch (op) {
    case JINJA_OP_EQ:
    case JINJA_OP_NE:
        r = jinja_equal(e->run, a, b, ret);
        *ret = *ret == (op == JINJA_OP_EQ);
        return r;
    case JINJA_OP_IN:
    case JINJA_OP_NOT_IN:
        r = jinja_contains(e->run, b, a, ret);
        *ret = *ret == (op == JINJA_OP_IN);
        return r;
    default:
        r = jinja_compare(e->run, a, b, &order);
        if (r < 0)
            return r;
        *ret = op == JINJA_OP_LT   ? order < 0
               : op == JINJA_OP_LE ? order <= 0
               : op == JINJA_OP_GT ? order > 0
                                   : order >= 0;
        return 0;
    }
}

static int eval_compare(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value left, right;
    bool holds = true;
    int r = eval_expr(e, n->a, &left);

    for (const struct jinja_node *c = n->body; c && holds && r == 0; c = c->next) {
        r = eval_expr(e, c->a, &right);
        if (r == 0)
            r = compare(e, c->op, left, right, &holds);
        left = right;
    }
    *ret = jinja_bool(holds);
    return r;
}

static int eval_concat(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    size_t k = count(n->body), i = 0;
    struct jinja_str *parts = jinja_alloc(e->run, k, sizeof(*parts));
    struct jinja_str s = {0};
    int r = parts ? 0 : -(int)e->run->err->code;

    for (const struct jinja_node *c = n->body; c && r == 0; c = c->next) {
        struct jinja_value v;

        r = eval_expr(e, c, &v);
        if (r == 0)
            r = jinja_to_str(e->run, v, &parts[i++]);
    }
    if (r == 0)
        r = jinja_concat(e->run, parts, k, &s);
    *ret = jinja_text(s);
    return r;
}

static int eval_logic(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    int r = eval_expr(e, n->a, ret);

    if (r < 0)
        return r;
    if (n->kind == JINJA_NODE_NOT) {
        *ret = jinja_bool(!jinja_truth(*ret));
        return 0;
    }
    return jinja_truth(*ret) == (n->kind == JINJA_NODE_AND) ? eval_expr(e, n->b, ret) : 0;
}

static int eval_condition(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value yes;
    int r = eval_expr(e, n->b, &yes);

    if (r < 0)
        return r;
    if (jinja_truth(yes))
        return eval_expr(e, n->a, ret);
    if (n->c)
        return eval_expr(e, n->c, ret);
    *ret = jinja_undefined("", 0);
    return 0;
}

static int eval_arithmetic(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    struct jinja_value a, b;
    int r = eval_expr(e, n->a, &a);

    if (r == 0 && n->kind == JINJA_NODE_NEGATE)
        return jinja_negate(e->run, a, ret);
    if (r == 0)
        r = eval_expr(e, n->b, &b);
    e->run->line = n->line;
    return r < 0 ? r : jinja_arithmetic(e->run, n->op, a, b, ret);
}

static int eval_expr(struct eval *e, const struct jinja_node *n, struct jinja_value *ret)
{
    int r = jinja_charge(e->run, 1);

    if (r < 0)
        return r;
    e->run->line = n->line;
    switch (n->kind) {
    case JINJA_NODE_CONST:
        *ret = n->value;
        return 0;
    case JINJA_NODE_NAME:
        return eval_name(e, n, ret);
    case JINJA_NODE_LIST:
        return eval_list(e, n, ret);
    case JINJA_NODE_DICT:
    case JINJA_NODE_NAMESPACE:
        return eval_dict(e, n, ret);
    case JINJA_NODE_ITEM:
        return eval_item(e, n, ret);
    case JINJA_NODE_SLICE:
        return eval_slice(e, n, ret);
    case JINJA_NODE_CALL:
        return eval_call(e, n, ret);
    case JINJA_NODE_COMPARE:
        return eval_compare(e, n, ret);
    case JINJA_NODE_CONCAT:
        return eval_concat(e, n, ret);
    case JINJA_NODE_NOT:
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
        return eval_logic(e, n, ret);
    case JINJA_NODE_CONDITION:
        return eval_condition(e, n, ret);
    default:
        return eval_arithmetic(e, n, ret);
    }
}

/* ---- statements ---- */

static int eval_if(struct eval *e, const struct jinja_node *n)
{
    for (const struct jinja_node *branch = n->body; branch; branch = branch->next) {
        struct jinja_value v = jinja_bool(true);
        int r = branch->a ? eval_expr(e, branch->a, &v) : 0;

        if (r < 0)
            return r;
        if (jinja_truth(v))
            return eval_body(e, branch->body);
    }
    return 0;
}

/* for a, b in ...: an item's parts; for a in ...: the item. */
static int bind_targets(struct eval *e, const struct jinja_node *targets, struct jinja_value item)
{
    const struct jinja_list *parts;
    size_t i = 0;
    int r;

    if (!targets->next)
        return set_variable(e, targets->name, item);
    r = jinja_items(e->run, item, &parts);
    if (r == 0 && parts->n != count(targets))
        r = jinja_fail(e->run, "%zu values for %zu names", parts->n, count(targets));
    for (; targets && r == 0; targets = targets->next)
        r = set_variable(e, targets->name, parts->items[i++]);
    return r;
}

/* The items for which the loop's own "if" holds. */
static int filter_items(struct eval *e, const struct jinja_node *n, const struct jinja_list **items)
{
    struct jinja_list *kept = jinja_list_new(e->run, (*items)->n);
    struct jinja_value v;
    int r = kept ? 0 : -(int)e->run->err->code;
    size_t k = 0;

    for (size_t i = 0; r == 0 && i < (*items)->n; i++) {
        struct scope scope = {.parent = e->scope};

        e->scope = &scope;
        r = bind_targets(e, n->c, (*items)->items[i]);
        if (r == 0)
            r = eval_expr(e, n->b, &v);
        e->scope = scope.parent;
        if (r == 0 && jinja_truth(v))
            kept->items[k++] = (*items)->items[i];
    }
    if (r < 0)
        return r;
    kept->n = k;
    *items = kept;
    return 0;
}

static int eval_iterations(struct eval *e, const struct jinja_node *n,
                           const struct jinja_list *items)
{
    struct jinja_loop *loop = jinja_alloc(e->run, 1, sizeof(*loop));
    struct jinja_value v = {.type = JINJA_LOOP, .loop = loop};
    int r = loop ? 0 : -(int)e->run->err->code;

    if (loop)
        loop->items = items;
    for (size_t i = 0; r == 0 && i < items->n && e->jump != JUMP_BREAK; i++) {
        struct scope scope = {.parent = e->scope};

        e->scope = &scope;
        e->jump = JUMP_NONE;
        loop->index = i;
        r = jinja_charge(e->run, 1);
        if (r == 0)
            r = set_variable(e, jinja_literal("loop"), v);
        if (r == 0)
            r = bind_targets(e, n->c, items->items[i]);
        if (r == 0)
            r = eval_body(e, n->body);
        e->scope = scope.parent;
    }
    e->jump = JUMP_NONE;
    return r;
}

static int eval_for(struct eval *e, const struct jinja_node *n)
{
    const struct jinja_list *items;
    struct jinja_value over;
    int r = eval_expr(e, n->a, &over);

    if (r == 0)
        r = jinja_items(e->run, over, &items);
    if (r == 0 && n->b)
        r = filter_items(e, n, &items);
    if (r < 0)
        return r;
    if (items->n == 0)
        return eval_body(e, n->orelse);
    return eval_iterations(e, n, items);
}

static int eval_set(struct eval *e, const struct jinja_node *n)
{
    struct jinja_node name = {.kind = JINJA_NODE_NAME, .line = n->line, .name = n->name};
    struct jinja_value space, v;
    int r = eval_expr(e, n->a, &v);

    if (r < 0)
        return r;
    if (n->attribute.len == 0)
        return set_variable(e, n->name, v);
    r = eval_name(e, &name, &space);
    if (r == 0 && space.type != JINJA_NAMESPACE)
        return jinja_fail(e->run, "only a namespace's attributes can be set");
    return r < 0 ? r : jinja_dict_put(e->run, space.names, n->attribute, v);
}

/* What was rendered, as a string with its marks. */
static int rendered_str(struct eval *e, const struct chat_rendered *r, struct jinja_str *ret)
{
    char *data = jinja_alloc(e->run, r->text->len + 1, 1);
    uint8_t *marks = data ? jinja_alloc(e->run, r->text->len + 1, 1) : NULL;

    if (!marks)
        return -(int)e->run->err->code;
    memcpy(data, str_text(r->text), r->text->len);
    for (size_t i = 0; i < r->n_spans; i++)
        memset(marks + r->spans[i].start, 1, r->spans[i].end - r->spans[i].start);
    *ret = (struct jinja_str){.data = data, .len = r->text->len, .marks = marks};
    return 0;
}

static int eval_set_block(struct eval *e, const struct jinja_node *n)
{
    struct str text = STR_INIT(e->out->text->max);
    struct chat_rendered inner = {.text = &text};
    struct chat_rendered *outer = e->out;
    struct jinja_str s = {0};
    int r;

    e->out = &inner;
    r = eval_body(e, n->body);
    e->out = outer;
    if (r == 0)
        r = rendered_str(e, &inner, &s);
    chat_rendered_release(&inner);
    str_release(&text);
    return r < 0 ? r : set_variable(e, n->name, jinja_text(s));
}

static int eval_output(struct eval *e, const struct jinja_node *n)
{
    struct jinja_value v;
    struct jinja_str s = {0};
    int r = eval_expr(e, n->a, &v);

    if (r == 0)
        r = jinja_to_str(e->run, v, &s);
    return r < 0 ? r : emit(e, s);
}

static int eval_statement(struct eval *e, const struct jinja_node *n)
{
    e->run->line = n->line;
    switch (n->kind) {
    case JINJA_NODE_TEXT:
        return emit(e, n->value.str);
    case JINJA_NODE_OUTPUT:
        return eval_output(e, n);
    case JINJA_NODE_IF:
        return eval_if(e, n);
    case JINJA_NODE_FOR:
        return eval_for(e, n);
    case JINJA_NODE_SET:
        return eval_set(e, n);
    case JINJA_NODE_SET_BLOCK:
        return eval_set_block(e, n);
    case JINJA_NODE_BREAK:
        e->jump = JUMP_BREAK;
        return 0;
    case JINJA_NODE_CONTINUE:
        e->jump = JUMP_CONTINUE;
        return 0;
    default:
        return err_set(e->run->err, ERR_INTERNAL, "line %u: not a statement", n->line);
    }
}

static int eval_body(struct eval *e, const struct jinja_node *n)
{
    int r = 0;

    for (; n && r == 0 && e->jump == JUMP_NONE; n = n->next) {
        r = jinja_charge(e->run, 1);
        if (r == 0)
            r = eval_statement(e, n);
    }
    return r;
}

int jinja_render(struct jinja_run *run, const struct jinja_node *body,
                 const struct jinja_dict *globals, struct chat_rendered *out)
{
    struct scope top = {0};
    struct eval e = {.run = run, .globals = globals, .scope = &top, .out = out};

    return eval_body(&e, body);
}
