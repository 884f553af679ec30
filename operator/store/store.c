/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c - the cache of observed objects.
 *
 * Per kind a map from "namespace/name" to its entry, and per group ("namespace/service") a chain
 * through the entries, so that a reconcile gathers its dozen objects without walking thousands.
 * A relist marks with a generation number: entries that the new list did not touch are removed
 * when it is complete, never half-way.
 *
 * The lock is held for map moves only.  The loop thread writes; workers, the scraper and the
 * metrics API read references.
 */
#include "operator/store/store.h"

#include <pthread.h>
#include <string.h>

#include "base/assertion.h"
#include "base/map.h"
#include "base/mem.h"

enum { VERSION_BYTES = 48 };

struct entry {
    struct object *object;
    unsigned generation;       /* of the list that last touched it */
    struct entry *prev, *next; /* chain of its group */
};

struct kind {
    struct map *entries; /* key -> struct entry, owned */
    struct map *groups;  /* group -> first struct entry */
    unsigned generation;
    bool synced;
    char version[VERSION_BYTES];
};

struct store {
    pthread_mutex_t lock;
    unsigned n_kinds;
    struct kind *kinds;
};

int store_new(unsigned n_kinds, struct store **ret, struct err *err)
{
    CLEANUP(store_freep) struct store *s = mem_calloc(1, sizeof(*s));
    int r = 0;

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "store");
    (void)pthread_mutex_init(&s->lock, NULL);
    s->kinds = mem_calloc(n_kinds, sizeof(*s->kinds));
    if (!s->kinds)
        return err_set(err, ERR_NO_MEMORY, "store");
    s->n_kinds = n_kinds;
    for (unsigned i = 0; i < n_kinds && r == 0; i++) {
        r = map_new(&s->kinds[i].entries, err);
        if (r == 0)
            r = map_new(&s->kinds[i].groups, err);
    }
    if (r)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

static void entry_free(struct entry *e)
{
    object_unref(e->object);
    mem_free(e);
}

