/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c - the fields of a generation request.
 *
 * One function a kind of value, each of which names the field it refuses.  What needs state from
 * elsewhere (does the model exist, does the prompt fit) is the job's business.
 */
#include "runtime/api/params.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/json.h"
#include "base/mem.h"

/* bytes: what --max-body can be at most */
static const struct json_limits limits = {
        .bytes_max = 1u << 30, .depth_max = 32, .values_max = 1u << 20};

static int bad(struct api_error *e, const char *param, const char *why)
{
    return api_error_set(e, 400, "invalid_value", param, "'%s' %s", param, why);
}

/* The field, or NULL when it is absent or null. */
static const cJSON *field(const struct params *p, const char *name)
{
    const cJSON *v = json_get(p->root, name);

    return cJSON_IsNull(v) ? NULL : v;
}

static int get_bool(const struct params *p, const char *name, bool *ret, struct api_error *e)
{
    const cJSON *v = field(p, name);

    if (!v)
        return 0;
    if (!cJSON_IsBool(v))
        return bad(e, name, "must be true or false");
    *ret = cJSON_IsTrue(v);
    return 0;
}

static int get_number(const struct params *p, const char *name, double min, double max, float *ret,
                      struct api_error *e)
{
    const cJSON *v = field(p, name);

    if (!v)
        return 0;
    if (!cJSON_IsNumber(v))
        return bad(e, name, "must be a number");
    if (!(v->valuedouble >= min && v->valuedouble <= max))
        return api_error_set(e, 400, "invalid_value", name, "'%s' is %g, must be in %g..%g", name,
                             v->valuedouble, min, max);
    *ret = (float)v->valuedouble;
    return 0;
}

static int whole_number(const cJSON *v, const char *name, double min, double max, int64_t *ret,
                        struct api_error *e)
{
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble))
        return bad(e, name, "must be a whole number");
    if (!(v->valuedouble >= min && v->valuedouble <= max))
        return api_error_set(e, 400, "invalid_value", name, "'%s' is %.0f, must be in %.0f..%.0f",
                             name, v->valuedouble, min, max);
    *ret = (int64_t)v->valuedouble;
    return 0;
}

static int get_int(const struct params *p, const char *name, double min, double max, int64_t *ret,
                   struct api_error *e)
{
    const cJSON *v = field(p, name);

    return v ? whole_number(v, name, min, max, ret, e) : 0;
}

/* sampling */

static int get_sampling(struct params *p, struct api_error *e)
{
    struct sampling *s = &p->sampling;
    int64_t top_k = -1, seed = 0;

    *s = (struct sampling){.temperature = 1, .top_p = 1};
    if (get_number(p, "temperature", 0, 2, &s->temperature, e) ||
        get_number(p, "top_p", 0, 1, &s->top_p, e) || get_number(p, "min_p", 0, 1, &s->min_p, e) ||
        get_int(p, "top_k", -1, 1e9, &top_k, e) ||
        get_int(p, "seed", -9007199254740992.0, 9007199254740992.0, &seed, e))
        return -1;
    if (s->top_p <= 0)
        return bad(e, "top_p", "must be over 0");
    s->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    s->seed = (uint64_t)seed;
    if (!field(p, "seed") && getrandom(&s->seed, sizeof(s->seed), 0) != sizeof(s->seed))
        return api_error_set(e, 500, "internal_error", NULL, "no random numbers");
    return 0;
}

