/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/api/api_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/json_writer.h"

/* One row a code of the taxonomy; the other table over it is the operator's retry policy. */
static const struct {
    int status;
    const char *code;
    unsigned retry_after_ms;
} by_code[] = {
        [ERR_NONE] = {500, "internal_error", 0},  [ERR_INVALID] = {400, NULL, 0},
        [ERR_NOT_FOUND] = {404, "not_found", 0},  [ERR_CONFLICT] = {409, "conflict", 0},
        [ERR_BUSY] = {429, "queue_full", 1000},   [ERR_TIMEOUT] = {504, "timeout", 0},
        [ERR_CANCELED] = {503, "canceled", 1000}, [ERR_UNAVAILABLE] = {503, "unavailable", 1000},
        [ERR_DENIED] = {403, "forbidden", 0},     [ERR_NO_MEMORY] = {503, "out_of_memory", 1000},
        [ERR_DEVICE] = {500, "device_error", 0},  [ERR_INTERNAL] = {500, "internal_error", 0},
};
_Static_assert(sizeof(by_code) / sizeof(by_code[0]) == ERR_CODE_COUNT, "one row a code");

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...)
{
    va_list ap;

    *e = (struct api_error){.status = status, .code = code};
    (void)snprintf(e->param, sizeof(e->param), "%s", param ? param : "");
    va_start(ap, fmt);
    (void)vsnprintf(e->message, sizeof(e->message), fmt, ap);
    va_end(ap);
    return -1;
}

int api_error_from(struct api_error *e, const struct err *err)
{
    (void)api_error_set(e, by_code[err->code].status, by_code[err->code].code, NULL, "%s",
                        err->msg);
    e->retry_after_ms = by_code[err->code].retry_after_ms;
    return -1;
}

void api_error_write(const struct api_error *e, struct str *out)
{
    struct json_writer w = json_writer_start(out);

    json_obj(&w);
    json_key(&w, "error");
    json_obj(&w);
    json_kv_text(&w, "message", e->message);
    json_kv_text(&w, "type", type_of(e->status));
    json_kv_text(&w, "param", e->param[0] ? e->param : NULL);
    json_kv_text(&w, "code", e->code);
    json_end(&w);
    json_end(&w);
}

void api_error_answer(const struct api_error *e, struct http_exchange *x, const char *request_id)
{
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    char id[96], after[40], after_ms[40];
    const char *headers[6] = {"Content-Type: application/json"};
    size_t n = 1;

    if (request_id) {
        (void)snprintf(id, sizeof(id), "X-Request-Id: %s", request_id);
        headers[n++] = id;
    }
    if (e->status == 401)
        headers[n++] = "WWW-Authenticate: Bearer";
    if (e->retry_after_ms) {
        (void)snprintf(after, sizeof(after), "Retry-After: %u", (e->retry_after_ms + 999) / 1000);
        (void)snprintf(after_ms, sizeof(after_ms), "retry-after-ms: %u", e->retry_after_ms);
        headers[n++] = after;
        headers[n++] = after_ms;
    }
    headers[n] = NULL;
    api_error_write(e, &body);
    http_exchange_answer(x, e->status, headers, str_text(&body), body.len);
}

void api_error_body(void *userdata, int status, const char *message, struct str *out)
{
    struct api_error e;

    (void)userdata;
    (void)api_error_set(&e, status, NULL, NULL, "%s", message);
    api_error_write(&e, out);
}
