/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* One taxonomy for both binaries.  Two tables give it meaning: the HTTP status of an answer
 * (runtime/api/api_error.c) and the retry policy of a reconcile (operator/reconcile/policy.c). */
enum err_code {
    ERR_NONE,
    ERR_INVALID, /* the input is wrong; retrying cannot help */
    ERR_NOT_FOUND,
    ERR_CONFLICT, /* we acted on a stale view; re-read, then retry */
    ERR_BUSY,     /* a bounded resource is used up; retry later */
    ERR_TIMEOUT,
    ERR_CANCELED,    /* the client left, or we are shutting down */
    ERR_UNAVAILABLE, /* the peer is down */
    ERR_DENIED,      /* not allowed; an administrator can change that */
    ERR_NO_MEMORY,
    ERR_DEVICE,   /* the device failed; this engine is lost, restart it */
    ERR_INTERNAL, /* a bug of ours */
    ERR_CODE_COUNT,
};

struct err {
    enum err_code code;
    char msg[508]; /* the whole struct is 512 bytes: lives on the stack, never leaks */
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* Fill err and return -code.  Message style: lower case, no full stop, subject quoted. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/* Put "context: " in front, keep the code, return -code. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The code's lower-case name, for logs: "invalid", "not_found". */
const char *err_code_name(enum err_code code);
