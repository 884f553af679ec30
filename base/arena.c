/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c - memory with one lifetime.
 *
 * Pieces are cut from chunks that grow by doubling; arena_reset() keeps the first chunk, so an
 * arena that serves request after request settles on one.  In sanitizer builds every piece is a
 * chunk of its own: AddressSanitizer then sees an overrun of one piece into the next.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

#ifdef PENSTOCK_SANITIZED
enum { FIRST_CHUNK = 0 };
#else
enum { FIRST_CHUNK = 4096 };
#endif
enum { ALIGN = 16, CHUNK_MAX = 1 << 20 };

struct chunk {
    struct chunk *next; /* older */
    size_t size;
    size_t used;
    _Alignas(ALIGN) unsigned char data[];
};

struct arena {
    struct chunk *chunks; /* newest first */
    size_t bytes_max;
    size_t bytes_used;
    size_t next_size;
};

int arena_new(size_t bytes_max, struct arena **ret, struct err *err)
{
    struct arena *a = mem_calloc(1, sizeof(*a));

    if (!a)
        return err_set(err, ERR_NO_MEMORY, "arena");
    a->bytes_max = bytes_max;
    a->next_size = FIRST_CHUNK;
    *ret = a;
    return 0;
}

void arena_reset(struct arena *a)
{
    struct chunk *c = a->chunks;

    while (c && (c->next || FIRST_CHUNK == 0)) {
        struct chunk *next = c->next;

        mem_free(c);
        c = next;
    }
    a->chunks = c;
    if (c) {
        memset(c->data, 0, c->used);
        c->used = 0;
    }
    a->bytes_used = 0;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    mem_free(a);
}

static struct chunk *add_chunk(struct arena *a, size_t at_least)
{
    size_t size = a->next_size > at_least ? a->next_size : at_least;
    struct chunk *c = mem_calloc(1, sizeof(*c) + size);

    if (!c)
        return NULL;
    c->size = size;
    c->next = a->chunks;
    a->chunks = c;
    if (a->next_size < CHUNK_MAX)
        a->next_size *= 2;
    return c;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t whole = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct chunk *c = a->chunks;
    void *p;

    if (whole < size || whole > a->bytes_max - a->bytes_used)
        return NULL;
    if (!c || c->size - c->used < whole || FIRST_CHUNK == 0) {
        /* size, not whole, in sanitizer builds: the red zone starts right behind the piece */
        c = add_chunk(a, FIRST_CHUNK == 0 ? size : whole);
        if (!c)
            return NULL;
    }
    p = c->data + c->used;
    c->used += FIRST_CHUNK == 0 ? size : whole;
    a->bytes_used += whole;
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = arena_alloc(a, n + 1);

    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    char *text = NULL;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    text = arena_alloc(a, (size_t)n + 1);
    if (text)
        (void)vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

size_t arena_used(const struct arena *a)
{
    return a->bytes_used;
}