static int get_max_tokens(struct params *p, struct api_error *e)
{
    const char *name = field(p, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";

    return get_int(p, name, 1, 1e9, &p->max_tokens, e);
}

static int add_stop(struct params *p, const cJSON *v, struct api_error *e)
{
    if (!cJSON_IsString(v))
        return bad(e, "stop", "must be a string or a list of strings");
    if (v->valuestring[0] == '\0' || strlen(v->valuestring) > STOP_BYTES_MAX)
        return api_error_set(e, 400, "invalid_value", "stop",
                             "'stop' strings must have 1..%d bytes", STOP_BYTES_MAX);
    if (p->n_stops == STOP_STRINGS_MAX)
        return api_error_set(e, 400, "invalid_value", "stop", "'stop' has over %d strings",
                             STOP_STRINGS_MAX);
    p->stops[p->n_stops++] = v->valuestring;
    return 0;
}

static int get_stops(struct params *p, struct api_error *e)
{
    const cJSON *v = field(p, "stop"), *item;

    if (!v || (cJSON_IsString(v) && v->valuestring[0] == '\0'))
        return 0;
    if (!cJSON_IsArray(v))
        return add_stop(p, v, e);
    cJSON_ArrayForEach(item, v)
    {
        if (add_stop(p, item, e))
            return -1;
    }
    return 0;
}

/* fields that ask for what is not there */

/* Only the neutral value is accepted: what the field's absence means. */
static bool is_neutral(const cJSON *v, double number)
{
    if (cJSON_IsNumber(v))
        return v->valuedouble == number;
    if (cJSON_IsBool(v))
        return cJSON_IsFalse(v);
    if (cJSON_IsString(v))
        return v->valuestring[0] == '\0' || strcmp(v->valuestring, "none") == 0;
    return (cJSON_IsArray(v) || cJSON_IsObject(v)) && cJSON_GetArraySize(v) == 0;
}

static int refuse_unsupported(const struct params *p, struct api_error *e)
{
    static const struct {
        const char *name;
        double neutral;
    } fields[] = {
            {"n", 1},
            {"best_of", 1},
            {"logprobs", NAN},
            {"top_logprobs", 0},
            {"echo", NAN},
            {"suffix", NAN},
            {"logit_bias", NAN},
            {"presence_penalty", 0},
            {"frequency_penalty", 0},
            {"tools", NAN},
            {"tool_choice", NAN},
            {"functions", NAN},
            {"audio", NAN},
            {"repetition_penalty", 1},
            {"prompt_logprobs", NAN},
            {"min_tokens", 0},
            {"guided_json", NAN},
            {"structured_outputs", NAN},
    };
    const cJSON *format = field(p, "response_format");

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const cJSON *v = field(p, fields[i].name);

        if (v && !is_neutral(v, fields[i].neutral))
            return bad(e, fields[i].name, "is not supported by this server");
    }
    if (format && strcmp(json_str(format, "type", ""), "text") != 0)
        return bad(e, "response_format", "supports the type 'text' alone");
    return 0;
}

static int get_stream(struct params *p, struct api_error *e)
{
    const cJSON *o = field(p, "stream_options"), *v;

    if (get_bool(p, "stream", &p->stream, e))
        return -1;
    if (!o)
        return 0;
    if (!cJSON_IsObject(o))
        return bad(e, "stream_options", "must be an object");
    if (!p->stream)
        return bad(e, "stream_options", "is only allowed with 'stream': true");
    v = json_get(o, "include_usage");
    if (v && !cJSON_IsNull(v) && !cJSON_IsBool(v))
        return bad(e, "stream_options.include_usage", "must be true or false");
    p->include_usage = cJSON_IsTrue(v);
    return 0;
}

/* messages */

/* object[key] = text, there or not before, or more than once */
static int put_text(cJSON *object, const char *key, const char *text, struct api_error *e)
{
    cJSON *v = cJSON_CreateString(text); /* first: text may lie in what goes */

    for (cJSON *c = object->child, *next; c && v; c = next) { /* one pass, whatever repeats */
        next = c->next;
        if (strcmp(c->string, key) == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(object, c));
    }
    if (v && cJSON_AddItemToObject(object, key, v))
        return 0;
    cJSON_Delete(v);
    return api_error_set(e, 503, "out_of_memory", NULL, "out of memory");
}

/* A list of {"type":"text","text":...} parts becomes one string, in place. */
static int join_parts(cJSON *message, const cJSON *parts, struct api_error *e)
{
    CLEANUP(str_release) struct str text = STR_INIT(limits.bytes_max);
    const cJSON *part;

    cJSON_ArrayForEach(part, parts)
    {
        const char *s = json_str(part, "text", NULL);

        if (strcmp(json_str(part, "type", ""), "text") != 0 || !s)
            return bad(e, "messages", "content parts must be {\"type\":\"text\",\"text\":...}");
        str_adds(&text, s);
    }
    if (text.failed)
        return api_error_set(e, 503, "out_of_memory", NULL, "out of memory");
    return put_text(message, "content", str_text(&text), e);
}

static int check_role(cJSON *message, struct api_error *e)
{
    static const char *const known[] = {"system", "user", "assistant", "tool", "developer"};
    const char *role = json_str(message, "role", NULL);

    for (size_t i = 0; role && i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(role, known[i]) != 0)
            continue;
        if (strcmp(role, "developer") != 0)
            return 0;
        return put_text(message, "role", "system", e); /* the name templates know */
    }
    return bad(e, "messages", "roles must be system, user, assistant, tool or developer");
}

