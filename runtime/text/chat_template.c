/* SPDX-License-Identifier: Apache-2.0
 *
 * chat_template.c - messages to a prompt.
 *
 * The language is in jinja/: lexer, parser, evaluator, values, each knowing only the one before.
 * Here is the frame that the model hubs give a template: the names it finds (messages, bos_token,
 * eos_token, add_generation_prompt; tools and documents are none) and the limits it runs under.
 *
 * A template is parsed into an arena that it owns; a rendering has an arena of its own.
 */
#include "runtime/text/chat_template.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/text/jinja/eval.h"
#include "runtime/text/jinja/parser.h"

enum {
    PARSE_BYTES_MAX = 128 << 20, /* a node is a few hundred bytes, its source at least two */
    RENDER_BYTES_MAX = 128 << 20,
};

struct chat_template {
    struct arena *arena;
    struct jinja_node *body;
    struct jinja_str bos, eos;
};

void chat_rendered_release(struct chat_rendered *r)
{
    mem_free(r->spans);
    r->spans = NULL;
    r->n_spans = r->cap_spans = 0;
}

static int keep(struct chat_template *t, const char *s, struct jinja_str *ret, struct err *err)
{
    *ret = (struct jinja_str){.data = arena_strdup(t->arena, s), .len = strlen(s), .literal = true};
    return ret->data ? 0 : err_set(err, ERR_NO_MEMORY, "template");
}

int chat_template_new(const char *source, size_t len, const char *bos, const char *eos,
                      struct chat_template **ret, struct err *err)
{
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    struct jinja_tokens tokens;
    int r;

    if (len > CHAT_TEMPLATE_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the template has %zu bytes, at most %d", len,
                       CHAT_TEMPLATE_BYTES_MAX);
    t = mem_calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, ERR_NO_MEMORY, "template");
    r = arena_new(PARSE_BYTES_MAX, &t->arena, err);
    if (r == 0)
        r = keep(t, bos, &t->bos, err);
    if (r == 0)
        r = keep(t, eos, &t->eos, err);
    if (r == 0)
        r = jinja_lex(t->arena, source, len, &tokens, err);
    if (r == 0)
        r = jinja_parse(t->arena, &tokens, &t->body, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(t);
    return 0;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    arena_free(t->arena);
    mem_free(t);
}

static int make_globals(const struct chat_template *t, struct jinja_run *run, const cJSON *messages,
                        bool add_generation_prompt, struct jinja_dict **ret)
{
    struct jinja_dict *d = jinja_dict_new(run, 8);
    struct jinja_value list = jinja_none();
    int r = d ? jinja_from_json(run, messages, &list) : -(int)run->err->code;

    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("messages"), list);
    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("bos_token"), jinja_text(t->bos));
    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("eos_token"), jinja_text(t->eos));
    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("add_generation_prompt"),
                           jinja_bool(add_generation_prompt));
    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("tools"), jinja_none());
    if (r == 0)
        r = jinja_dict_put(run, d, jinja_literal("documents"), jinja_none());
    *ret = d;
    return r;
}

int chat_template_render(const struct chat_template *t, const cJSON *messages,
                         bool add_generation_prompt, struct chat_rendered *out, struct err *err)
{
    CLEANUP(arena_freep) struct arena *arena = NULL;
    struct jinja_dict *globals;
    struct jinja_run run = {
            .bytes_max = RENDER_BYTES_MAX,
            .steps_left = CHAT_TEMPLATE_STEPS_MAX,
            .line = 1,
            .err = err,
    };
    int r = arena_new(RENDER_BYTES_MAX + 64, &arena, err);

    if (r < 0)
        return r;
    run.arena = arena;
    r = make_globals(t, &run, messages, add_generation_prompt, &globals);
    return r < 0 ? r : jinja_render(&run, t->body, globals, out);
}
