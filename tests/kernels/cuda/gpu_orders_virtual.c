/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/gpu.h"
#include "tests/vgpu/vgpu.h"

static const char *const orders[] = {"forward", "reverse", "shuffled"};

unsigned gpu_n_orders(void)
{
    return sizeof(orders) / sizeof(orders[0]);
}

void gpu_set_order(unsigned i)
{
    vgpu_order(orders[i]);
}
