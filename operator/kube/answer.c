/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/kube/answer.h"

#include <string.h>

#include "base/cleanup.h"

/* A list page of 500 objects of 1.5 MB each does not exist; 64 MiB is far above what does. */
const struct json_limits KUBE_LIMITS = {
        .bytes_max = 64u << 20, .depth_max = 128, .values_max = 4u << 20};

static enum err_code code_of(int status)
{
    switch (status) {
    case 400:
    case 405:
    case 406:
    case 413:
    case 415:
    case 422:
        return ERR_INVALID;
    case 401:
    case 403:
        return ERR_DENIED;
    case 404:
        return ERR_NOT_FOUND;
    case 409:
    case 410:
        return ERR_CONFLICT;
    case 429:
        return ERR_BUSY;
    case 408:
    case 504:
        return ERR_TIMEOUT;
    default:
        return ERR_UNAVAILABLE;
    }
}

/* Nothing more can be made in a namespace that is being deleted; its services go with it. */
static bool is_namespace_going(const cJSON *status)
{
    const cJSON *cause;

    cJSON_ArrayForEach(cause, json_path(status, "details.causes"))
    {
        if (strcmp(json_str(cause, "reason", ""), "NamespaceTerminating") == 0)
            return true;
    }
    return false;
}

int kube_answer_error(int status, const char *body, size_t len, struct err *err)
{
    CLEANUP(json_freep) cJSON *json = NULL;
    struct err ignored;
    const char *message = "";

    if (len && json_parse(body, len, &JSON_LIMITS_DEFAULT, &json, &ignored) == 0)
        message = json_str(json, "message", "");
    return err_set(err, is_namespace_going(json) ? ERR_CANCELED : code_of(status),
                   "HTTP %d%s%.400s", status, message[0] ? ": " : "", message);
}

static void scrub_nul(char *data, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (data[i] != '\\')
            continue;
        if (len - i >= 6 && memcmp(data + i, "\\u0000", 6) == 0)
            memcpy(data + i, "\\ufffd", 6);
        i++; /* over the escaped character */
    }
}

int kube_answer_parse(char *data, size_t len, cJSON **ret, struct err *err)
{
    scrub_nul(data, len);
    return json_parse(data, len, &KUBE_LIMITS, ret, err);
}
