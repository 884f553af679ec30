/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What an error of a reconcile means for its key.  Pure. */
struct retry_policy {
    bool retry;      /* with the key's back-off; false: wait for the next change */
    uint64_t min_ms; /* but not before */
    bool tell;       /* it goes into the status: the user can act on it, or it does not go away */
    bool loud;       /* worth a line in the log at warning level */
};

/* failures: of the key in a row, before this one */
struct retry_policy policy_of(enum err_code code, int64_t retry_after_ms, unsigned failures);