static int check_message(cJSON *message, struct api_error *e)
{
    const cJSON *content = json_get(message, "content");

    if (!cJSON_IsObject(message))
        return bad(e, "messages", "must be a list of objects");
    if (check_role(message, e))
        return -1;
    if (json_get(message, "tool_calls") && !is_neutral(json_get(message, "tool_calls"), 0))
        return bad(e, "messages", "must not hold tool_calls: tools are not supported");
    if (cJSON_IsString(content))
        return 0;
    if (cJSON_IsArray(content))
        return join_parts(message, content, e);
    if (content && !cJSON_IsNull(content))
        return bad(e, "messages", "content must be a string or a list of text parts");
    return put_text(message, "content", "", e);
}

static int get_messages(struct params *p, struct api_error *e)
{
    const cJSON *messages = field(p, "messages");
    int n = cJSON_GetArraySize(messages);
    cJSON *message;

    if (!cJSON_IsArray(messages) || n == 0)
        return bad(e, "messages", "must be a list of at least one message");
    if (n > PARAMS_MESSAGES_MAX)
        return api_error_set(e, 400, "invalid_value", "messages",
                             "'messages' has %d entries, at most %d are accepted", n,
                             PARAMS_MESSAGES_MAX);
    cJSON_ArrayForEach(message, messages)
    {
        if (check_message(message, e))
            return -1;
    }
    p->messages = messages;
    return 0;
}

/* completions' prompt: a string, a list of one string, token ids, or a list of one list of ids */

static int get_prompt_ids(struct params *p, const cJSON *ids, uint32_t n_vocab, struct api_error *e)
{
    int n = cJSON_GetArraySize(ids);
    const cJSON *v;

    if (n == 0 || n > PARAMS_PROMPT_IDS_MAX)
        return bad(e, "prompt", n ? "has too many token ids" : "must not be empty");
    p->prompt_ids = mem_calloc((size_t)n, sizeof(*p->prompt_ids));
    if (!p->prompt_ids)
        return api_error_set(e, 503, "out_of_memory", NULL, "out of memory");
    cJSON_ArrayForEach(v, ids)
    {
        int64_t id = 0;

        if (whole_number(v, "prompt", 0, (double)n_vocab - 1, &id, e))
            return -1;
        p->prompt_ids[p->n_prompt_ids++] = (int32_t)id;
    }
    return 0;
}

static int get_prompt(struct params *p, uint32_t n_vocab, struct api_error *e)
{
    const cJSON *v = field(p, "prompt");

    if (cJSON_IsArray(v) && !cJSON_IsNumber(v->child)) {
        if (cJSON_GetArraySize(v) != 1)
            return bad(e, "prompt", "must hold exactly one prompt");
        v = v->child;
    }
    if (cJSON_IsArray(v))
        return get_prompt_ids(p, v, n_vocab, e);
    if (!cJSON_IsString(v))
        return bad(e, "prompt", "must be a string or a list of token ids");
    p->prompt = v->valuestring;
    return 0;
}

int params_parse(const char *body, size_t len, bool chat, uint32_t n_vocab, struct params *ret,
                 struct api_error *e)
{
    const cJSON *model;
    struct err err;

    *ret = (struct params){0};
    if (json_parse(body, len, &limits, &ret->root, &err) != 0) {
        (void)api_error_from(e, &err);
        if (err.code == ERR_INVALID)
            (void)api_error_set(e, 400, "invalid_json", NULL, "the body is not valid JSON: %s",
                                err.msg);
        return -1;
    }
    if (!cJSON_IsObject(ret->root))
        return api_error_set(e, 400, "invalid_json", NULL, "the body must be a JSON object");
    model = field(ret, "model");
    if (model && !cJSON_IsString(model))
        return bad(e, "model", "must be a string");
    ret->model = model ? model->valuestring : NULL;
    if (get_stream(ret, e) || get_sampling(ret, e) || get_max_tokens(ret, e) || get_stops(ret, e) ||
        get_bool(ret, "ignore_eos", &ret->ignore_eos, e) || refuse_unsupported(ret, e))
        return -1;
    return chat ? get_messages(ret, e) : get_prompt(ret, n_vocab, e);
}

void params_drop_text(struct params *p)
{
    cJSON_Delete(p->root);
    p->root = NULL;
    p->messages = NULL;
    p->prompt = p->model = NULL;
    p->n_stops = 0;
}

void params_release(struct params *p)
{
    params_drop_text(p);
    mem_free(p->prompt_ids);
    *p = (struct params){0};
}
