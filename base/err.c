/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    ASSERT(err);
    ASSERT(code > ERR_NONE && code < ERR_CODE_COUNT);

    err->code = code;
    va_start(ap, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    return -(int)code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    struct err outer = {.code = err->code};
    size_t len;
    va_list ap;

    ASSERT(err->code != ERR_NONE);

    va_start(ap, fmt);
    (void)vsnprintf(outer.msg, sizeof(outer.msg), fmt, ap);
    va_end(ap);

    len = strlen(outer.msg);
    (void)snprintf(outer.msg + len, sizeof(outer.msg) - len, ": %s", err->msg);
    *err = outer;
    return -(int)err->code;
}

const char *err_code_name(enum err_code code)
{
    static const char *const names[] = {
            [ERR_NONE] = "none",           [ERR_INVALID] = "invalid",
            [ERR_NOT_FOUND] = "not_found", [ERR_CONFLICT] = "conflict",
            [ERR_BUSY] = "busy",           [ERR_TIMEOUT] = "timeout",
            [ERR_CANCELED] = "canceled",   [ERR_UNAVAILABLE] = "unavailable",
            [ERR_DENIED] = "denied",       [ERR_NO_MEMORY] = "no_memory",
            [ERR_DEVICE] = "device",       [ERR_INTERNAL] = "internal",
    };
    _Static_assert(sizeof(names) / sizeof(names[0]) == ERR_CODE_COUNT, "one name a code");

    return code < ERR_CODE_COUNT ? names[code] : "unknown";
}
