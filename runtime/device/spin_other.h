/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>

/* One turn of a waiting loop. */
static inline void spin_turn(void)
{
    (void)sched_yield();
}
