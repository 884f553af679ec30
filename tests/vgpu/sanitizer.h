/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What AddressSanitizer must be told of: bytes that may not be touched, and changes of stack.
 * Nothing without it. */

#include <stddef.h>

struct stack_note {
    void *fake;
    const void *bottom;
    size_t size;
};

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

constexpr bool HAS_ASAN = true;

inline void poison(const void *p, size_t n)
{
    __asan_poison_memory_region(p, n);
}

inline void unpoison(const void *p, size_t n)
{
    __asan_unpoison_memory_region(p, n);
}

/* Just before a switch to the stack given. */
inline void stack_leaves(stack_note *from, const void *bottom, size_t size)
{
    __sanitizer_start_switch_fiber(&from->fake, bottom, size);
}

/* Just after it: 'here' is NULL on a stack's first entry; 'before' learns its bounds. */
inline void stack_enters(const stack_note *here, stack_note *before)
{
    __sanitizer_finish_switch_fiber(here ? here->fake : nullptr, before ? &before->bottom : nullptr,
                                    before ? &before->size : nullptr);
}

inline void at_death(void (*report)())
{
    __sanitizer_set_death_callback(report);
}
#else
constexpr bool HAS_ASAN = false;

inline void poison(const void *, size_t)
{
}

inline void unpoison(const void *, size_t)
{
}

inline void stack_leaves(stack_note *, const void *, size_t)
{
}

inline void stack_enters(const stack_note *, stack_note *)
{
}

inline void at_death(void (*)())
{
}
#endif