void store_free(struct store *s)
{
    if (!s)
        return;
    for (unsigned i = 0; s->kinds && i < s->n_kinds; i++) {
        size_t iter = 0;
        void *e;

        while (s->kinds[i].entries && map_next(s->kinds[i].entries, &iter, NULL, &e))
            entry_free(e);
        map_free(s->kinds[i].entries);
        map_free(s->kinds[i].groups);
    }
    mem_free(s->kinds);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static struct kind *kind_of(struct store *s, unsigned kind)
{
    ASSERT(kind < s->n_kinds);
    return &s->kinds[kind];
}

static int chain(struct kind *k, struct entry *e, struct err *err)
{
    const char *group = e->object->group;
    struct entry *first;
    int r;

    if (!group)
        return 0;
    first = map_get(k->groups, group);
    r = map_put(k->groups, group, e, err);
    if (r)
        return r;
    e->next = first;
    if (first)
        first->prev = e;
    return 0;
}

static void unchain(struct kind *k, struct entry *e)
{
    const char *group = e->object->group;
    struct err err;

    if (!group)
        return;
    if (e->next)
        e->next->prev = e->prev;
    if (e->prev)
        e->prev->next = e->next;
    else if (e->next)
        (void)!map_put(k->groups, group, e->next, &err); /* the key is there: needs no memory */
    else
        (void)map_remove(k->groups, group);
    e->prev = e->next = NULL;
}

static int put_new(struct kind *k, struct object *o, struct err *err)
{
    struct entry *e = mem_calloc(1, sizeof(*e));
    int r;

    if (!e)
        return err_set(err, ERR_NO_MEMORY, "store entry");
    e->object = o;
    e->generation = k->generation;
    r = chain(k, e, err);
    if (r == 0) {
        r = map_put(k->entries, o->key, e, err);
        if (r)
            unchain(k, e);
    }
    if (r)
        mem_free(e);
    return r;
}

/* Put o in the place of e's object, or drop it when it is older.  The reference is taken over. */
static int put_again(struct kind *k, struct entry *e, struct object *o, bool *ret_changed,
                     struct err *err)
{
    int r;

    e->generation = k->generation;
    if (resource_version_compare(o->resource_version, e->object->resource_version) <= 0 &&
        strcmp(o->uid, e->object->uid) == 0) {
        *ret_changed = false;
        object_unref(o);
        return 0;
    }
    unchain(k, e);
    object_unref(e->object);
    e->object = o;
    r = chain(k, e, err);
    if (r) { /* without its chain the entry would mislead: forget it, the relist brings it back */
        (void)map_remove(k->entries, o->key);
        entry_free(e);
    }
    return r;
}

int store_put(struct store *s, unsigned kind, struct object *o, bool *ret_changed, struct err *err)
{
    struct kind *k = kind_of(s, kind);
    struct entry *e;
    int r;

    *ret_changed = true;
    (void)pthread_mutex_lock(&s->lock);
    e = map_get(k->entries, o->key);
    if (e) {
        r = put_again(k, e, o, ret_changed, err);
    } else {
        r = put_new(k, o, err);
        if (r)
            object_unref(o);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static void remove_entry(struct kind *k, struct entry *e)
{
    unchain(k, e);
    (void)map_remove(k->entries, e->object->key);
    entry_free(e);
}

void store_remove(struct store *s, unsigned kind, const char *key)
{
    struct kind *k = kind_of(s, kind);
    struct entry *e;

    (void)pthread_mutex_lock(&s->lock);
    e = map_get(k->entries, key);
    if (e)
        remove_entry(k, e);
    (void)pthread_mutex_unlock(&s->lock);
}

void store_list_begin(struct store *s, unsigned kind)
{
    (void)pthread_mutex_lock(&s->lock);
    kind_of(s, kind)->generation++;
    (void)pthread_mutex_unlock(&s->lock);
}

/* One entry that the list did not touch, taken out with a reference; NULL: none left. */
static struct object *take_stale(struct kind *k)
{
    size_t iter = 0;
    void *value;

    while (map_next(k->entries, &iter, NULL, &value)) {
        struct entry *e = value;

        if (e->generation != k->generation) {
            struct object *o = object_ref(e->object);

            remove_entry(k, e);
            return o;
        }
    }
    return NULL;
}

void store_list_end(struct store *s, unsigned kind,
                    void (*on_gone)(void *userdata, const struct object *o), void *userdata)
{
    struct kind *k = kind_of(s, kind);
    struct object *gone;

    do {
        (void)pthread_mutex_lock(&s->lock);
        gone = take_stale(k);
        k->synced = k->synced || !gone;
        (void)pthread_mutex_unlock(&s->lock);
        if (gone)
            on_gone(userdata, gone); /* outside the lock */
        object_unref(gone);
    } while (gone);
}

void store_set_version(struct store *s, unsigned kind, const char *resource_version)
{
    struct kind *k = kind_of(s, kind);

    (void)pthread_mutex_lock(&s->lock);
    if (strlen(resource_version) < VERSION_BYTES &&
        resource_version_compare(resource_version, k->version) > 0)
        memcpy(k->version, resource_version, strlen(resource_version) + 1);
    (void)pthread_mutex_unlock(&s->lock);
}

bool store_is_synced(struct store *s)
{
    bool synced = true;

    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->n_kinds; i++)
        synced = synced && s->kinds[i].synced;
    (void)pthread_mutex_unlock(&s->lock);
    return synced;
}

bool store_has_version(struct store *s, unsigned kind, const char *resource_version)
{
    struct kind *k = kind_of(s, kind);
    bool has;

    (void)pthread_mutex_lock(&s->lock);
    has = resource_version_compare(k->version, resource_version) >= 0;
    (void)pthread_mutex_unlock(&s->lock);
    return has;
}

struct object *store_get(struct store *s, unsigned kind, const char *key)
{
    struct entry *e;
    struct object *o;

    (void)pthread_mutex_lock(&s->lock);
    e = map_get(kind_of(s, kind)->entries, key);
    o = e ? object_ref(e->object) : NULL;
    (void)pthread_mutex_unlock(&s->lock);
    return o;
}

static int collect(struct kind *k, const char *group, struct object_list *ret)
{
    size_t iter = 0, n = 0;
    struct entry *e = group ? map_get(k->groups, group) : NULL;
    void *value;

    for (struct entry *count = e; count; count = count->next)
        n++;
    if (!group)
        n = map_count(k->entries);
    ret->items = n ? mem_calloc(n, sizeof(struct object *)) : NULL;
    ret->n = 0;
    if (n && !ret->items)
        return -1;
    for (; group && e; e = e->next)
        ret->items[ret->n++] = object_ref(e->object);
    while (!group && map_next(k->entries, &iter, NULL, &value))
        ret->items[ret->n++] = object_ref(((struct entry *)value)->object);
    return 0;
}

int store_list(struct store *s, unsigned kind, const char *group, struct object_list *ret,
               struct err *err)
{
    int r;

    (void)pthread_mutex_lock(&s->lock);
    r = collect(kind_of(s, kind), group, ret);
    (void)pthread_mutex_unlock(&s->lock);
    return r ? err_set(err, ERR_NO_MEMORY, "list of objects") : 0;
}

size_t store_count(struct store *s, unsigned kind)
{
    size_t n;

    (void)pthread_mutex_lock(&s->lock);
    n = map_count(kind_of(s, kind)->entries);
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

void object_list_release(struct object_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        object_unref(l->items[i]);
    mem_free(l->items);
    *l = (struct object_list){0};
}
