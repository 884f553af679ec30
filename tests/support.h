/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What every cmocka test includes: cmocka with its prerequisites, and two helpers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"

/* assert that r is 0, printing err's message when it is not */
#define assert_ok(r, e)                               \
    do {                                              \
        int r_ = (r);                                 \
        if (r_ != 0)                                  \
            fail_msg("%s: %d: %s", #r, r_, (e)->msg); \
    } while (0)

/* Fail allocation 0, 1, 2, ... of 'call' (an expression giving 0 or -code, that leaves nothing
 * behind when it fails) until it succeeds: every out-of-memory path of a constructor. */
#define mem_sweep(call)                               \
    do {                                              \
        int r_ = -1;                                  \
        long n_ = 0;                                  \
        for (; r_ != 0; n_++) {                       \
            assert_in_range(n_, 0, 100000);           \
            mem_fail_after(n_);                       \
            r_ = (call);                              \
            mem_fail_after(-1);                       \
            if (r_ != 0)                              \
                assert_int_equal(r_, -ERR_NO_MEMORY); \
        }                                             \
        assert_true(n_ > 1);                          \
    } while (0)
