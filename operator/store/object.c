/* SPDX-License-Identifier: Apache-2.0
 *
 * object.c - an API object as it was seen, shared by reference count.
 *
 * The loop thread makes objects and puts them into the store; workers hold references while they
 * plan.  Nobody changes one: a change is a new object, so a snapshot needs no copy and no lock.
 *
 * cJSON takes two or three small allocations a value, and trees that come and go among short-lived
 * ones leave the heap full of holes.  So a tree is packed: all nodes and all texts in one block,
 * half the size, freed at once.
 */
#include "operator/store/object.h"

#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

/* How much a tree needs. */
static void measure(const cJSON *v, size_t *ret_nodes, size_t *ret_bytes)
{
    for (; v; v = v->next) {
        ++*ret_nodes;
        *ret_bytes += (v->string ? strlen(v->string) + 1 : 0) +
                      (v->valuestring ? strlen(v->valuestring) + 1 : 0);
        measure(v->child, ret_nodes, ret_bytes);
    }
}

struct packer {
    cJSON *node; /* the next free one */
    char *text;
};

static char *pack_text(struct packer *p, const char *s)
{
    char *at = p->text;
    size_t n = s ? strlen(s) + 1 : 0;

    if (!s)
        return NULL;
    memcpy(at, s, n);
    p->text += n;
    return at;
}

/* A list of siblings and all below; depth is bounded by the parser. */
static cJSON *pack_siblings(struct packer *p, const cJSON *v)
{
    cJSON *first = NULL, *last = NULL;

    for (; v; v = v->next) {
        cJSON *node = p->node++;

        *node = *v;
        node->string = pack_text(p, v->string);
        node->valuestring = pack_text(p, v->valuestring);
        node->child = pack_siblings(p, v->child);
        node->next = NULL;
        node->prev = last;
        if (last)
            last->next = node;
        else
            first = node;
        last = node;
    }
    if (first)
        first->prev = last; /* as cJSON has it */
    return first;
}

/* The same tree in one block; mem_free() it.  NULL: no memory. */
static cJSON *pack(const cJSON *tree)
{
    size_t nodes = 0, bytes = 0;
    struct packer p;
    cJSON *block;

    measure(tree, &nodes, &bytes);
    block = mem_calloc(1, nodes * sizeof(cJSON) + bytes);
    if (!block)
        return NULL;
    p = (struct packer){.node = block, .text = (char *)(block + nodes)};
    return pack_siblings(&p, tree);
}

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
    const cJSON *metadata = json_get(o->json, "metadata");
    const char *service;

    o->name = json_str(metadata, "name", "");
    if (o->name[0] == '\0')
        return err_set(err, ERR_INVALID, "object without metadata.name");
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

    if (o) {
        cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "metadata"),
                                                "managedFields");
        o->json = pack(json);
    }
    cJSON_Delete(json);
    if (!o || !o->json) {
        mem_free(o);
        return err_set(err, ERR_NO_MEMORY, "object");
    }
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
    mem_free(o->json);
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
