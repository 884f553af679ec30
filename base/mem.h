/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* The one door to the heap, so that tests can make the n-th allocation fail.  Everything
 * returned is zeroed except what mem_realloc() adds.  Any thread. */
void *mem_calloc(size_t n, size_t size); /* NULL on overflow of n * size, too */
void *mem_realloc(void *p, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
/* Whole cache lines, zeroed; free with mem_free().  align is a power of two. */
void *mem_aligned(size_t align, size_t size);
void mem_free(void *p);

/* Tests only, one thread: allocation n from now fails (0 = the next), and all after it;
 * -1 = none.  See mem_sweep in tests/support.h. */
void mem_fail_after(long n);

/* For arrays that grow: a cleanup function for plain pointers. */
static inline void mem_freep(void *p)
{
    mem_free(*(void **)p);
}
