/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One kernel launch, as it travels to a device's process, and running one of its blocks. */

#include "cuda_runtime.h"

namespace vgpu
{
/* Which thread goes first; a kernel that is right gives the same result in each. */
enum class order { forward, reverse, shuffled };

struct kernel_call {
    void (*kernel)();
    entry_fn entry;
    char name[160];
    dim3 grid, block;
    size_t shared_bytes;
    order in_order;
    uint64_t seed;
    alignas(16) unsigned char args[ARGS_MAX];
};

/* Run block number 'index' of the launch on this OS thread; a bug in the kernel ends the process
 * with a report on stderr. */
void run_block(const kernel_call &call, unsigned index);

/* Where this OS thread is in a kernel, one line on stderr; false: in none. */
bool print_position(const char *what);

inline uint64_t mix(uint64_t x) /* splitmix64's finaliser */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
} // namespace vgpu
