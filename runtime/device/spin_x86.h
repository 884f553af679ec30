/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One turn of a waiting loop: gives the processor's resources to whoever is being waited for. */
static inline void spin_turn(void)
{
    __builtin_ia32_pause();
}
