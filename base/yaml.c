/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.c - one YAML document as a JSON tree.
 *
 * Driven by libyaml's events with an explicit stack of open collections: no recursion, and what
 * the event stream can do that a tree cannot (anchors, tags, complex keys) is refused where it
 * shows up.
 */
#include "base/yaml.h"

#include <string.h>
#include <yaml.h>

#include "base/str.h"

enum { DEPTH_CAP = 64 };

struct builder {
    const struct json_limits *limits;
    struct err *err;
    size_t n_values, line;
    unsigned depth;
    unsigned n_documents;
    cJSON *open[DEPTH_CAP]; /* collections not closed yet */
    char *keys[DEPTH_CAP];  /* the key waiting for its value, for mappings */
    cJSON *root;
};

static int refuse(struct builder *b, const char *why)
{
    return err_set(b->err, ERR_INVALID, "line %zu: %s", b->line, why);
}

static int out_of_memory(struct builder *b)
{
    return err_set(b->err, ERR_NO_MEMORY, "YAML tree");
}

/* Plain scalars by the core schema; a text that looks like a number but leaves the range of a
 * double stays text. */
static cJSON *plain_scalar(const char *s)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    struct err ignored;
    double v;

    for (size_t i = 0; i < sizeof(nulls) / sizeof(nulls[0]); i++)
        if (strcmp(s, nulls[i]) == 0)
            return cJSON_CreateNull();
    if (strcmp(s, "true") == 0 || strcmp(s, "True") == 0 || strcmp(s, "TRUE") == 0)
        return cJSON_CreateTrue();
    if (strcmp(s, "false") == 0 || strcmp(s, "False") == 0 || strcmp(s, "FALSE") == 0)
        return cJSON_CreateFalse();
    if (parse_f64(s, -1e300, 1e300, &v, &ignored) == 0)
        return cJSON_CreateNumber(v);
    return cJSON_CreateString(s);
}

/* Hang a finished or just opened value into the innermost open collection. */
static int attach(struct builder *b, cJSON *v)
{
    cJSON *parent = b->depth ? b->open[b->depth - 1] : NULL;
    bool ok = true;

    if (!v)
        return out_of_memory(b);
    if (!parent) {
        b->root = v;
    } else if (cJSON_IsArray(parent)) {
        ok = cJSON_AddItemToArray(parent, v);
    } else {
        char **key = &b->keys[b->depth - 1];

        ok = cJSON_AddItemToObject(parent, *key, v);
        cJSON_free(*key);
        *key = NULL;
    }
    if (ok)
        return 0;
    cJSON_Delete(v);
    return out_of_memory(b);
}

static bool wants_key(const struct builder *b)
{
    return b->depth && cJSON_IsObject(b->open[b->depth - 1]) && !b->keys[b->depth - 1];
}

static int on_key(struct builder *b, const char *text)
{
    cJSON *holder;

    if (json_get(b->open[b->depth - 1], text))
        return refuse(b, "duplicate key");
    holder = cJSON_CreateString(text);
    if (!holder)
        return out_of_memory(b);
    b->keys[b->depth - 1] = holder->valuestring;
    holder->valuestring = NULL;
    cJSON_Delete(holder);
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;

    if (e->data.scalar.anchor)
        return refuse(b, "anchors are not accepted");
    if (e->data.scalar.tag)
        return refuse(b, "tags are not accepted");
    if (strlen(text) != e->data.scalar.length)
        return refuse(b, "NUL in a scalar");
    if (wants_key(b))
        return on_key(b, text);
    return attach(b, e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_scalar(text)
                                                                     : cJSON_CreateString(text));
}

static int on_open(struct builder *b, cJSON *v, bool decorated)
{
    int r;

    if (!v)
        return out_of_memory(b);
    if (decorated || wants_key(b) || b->depth >= DEPTH_CAP || b->depth >= b->limits->depth_max) {
        cJSON_Delete(v);
        return refuse(b, decorated      ? "anchors and tags are not accepted"
                         : wants_key(b) ? "a key must be a scalar"
                                        : "nested too deeply");
    }
    r = attach(b, v);
    if (r == 0)
        b->open[b->depth++] = v;
    return r;
}

static int on_event(struct builder *b, const yaml_event_t *e)
{
    b->line = e->start_mark.line + 1;
    if (++b->n_values > b->limits->values_max)
        return refuse(b, "too many values");
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++b->n_documents > 1 ? refuse(b, "a second document") : 0;
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, cJSON_CreateArray(),
                       e->data.sequence_start.anchor || e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, cJSON_CreateObject(),
                       e->data.mapping_start.anchor || e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return 0;
    case YAML_ALIAS_EVENT:
        return refuse(b, "aliases are not accepted");
    default:
        return 0;
    }
}

static int run(struct builder *b, yaml_parser_t *parser)
{
    for (bool done = false; !done;) {
        yaml_event_t event;
        int r;

        if (!yaml_parser_parse(parser, &event)) {
            b->line = parser->problem_mark.line + 1;
            return parser->error == YAML_MEMORY_ERROR
                           ? out_of_memory(b)
                           : refuse(b, parser->problem ? parser->problem : "not YAML");
        }
        done = event.type == YAML_STREAM_END_EVENT;
        r = on_event(b, &event);
        yaml_event_delete(&event);
        if (r)
            return r;
    }
    return 0;
}

int yaml_parse(const char *text, size_t len, const struct json_limits *limits, cJSON **ret,
               struct err *err)
{
    struct builder b = {.limits = limits, .err = err};
    yaml_parser_t parser;
    int r;

    if (len > limits->bytes_max)
        return err_set(err, ERR_INVALID, "YAML of %zu bytes, at most %zu are accepted", len,
                       limits->bytes_max);
    if (!yaml_parser_initialize(&parser))
        return out_of_memory(&b);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    r = run(&b, &parser);
    yaml_parser_delete(&parser);
    for (unsigned i = 0; i < DEPTH_CAP; i++)
        cJSON_free(b.keys[i]);
    if (r == 0 && !b.root)
        b.root = cJSON_CreateNull();
    if (r == 0 && !b.root)
        r = out_of_memory(&b);
    if (r) {
        cJSON_Delete(b.root);
        return r;
    }
    *ret = b.root;
    return 0;
}
