/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/barrier.h"

#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "operator/api/kinds.h"

enum { VERSION_BYTES = 48 };

struct expected {
    char versions[WATCHED_COUNT][VERSION_BYTES]; /* "" : nothing expected */
    uint64_t since_ms;
};

struct barrier {
    const struct clock *clock;
    pthread_mutex_t lock;
    struct map *keys; /* key -> struct expected, owned */
};

int barrier_new(const struct clock *clock, struct barrier **ret, struct err *err)
{
    struct barrier *b = mem_calloc(1, sizeof(*b));
    int r;

    if (!b)
        return err_set(err, ERR_NO_MEMORY, "barrier");
    r = map_new(&b->keys, err);
    if (r) {
        mem_free(b);
        return r;
    }
    b->clock = clock;
    (void)pthread_mutex_init(&b->lock, NULL);
    *ret = b;
    return 0;
}

void barrier_free(struct barrier *b)
{
    size_t iter = 0;
    void *value;

    if (!b)
        return;
    while (map_next(b->keys, &iter, NULL, &value))
        mem_free(value);
    map_free(b->keys);
    (void)pthread_mutex_destroy(&b->lock);
    mem_free(b);
}

/* Without memory nothing is expected, which costs a repeated write and nothing else. */
void barrier_expect(struct barrier *b, const char *key, unsigned kind, const char *version)
{
    struct expected *e;
    struct err err;

    if (strlen(version) >= VERSION_BYTES || kind >= WATCHED_COUNT)
        return;
    (void)pthread_mutex_lock(&b->lock);
    e = map_get(b->keys, key);
    if (!e) {
        e = mem_calloc(1, sizeof(*e));
        if (e && map_put(b->keys, key, e, &err)) {
            mem_free(e);
            e = NULL;
        }
    }
    if (e) {
        if (resource_version_compare(version, e->versions[kind]) > 0)
            memcpy(e->versions[kind], version, strlen(version) + 1);
        e->since_ms = clock_ms(b->clock);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

bool barrier_is_open(struct barrier *b, const char *key, struct store *s)
{
    struct expected *e;
    bool open = true;

    (void)pthread_mutex_lock(&b->lock);
    e = map_get(b->keys, key);
    for (unsigned k = 0; e && k < WATCHED_COUNT; k++)
        open = open && (e->versions[k][0] == '\0' || store_has_version(s, k, e->versions[k]));
    if (e && (open || clock_ms(b->clock) - e->since_ms > BARRIER_PATIENCE_MS)) {
        mem_free(map_remove(b->keys, key));
        open = true;
    }
    (void)pthread_mutex_unlock(&b->lock);
    return open;
}

void barrier_forget(struct barrier *b, const char *key)
{
    (void)pthread_mutex_lock(&b->lock);
    mem_free(map_remove(b->keys, key));
    (void)pthread_mutex_unlock(&b->lock);
}
