/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/policy.h"

#include "base/assertion.h"

enum { TELL_AFTER = 3 };

struct retry_policy policy_of(enum err_code code, int64_t retry_after_ms, unsigned failures)
{
    /* A refusal by a webhook, a quota or RBAC can be lifted without a change we would see: it is
     * tried again, slowly. */
    static const struct retry_policy table[] = {
            [ERR_NONE] = {.retry = false},
            [ERR_INVALID] = {.retry = true, .min_ms = 10000, .tell = true, .loud = true},
            [ERR_NOT_FOUND] = {.retry = true, .min_ms = 1000},
            [ERR_CONFLICT] = {.retry = true},
            [ERR_BUSY] = {.retry = true, .min_ms = 1000},
            [ERR_TIMEOUT] = {.retry = true, .min_ms = 500, .loud = true},
            [ERR_CANCELED] = {.retry = false},
            [ERR_UNAVAILABLE] = {.retry = true, .min_ms = 500, .loud = true},
            [ERR_DENIED] = {.retry = true, .min_ms = 5000, .tell = true, .loud = true},
            [ERR_NO_MEMORY] = {.retry = true, .min_ms = 5000, .loud = true},
            [ERR_DEVICE] = {.retry = false, .loud = true},
            [ERR_INTERNAL] = {.retry = true, .min_ms = 30000, .loud = true},
    };
    struct retry_policy p;

    _Static_assert(sizeof(table) / sizeof(table[0]) == ERR_CODE_COUNT, "one row a code");
    ASSERT(code < ERR_CODE_COUNT);
    p = table[code];
    /* What usually passes (a server that starts, a full queue) is told only when it does not. */
    p.tell = p.tell || (p.retry && code != ERR_CONFLICT && failures >= TELL_AFTER);
    if (retry_after_ms > 0 && (uint64_t)retry_after_ms > p.min_ms)
        p.min_ms = (uint64_t)retry_after_ms;
    return p;
}
