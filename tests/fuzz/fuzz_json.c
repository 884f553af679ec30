/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes: what the checker lets through, cJSON reads too, and prints as JSON that is equal. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void look_up(const cJSON *t)
{
    (void)json_path(t, "a.b.c");
    (void)json_path_str(t, "a.b", "");
    (void)json_str(t, "a", "");
    (void)json_num(t, "n", 0);
    (void)json_int(t, "n", 0);
    (void)json_bool(t, "t", false);
}

static void print_and_read_back(const cJSON *t)
{
    char *text = json_print(t);
    cJSON *again = NULL;
    struct err err;

    ASSERT(text);
    ASSERT(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &again, &err) == 0);
    cJSON_Delete(again);
    mem_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct json_limits limits = {
            .bytes_max = 4096, .depth_max = 16, .values_max = 512};
    struct str escaped = STR_INIT(1 << 16);
    cJSON *t = NULL;
    struct err err;
    int r = json_parse((const char *)data, len, &limits, &t, &err);

    ASSERT(r == 0 || r == -ERR_INVALID);
    ASSERT((t != NULL) == (r == 0));
    if (t) {
        look_up(t);
        print_and_read_back(t);
    }
    cJSON_Delete(t);
    json_escape(&escaped, (const char *)data, len < 1000 ? len : 1000);
    if (!memchr(data, 0, len < 1000 ? len : 1000))
        ASSERT(json_check(escaped.data, escaped.len, &JSON_LIMITS_DEFAULT, &err) == 0);
    str_release(&escaped);
    return 0;
}
