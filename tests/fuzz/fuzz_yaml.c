/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a configuration file: a tree or a refusal, and the tree is JSON. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct json_limits limits = {.bytes_max = 4096, .depth_max = 8, .values_max = 256};
    cJSON *t = NULL;
    struct err err;
    int r = yaml_parse((const char *)data, len, &limits, &t, &err);

    ASSERT(r == 0 || r == -ERR_INVALID);
    ASSERT((t != NULL) == (r == 0));
    if (t) {
        char *text = json_print(t);

        ASSERT(text);
        mem_free(text);
    }
    cJSON_Delete(t);
    return 0;
}
