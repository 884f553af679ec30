/* SPDX-License-Identifier: Apache-2.0
 *
 * object.c - an API object as it was seen, shared by reference count.
 *
 * The loop thread makes objects and puts them into the store; workers hold references while they
 * plan.  Nobody changes one: a change is a new object, so a snapshot needs no copy and no lock.
 */
#include "operator/store/object.h"

#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

static char *join(const char *namespace, const char *name)
{
    size_t n = strlen(namespace), m = strlen(name);
    char *key = mem_calloc(n + m + 2, 1);

    if (!key)
        return NULL;
    memcpy(key, namespace, n);
    key[n] = '/';
    memcpy(key + n + 1, name, m);
    return key;
}

static int fill(struct object *o, const char *group_label, struct err *err)
{
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(o->json, "metadata");
    const char *service;

    o->name = json_str(metadata, "name", "");
    if (o->name[0] == '\0')
        return err_set(err, ERR_INVALID, "object without metadata.name");
    cJSON_DeleteItemFromObjectCaseSensitive(metadata, "managedFields");
    o->namespace = json_str(metadata, "namespace", "");
    o->uid = json_str(metadata, "uid", "");
    o->resource_version = json_str(metadata, "resourceVersion", "");
    o->key = join(o->namespace, o->name);
    if (!o->key)
        return err_set(err, ERR_NO_MEMORY, "object");
    service = group_label ? json_str(json_get(metadata, "labels"), group_label, NULL) : o->name;
    if (!service)
        return 0;
    o->group = join(o->namespace, service);
    return o->group ? 0 : err_set(err, ERR_NO_MEMORY, "object");
}

int object_new(cJSON *json, const char *group_label, struct object **ret, struct err *err)
{
    struct object *o = mem_calloc(1, sizeof(*o));
    int r;

    if (!o) {
        cJSON_Delete(json);
        return err_set(err, ERR_NO_MEMORY, "object");
    }
    o->json = json;
    atomic_init(&o->refs, 1);
    r = fill(o, group_label, err);
    if (r) {
        object_unref(o);
        return r;
    }
    *ret = o;
    return 0;
}

struct object *object_ref(struct object *o)
{
    (void)atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return o;
}

void object_unref(struct object *o)
{
    unsigned before;

    if (!o)
        return;
    before = atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1)
        return;
    cJSON_Delete(o->json);
    mem_free(o->key);
    mem_free(o->group);
    mem_free(o);
}

/* Digits without a leading zero, or length 0. */
static size_t digits(const char *rv)
{
    size_t n = rv ? strspn(rv, "0123456789") : 0;

    return n && rv[n] == '\0' && rv[0] != '0' ? n : 0;
}

int resource_version_compare(const char *a, const char *b)
{
    size_t n = digits(a), m = digits(b);
    int order;

    if (n != m)
        return n < m ? -1 : 1;
    order = n ? strcmp(a, b) : 0;
    return (order > 0) - (order < 0);
}
