/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.c - from a request's body to a request in the inbox: parse, render, tokenise, check the
 * length, send.  Runs on a text worker.
 */
#include <string.h>

#include "base/assertion.h"
#include "runtime/api/job.h"

enum { DEFAULT_COMPLETION_TOKENS = 16 };

static int check_model_name(const struct job *j, struct api_error *e)
{
    const char *want = j->params.model;

    if (!want || strcmp(want, j->api->o.model_name) == 0)
        return 0;
    return api_error_set(e, 404, "model_not_found", "model",
                         "the model '%.100s' does not exist here; this server has '%s'", want,
                         j->api->o.model_name);
}

static int encode_chat(struct job *j, struct token_list *ids, struct api_error *e)
{
    const struct api_model *m = &j->api->model;
    CLEANUP(str_release) struct str text = STR_INIT(JOB_TEXT_MAX);
    struct chat_rendered rendered = {.text = &text};
    struct err err;
    int r;

    if (!m->chat_template)
        return api_error_set(e, 400, "no_chat_template", "messages",
                             "this model has no chat template; use /v1/completions");
    r = chat_template_render(m->chat_template, j->params.messages, true, &rendered, &err);
    if (r == 0)
        r = tokenizer_encode(m->tokenizer, str_text(&text), text.len, rendered.spans,
                             rendered.n_spans, false, ids, &err);
    chat_rendered_release(&rendered);
    if (r == 0)
        return 0;
    (void)api_error_from(e, &err);
    if (err.code == ERR_INVALID)
        (void)api_error_set(e, 400, "invalid_value", "messages", "%s", err.msg);
    return -1;
}

static int encode_prompt(struct job *j, struct token_list *ids, struct api_error *e)
{
    const struct api_model *m = &j->api->model;
    struct err err;

    if (j->params.prompt_ids) { /* hand the array over */
        ids->ids = TAKE_PTR(j->params.prompt_ids);
        ids->n = ids->cap = j->params.n_prompt_ids;
        return 0;
    }
    if (tokenizer_encode(m->tokenizer, j->params.prompt, strlen(j->params.prompt), NULL, 0, true,
                         ids, &err) == 0)
        return 0;
    (void)api_error_from(e, &err);
    if (err.code == ERR_INVALID)
        (void)api_error_set(e, 400, "context_length_exceeded", "prompt", "%s", err.msg);
    return -1;
}

/* What may be generated, or a 400 that says how far over the request is. */
static int check_length(const struct job *j, size_t n_prompt, uint32_t *ret_max,
                        struct api_error *e)
{
    uint32_t context = j->api->model.context_max;
    const char *param = j->chat ? "messages" : "prompt";
    int64_t want = j->params.max_tokens;

    if (n_prompt == 0)
        return api_error_set(e, 400, "invalid_value", param, "'%s' is empty", param);
    if (n_prompt >= context)
        return api_error_set(e, 400, "context_length_exceeded", param,
                             "the prompt has %zu tokens; this server's context is %u tokens, "
                             "prompt and answer together",
                             n_prompt, context);
    if (want == 0)
        want = j->chat ? (int64_t)(context - n_prompt) : DEFAULT_COMPLETION_TOKENS;
    else if (want > (int64_t)(context - n_prompt))
        return api_error_set(e, 400, "context_length_exceeded", "max_tokens",
                             "%zu prompt tokens and max_tokens %lld exceed the context of %u "
                             "tokens; ask for at most %zu",
                             n_prompt, (long long)want, context, context - n_prompt);
    if (want > (int64_t)(context - n_prompt))
        want = (int64_t)(context - n_prompt);
    *ret_max = (uint32_t)want;
    return 0;
}

static int make_stops(struct job *j, struct api_error *e)
{
    struct err err;

    if (j->params.n_stops == 0 ||
        stop_matcher_new(j->params.stops, j->params.n_stops, &j->stops, &err) == 0)
        return 0;
    return api_error_from(e, &err);
}

static int make_request(struct job *j, const struct token_list *ids, struct api_error *e)
{
    uint32_t max_tokens = 0;
    struct request *r;
    struct err err;

    if (check_length(j, ids->n, &max_tokens, e) || make_stops(j, e))
        return -1;
    if (request_new(ids->ids, (uint32_t)ids->n, max_tokens, &r, &err) != 0)
        return api_error_from(e, &err);
    r->sampling = j->params.sampling;
    r->ignore_eos = j->params.ignore_eos;
    r->arrival_ns = http_exchange_arrival_ns(j->x);
    memcpy(r->end_ids, j->api->end_ids, sizeof(r->end_ids));
    r->n_end_ids = j->api->n_end_ids;
    j->request = r;
    return 0;
}

int job_prepare(struct job *j, struct api_error *e)
{
    const struct api_model *m = &j->api->model;
    CLEANUP(token_list_release) struct token_list ids = {.max = (size_t)m->context_max + 1};
    const char *body;
    size_t len;

    body = http_exchange_body(j->x, &len);
    if (params_parse(body, len, j->chat, tokenizer_n_vocab(m->tokenizer), &j->params, e) ||
        check_model_name(j, e) || (j->chat ? encode_chat(j, &ids, e) : encode_prompt(j, &ids, e)) ||
        make_request(j, &ids, e))
        return -1;
    /* a parsed body may be 100 MB for a prompt of one token, and hundreds of requests wait */
    params_drop_text(&j->params);
    http_exchange_drop_body(j->x);
    inbox_correct(m->inbox, j->place_tokens, ids.n);
    j->place_tokens = ids.n;
    detokenizer_init(&j->detok, m->tokenizer, true);
    return 0;
}
