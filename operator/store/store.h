/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "operator/store/object.h"

/* What the watches have seen, by kind and name, and by the service an object belongs to.  One
 * thread writes (the loop); any thread reads snapshots, which are lists of references.  Kinds are
 * small numbers of the caller's. */
struct store;

struct object_list {
    struct object **items;
    size_t n;
};

int store_new(unsigned n_kinds, struct store **ret, struct err *err) MUST_CHECK;
void store_free(struct store *s);
DEFINE_FREEP(store)

/* Writer.  store_put() takes the reference over, also when it fails; an object older than the one
 * held is dropped (*ret_changed false), as it is after a failover to a lagging API server. */
int store_put(struct store *s, unsigned kind, struct object *o, bool *ret_changed,
              struct err *err) MUST_CHECK;
void store_remove(struct store *s, unsigned kind, const char *key);
/* A whole list replaces a kind: begin, put every object, end.  What was not put is gone;
 * on_gone tells of each.  Without store_list_end() nothing is removed. */
void store_list_begin(struct store *s, unsigned kind);
void store_list_end(struct store *s, unsigned kind,
                    void (*on_gone)(void *userdata, const struct object *o), void *userdata);
/* The kind is known up to this resource version (an event's, a bookmark's, a list's). */
void store_set_version(struct store *s, unsigned kind, const char *resource_version);

/* Readers. */
bool store_is_synced(struct store *s); /* every kind was listed once */
/* Has the kind been seen up to this version? */
bool store_has_version(struct store *s, unsigned kind, const char *resource_version);
struct object *store_get(struct store *s, unsigned kind,
                         const char *key); /* a reference, or NULL */
/* All objects of a kind; with group only those of that service. */
int store_list(struct store *s, unsigned kind, const char *group, struct object_list *ret,
               struct err *err) MUST_CHECK;
size_t store_count(struct store *s, unsigned kind);
void object_list_release(struct object_list *l);
