/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/api/condition.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void condition_set(struct condition *c, enum condition_status status, const char *reason,
                   const char *fmt, ...)
{
    va_list ap;

    c->status = status;
    (void)snprintf(c->reason, sizeof(c->reason), "%s", reason);
    va_start(ap, fmt);
    (void)vsnprintf(c->message, sizeof(c->message), fmt, ap);
    va_end(ap);
}

const cJSON *condition_find(const cJSON *conditions, const char *type)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, conditions)
    {
        if (strcmp(json_str(c, "type", ""), type) == 0)
            return c;
    }
    return NULL;
}

const char *condition_status_name(enum condition_status s)
{
    switch (s) {
    case CONDITION_TRUE:
        return "True";
    case CONDITION_FALSE:
        return "False";
    case CONDITION_UNKNOWN:
        break;
    }
    return "Unknown";
}

void condition_write(struct json_writer *w, const struct condition *c, int64_t generation,
                     const cJSON *old_conditions, const char *now_rfc3339)
{
    const cJSON *old = condition_find(old_conditions, c->type);
    const char *status = condition_status_name(c->status);
    const char *since = json_str(old, "lastTransitionTime", NULL);

    if (!since || strcmp(json_str(old, "status", ""), status) != 0)
        since = now_rfc3339;
    json_obj(w);
    json_kv_text(w, "type", c->type);
    json_kv_text(w, "status", status);
    json_kv_i64(w, "observedGeneration", generation);
    json_kv_text(w, "lastTransitionTime", since);
    json_kv_text(w, "reason", c->reason);
    json_kv_text(w, "message", c->message);
    json_end(w);
}
