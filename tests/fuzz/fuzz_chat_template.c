/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a template; behind a NUL byte, messages as JSON (others stand in for wrong ones).
 * What is rendered is UTF-8, and its spans are in order and inside of it. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"
#include "runtime/text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char MESSAGES[] =
        "[{\"role\":\"user\",\"content\":\"hi \xc3\xa9\"},{\"role\":\"assistant\",\"content\":[{"
        "\"type\":\"text\",\"text\":\" a b \"}],\"n\":1.5}]";

static void check(const struct chat_rendered *out)
{
    size_t at = 0;

    ASSERT(utf8_valid(str_text(out->text), out->text->len));
    for (size_t i = 0; i < out->n_spans; i++) {
        ASSERT(out->spans[i].start >= at && out->spans[i].start < out->spans[i].end);
        at = out->spans[i].end;
    }
    ASSERT(at <= out->text->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    CLEANUP(json_freep) cJSON *messages = NULL;
    CLEANUP(str_release) struct str text = STR_INIT(1 << 16);
    struct chat_rendered out = {.text = &text};
    const uint8_t *nul = len > 0 ? memchr(data, '\0', len) : NULL;
    size_t source_len = nul ? (size_t)(nul - data) : len;
    struct err err;

    if (nul)
        (void)!json_parse((const char *)nul + 1, len - source_len - 1, &JSON_LIMITS_DEFAULT,
                          &messages, &err);
    if (!cJSON_IsArray(messages)) {
        cJSON_Delete(messages);
        messages = NULL;
        if (json_parse(MESSAGES, strlen(MESSAGES), &JSON_LIMITS_DEFAULT, &messages, &err) < 0)
            return 0;
    }
    if (chat_template_new((const char *)data, source_len, "<s>", "</s>", &t, &err) < 0)
        return 0;
    if (chat_template_render(t, messages, true, &out, &err) == 0)
        check(&out);
    chat_rendered_release(&out);
    return 0;
}
