/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a request's body: fields in their ranges, or a 400 that says why. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "runtime/api/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { VOCAB = 1000 };

static void check(const struct params *p, bool chat)
{
    const cJSON *m;

    ASSERT(p->sampling.temperature >= 0 && p->sampling.temperature <= 2);
    ASSERT(p->sampling.top_p > 0 && p->sampling.top_p <= 1);
    ASSERT(p->sampling.min_p >= 0 && p->sampling.min_p <= 1);
    ASSERT(p->max_tokens >= 0 && p->n_stops <= STOP_STRINGS_MAX);
    for (size_t i = 0; i < p->n_stops; i++)
        ASSERT(p->stops[i][0]);
    if (!chat) {
        ASSERT((p->prompt != NULL) != (p->prompt_ids != NULL));
        for (uint32_t i = 0; i < p->n_prompt_ids; i++)
            ASSERT(p->prompt_ids[i] >= 0 && p->prompt_ids[i] < VOCAB);
        return;
    }
    cJSON_ArrayForEach(m, p->messages)
    {
        const cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content");

        ASSERT(cJSON_IsString(cJSON_GetObjectItemCaseSensitive(m, "role")));
        ASSERT(cJSON_IsString(content));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    for (int chat = 0; chat < 2; chat++) {
        struct api_error e = {0};
        struct params p;

        if (params_parse((const char *)data, len, chat, VOCAB, &p, &e) == 0) {
            check(&p, chat);
        } else {
            struct str out = STR_INIT(8192);

            ASSERT(e.status == 400 && e.message[0]);
            api_error_write(&e, &out);
            ASSERT(!out.failed);
            str_release(&out);
        }
        params_release(&p);
    }
    return 0;
}
