/* SPDX-License-Identifier: Apache-2.0 */

/* Any text as a label selector: read or refused; matching needs no more than what was read. */
#include <stdint.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "operator/scaling/selector.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(arena_freep) struct arena *mem = NULL;
    CLEANUP(json_freep) cJSON *labels = cJSON_CreateObject();
    CLEANUP(mem_freep) char *text = mem_strndup((const char *)data, len);
    const struct selector *s = NULL;
    struct err err;
    int r;

    ASSERT(text && cJSON_AddStringToObject(labels, "a", "1"));
    ASSERT(arena_new(1 << 20, &mem, &err) == 0);
    r = selector_parse(text, mem, &s, &err);
    ASSERT(r == 0 || r == -ERR_INVALID || r == -ERR_NO_MEMORY);
    if (r == 0)
        (void)selector_matches(s, labels);
    return 0;
}
