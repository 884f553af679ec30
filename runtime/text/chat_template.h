/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/text/tokenizer.h"

/* A chat template (a subset of Jinja, trim_blocks and lstrip_blocks on, as the model hubs use it),
 * parsed once, rendered often.  What the subset lacks is refused at parse time with line and
 * construct, never at the first request.  Immutable: any thread. */
struct chat_template;
struct str;

enum {
    CHAT_TEMPLATE_BYTES_MAX = 256 << 10,
    CHAT_TEMPLATE_STEPS_MAX = 1 << 20, /* evaluated nodes a rendering: no template runs for ever */
};

struct chat_rendered {
    struct str *text;          /* the caller's; its max bounds the output */
    struct text_span *spans;   /* owned: where the template's own literals stand (special tokens */
    size_t n_spans, cap_spans; /* recognised); message content is outside of them */
};
void chat_rendered_release(struct chat_rendered *r); /* the spans */

int chat_template_new(const char *source, size_t len, const char *bos, const char *eos,
                      struct chat_template **ret, struct err *err) MUST_CHECK;
void chat_template_free(struct chat_template *t);
DEFINE_FREEP(chat_template)

/* The template finds messages, add_generation_prompt, bos_token and eos_token; tools and documents
 * are none.  What comes from a message is content, but for the well-known roles' names: templates
 * build special tokens from those.
 * messages: a checked array of {"role": string, "content": string, ...}.  ERR_INVALID carries the
 * template's own raise_exception() text, or line and reason. */
int chat_template_render(const struct chat_template *t, const cJSON *messages,
                         bool add_generation_prompt, struct chat_rendered *out,
                         struct err *err) MUST_CHECK;
