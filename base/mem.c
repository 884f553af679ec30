/* SPDX-License-Identifier: Apache-2.0
 *
 * mem.c - the one door to the heap.
 *
 * Every allocation of ours passes here, so a test can ask for the n-th one to fail and see that
 * the caller gives back what it holds and reports ERR_NO_MEMORY.  The counter is one atomic that
 * stands at "never" in production: a load that predicts well.
 */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_long fail_after = -1;

static int must_fail(void)
{
    long n = atomic_load_explicit(&fail_after, memory_order_relaxed);

    if (n < 0)
        return 0;
    if (n == 0)
        return 1;
    atomic_store_explicit(&fail_after, n - 1, memory_order_relaxed);
    return 0;
}

void *mem_calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : calloc(n, size);
}

void *mem_realloc(void *p, size_t size)
{
    return must_fail() ? NULL : realloc(p, size);
}

char *mem_strndup(const char *s, size_t n)
{
    char *copy = mem_calloc(n + 1, 1);

    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void *mem_aligned(size_t align, size_t size)
{
    size_t whole = (size + align - 1) & ~(align - 1);
    void *p;

    if (whole < size || must_fail())
        return NULL;
    p = aligned_alloc(align, whole ? whole : align);
    if (p)
        memset(p, 0, whole);
    return p;
}

void mem_free(void *p)
{
    free(p);
}

void mem_fail_after(long n)
{
    atomic_store(&fail_after, n);
}
