/* SPDX-License-Identifier: Apache-2.0 */

/* For processors without vector code of their own here. */
#include "kernels/cpu/cpu.h"

const struct k_ops *k_cpu_ops(unsigned i)
{
    return i == 0 ? &k_portable_ops : NULL;
}
