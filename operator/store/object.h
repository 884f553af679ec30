/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"

/* One observed API object: immutable once made, counted references, any thread.  The tree is
 * without managedFields, which nobody reads and which are half of it.  'json' and the texts live
 * as long as a reference does. */
struct object {
    atomic_uint refs;
    cJSON *json; /* packed in one block: read it, never change or delete parts of it */
    const char *namespace, *name, *uid, *resource_version; /* in json; "" when absent */
    char *key;                                             /* "namespace/name" */
    char *group; /* "namespace/service" this object belongs to; NULL: none */
};

/* Takes json over, also when it fails.  group_label: the label whose value names the service; NULL:
 * the object's own name is the service.  ERR_INVALID: no metadata.name. */
int object_new(cJSON *json, const char *group_label, struct object **ret,
               struct err *err) MUST_CHECK;
struct object *object_ref(struct object *o);
void object_unref(struct object *o); /* NULL is fine */
static inline void object_unrefp(struct object **o)
{
    object_unref(*o);
}

/* Compare two resource versions: -1, 0, 1.  They are decimal numbers of up to 128 bits; anything
 * else (and "") counts as oldest. */
int resource_version_compare(const char *a, const char *b);
