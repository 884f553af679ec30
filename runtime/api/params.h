/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/api/api_error.h"
#include "runtime/request/request.h"
#include "runtime/text/stop_matcher.h"

/* A generation request's fields, checked one by one.  null counts as absent; a field that asks for
 * what the server does not do is a 400 that names it; unknown fields are ignored, as the field's
 * other servers do. */
struct params {
    cJSON *root;           /* owns all text below; NULL after params_drop_text() */
    const cJSON *messages; /* chat: a checked array, content as plain strings */
    const char *prompt;    /* completions: text, or ... */
    int32_t *prompt_ids;   /* ... token ids, owned */
    uint32_t n_prompt_ids;
    const char *model;  /* NULL: not given */
    int64_t max_tokens; /* 0: not given */
    struct sampling sampling;
    bool ignore_eos;
    bool stream, include_usage;
    const char *stops[STOP_STRINGS_MAX];
    size_t n_stops;
};

enum {
    PARAMS_MESSAGES_MAX = 4096,
    PARAMS_PROMPT_IDS_MAX = 1 << 20,
};

/* Parse and check a body.  0, or -1 with *e set (400).  params_release() in both cases. */
int params_parse(const char *body, size_t len, bool chat, uint32_t n_vocab, struct params *ret,
                 struct api_error *e) MUST_CHECK;
/* Free the parsed body, by far the largest part, once nobody reads its text any more.  Numbers and
 * flags stay. */
void params_drop_text(struct params *p);
void params_release(struct params *p);
