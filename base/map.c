/* SPDX-License-Identifier: Apache-2.0
 *
 * map.c - open addressing with linear probing.
 *
 * The table is a power of two and at most three quarters full.  Removal shifts the entries behind
 * the hole back, so there are no tombstones and a look-up ends at the first empty slot.  The hash
 * is FNV-1a from a random start with a final mix: enough against names picked to collide by
 * somebody who cannot see the seed.
 */
#include "base/map.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

enum { SLOTS_MIN = 16 };

struct slot {
    char *key; /* NULL: empty */
    void *value;
    uint64_t hash;
};

struct map {
    struct slot *slots;
    size_t n_slots; /* power of two */
    size_t n;
    uint64_t seed;
};

static uint64_t hash_of(const struct map *m, const char *key)
{
    uint64_t h = m->seed ^ 0xcbf29ce484222325u;

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 33;
}

/* The key's slot, or the empty one where it belongs. */
static struct slot *find(const struct map *m, const char *key, uint64_t hash)
{
    size_t i = hash & (m->n_slots - 1);

    while (m->slots[i].key && (m->slots[i].hash != hash || strcmp(m->slots[i].key, key) != 0))
        i = (i + 1) & (m->n_slots - 1);
    return &m->slots[i];
}

int map_new(struct map **ret, struct err *err)
{
    CLEANUP(map_freep) struct map *m = mem_calloc(1, sizeof(*m));

    if (!m)
        return err_set(err, ERR_NO_MEMORY, "map");
    m->slots = mem_calloc(SLOTS_MIN, sizeof(*m->slots));
    if (!m->slots)
        return err_set(err, ERR_NO_MEMORY, "map");
    m->n_slots = SLOTS_MIN;
    /* A short read leaves a weaker seed, which costs speed under attack and nothing else. */
    (void)!getrandom(&m->seed, sizeof(m->seed), GRND_NONBLOCK);
    *ret = TAKE_PTR(m);
    return 0;
}

void map_free(struct map *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_slots; i++)
        mem_free(m->slots[i].key);
    mem_free(m->slots);
    mem_free(m);
}

void *map_get(const struct map *m, const char *key)
{
    return find(m, key, hash_of(m, key))->value;
}

static int grow(struct map *m, struct err *err)
{
    struct map bigger = *m;

    bigger.n_slots = m->n_slots * 2;
    bigger.slots = mem_calloc(bigger.n_slots, sizeof(*bigger.slots));
    if (!bigger.slots)
        return err_set(err, ERR_NO_MEMORY, "map of %zu entries", m->n);
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].key)
            *find(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    }
    mem_free(m->slots);
    *m = bigger;
    return 0;
}

int map_put(struct map *m, const char *key, void *value, struct err *err)
{
    uint64_t hash = hash_of(m, key);
    struct slot *slot = find(m, key, hash);

    if (slot->key) {
        slot->value = value;
        return 0;
    }
    if ((m->n + 1) * 4 > m->n_slots * 3) {
        int r = grow(m, err);

        if (r)
            return r;
        slot = find(m, key, hash);
    }
    slot->key = mem_strdup(key);
    if (!slot->key)
        return err_set(err, ERR_NO_MEMORY, "map entry");
    slot->value = value;
    slot->hash = hash;
    m->n++;
    return 0;
}

void *map_remove(struct map *m, const char *key)
{
    struct slot *slot = find(m, key, hash_of(m, key));
    size_t mask = m->n_slots - 1, hole = (size_t)(slot - m->slots);
    void *value = slot->value;

    if (!slot->key)
        return NULL;
    mem_free(slot->key);
    for (size_t i = (hole + 1) & mask; m->slots[i].key; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;

        /* An entry may move into the hole unless its home lies behind the hole. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct slot){0};
    m->n--;
    return value;
}

size_t map_count(const struct map *m)
{
    return m->n;
}

bool map_next(const struct map *m, size_t *iter, const char **ret_key, void **ret_value)
{
    for (; *iter < m->n_slots; (*iter)++) {
        const struct slot *slot = &m->slots[*iter];

        if (!slot->key)
            continue;
        if (ret_key)
            *ret_key = slot->key;
        *ret_value = slot->value;
        (*iter)++;
        return true;
    }
    return false;
}
