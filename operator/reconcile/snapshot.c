/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/snapshot.h"

#include <string.h>

#include "operator/api/kinds.h"

/* The object called name; among several of one label only that one is a child. */
static const cJSON *named(const struct object_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i]->name, name) == 0)
            return l->items[i]->json;
    }
    return NULL;
}

static void view_children(struct snapshot *s)
{
    struct observed *seen = &s->seen;

    for (unsigned c = CHILD_DEPLOYMENT; c < CHILD_COUNT; c++) {
        const cJSON *live = named(&s->children[c], s->service->name);

        if (live && !observed_is_ours(live, s->service->uid)) {
            seen->foreign |= 1u << c;
            live = NULL;
        }
        seen->children[c] = live;
    }
}

int snapshot_take(struct store *store, const char *key, struct arena *mem, struct snapshot *ret,
                  struct err *err)
{
    static const enum watched_kind kinds[CHILD_COUNT] = {
            [CHILD_REVISION] = WATCHED_REVISION,
            [CHILD_DEPLOYMENT] = WATCHED_DEPLOYMENT,
            [CHILD_SERVICE] = WATCHED_SERVICE,
            [CHILD_SCALER] = WATCHED_SCALER,
    };
    const cJSON **revisions;
    int r = 0;

    *ret = (struct snapshot){0};
    ret->service = store_get(store, WATCHED_INFERENCE_SERVICE, key);
    if (!ret->service)
        return 0;
    for (unsigned c = 0; c < CHILD_COUNT && r == 0; c++)
        r = store_list(store, kinds[c], key, &ret->children[c], err);
    if (r == 0)
        r = store_list(store, WATCHED_POD, key, &ret->pods, err);
    if (r)
        return r;
    revisions = arena_calloc(mem, ret->children[CHILD_REVISION].n + 1, sizeof(*revisions));
    ret->observed_pods = arena_calloc(mem, ret->pods.n + 1, sizeof(*ret->observed_pods));
    if (!revisions || !ret->observed_pods)
        return err_set(err, ERR_NO_MEMORY, "snapshot");
    for (size_t i = 0; i < ret->children[CHILD_REVISION].n; i++)
        revisions[i] = ret->children[CHILD_REVISION].items[i]->json;
    for (size_t i = 0; i < ret->pods.n; i++)
        ret->observed_pods[i].pod = ret->pods.items[i]->json;
    ret->seen.service = ret->service->json;
    ret->seen.revisions = revisions;
    ret->seen.n_revisions = ret->children[CHILD_REVISION].n;
    ret->seen.pods = ret->observed_pods;
    ret->seen.n_pods = ret->pods.n;
    view_children(ret);
    return 0;
}

void snapshot_release(struct snapshot *s)
{
    object_unref(s->service);
    for (unsigned c = 0; c < CHILD_COUNT; c++)
        object_list_release(&s->children[c]);
    object_list_release(&s->pods);
    *s = (struct snapshot){0};
}
