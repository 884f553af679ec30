/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/http_server.h"

/* What a client is told when a request fails, in OpenAI's shape:
 *   {"error":{"message":...,"type":...,"param":...,"code":...}}
 * Wrong input is always 4xx: the client libraries retry 5xx, so a 500 for bad input would triple
 * the load. */
struct api_error {
    int status;
    const char *code; /* a constant, or NULL */
    char param[64];   /* the field at fault, or "" */
    char message[508];
    unsigned retry_after_ms; /* 0: no Retry-After */
};

/* Fill and return -1. */
int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* From the taxonomy: ERR_BUSY is 429, ERR_UNAVAILABLE 503, ...; the message is err's. */
int api_error_from(struct api_error *e, const struct err *err);
/* {"error":{...}} appended. */
void api_error_write(const struct api_error *e, struct str *out);
/* Answer the exchange with it. */
void api_error_answer(const struct api_error *e, struct http_exchange *x, const char *request_id);
/* For http_server_options.error_body. */
void api_error_body(void *userdata, int status, const char *message, struct str *out);
