/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CLEANUP(f): run f(&var) when var leaves scope.  DEFINE_FREEP(foo) makes foo_freep() from
 * foo_free(). */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define DEFINE_FREEP(type)                           \
    static inline void type##_freep(struct type **p) \
    {                                                \
        type##_free(*p);                             \
    }

/* Hand a pointer on and forget it, so the cleanup above it does nothing. */
#define TAKE_PTR(p)                 \
    __extension__({                 \
        __typeof__(p) taken_ = (p); \
        (p) = NULL;                 \
        taken_;                     \
    })
