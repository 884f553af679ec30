/* SPDX-License-Identifier: Apache-2.0
 *
 * watches.c - which objects are watched, and whom a change concerns.
 *
 * Children and pods are found by the label that names their service, so a change of any of them
 * leads to one key.  Selectors keep everybody else's objects out of the cache.  The cluster's
 * authentication ConfigMap is watched, too, and handed to the front proxy check.
 */
#include "operator/watches.h"

#include <string.h>

#include "base/mem.h"
#include "operator/api/names.h"

static const struct kube_resource INFERENCE_SERVICE = {API_GROUP, API_VERSION, API_PLURAL,
                                                       API_KIND};

#define MANAGED LABEL_SERVICE ",app.kubernetes.io/managed-by=penstock"

static const struct {
    const struct kube_resource *resource;
    const char *label_selector;
    const char *group_label; /* object_new() */
} KINDS[WATCHED_COUNT] = {
        [WATCHED_INFERENCE_SERVICE] = {&INFERENCE_SERVICE, NULL, NULL},
        [WATCHED_DEPLOYMENT] = {&KUBE_DEPLOYMENT, MANAGED, LABEL_SERVICE},
        [WATCHED_SERVICE] = {&KUBE_SERVICE, MANAGED, LABEL_SERVICE},
        [WATCHED_SCALER] = {&KUBE_AUTOSCALER, MANAGED, LABEL_SERVICE},
        [WATCHED_REVISION] = {&KUBE_CONTROLLER_REVISION, MANAGED, LABEL_SERVICE},
        [WATCHED_POD] = {&KUBE_POD, LABEL_SERVICE, LABEL_SERVICE},
};

struct kind_watch {
    struct watches *all;
    unsigned kind;
};

struct watches {
    struct watches_options opt;
    struct kind_watch kinds[WATCHED_COUNT];
};

static void tell(struct watches *w, const struct object *o)
{
    if (o->group)
        w->opt.on_key(w->opt.userdata, o->group);
}

static void on_list_begin(void *userdata)
{
    struct kind_watch *k = userdata;

    store_list_begin(k->all->opt.store, k->kind);
}

static void on_gone(void *userdata, const struct object *o)
{
    tell(userdata, o);
}

static void on_list_end(void *userdata)
{
    struct kind_watch *k = userdata;

    store_list_end(k->all->opt.store, k->kind, on_gone, k->all);
}

/* Drop the members of obj that are not among keep[]. */
static void keep_only(cJSON *obj, const char *const *keep, size_t n)
{
    cJSON *v = obj ? obj->child : NULL;

    while (v) {
        cJSON *next = v->next;
        bool kept = false;

        for (size_t i = 0; i < n; i++)
            kept = kept || strcmp(keep[i], v->string) == 0;
        if (!kept)
            cJSON_Delete(cJSON_DetachItemViaPointer(obj, v));
        v = next;
    }
}

/* Of a pod the cache needs its status and where its ports are, not what it was made of: that is
 * two thirds of it, times the number of pods. */
static void slim_pod(cJSON *pod)
{
    static const char *const of_spec[] = {"containers", "nodeName"};
    static const char *const of_container[] = {"name", "ports"};
    cJSON *spec = cJSON_GetObjectItemCaseSensitive(pod, "spec"), *c;

    keep_only(spec, of_spec, sizeof(of_spec) / sizeof(of_spec[0]));
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(spec, "containers"))
            keep_only(c, of_container, sizeof(of_container) / sizeof(of_container[0]));
}

static void on_object(void *userdata, enum watch_event e, cJSON *json)
{
    struct kind_watch *k = userdata;
    struct watches *w = k->all;
    struct object *o = NULL, *before = NULL;
    struct err err = {0};
    bool changed = true;

    if (k->kind == WATCHED_POD)
        slim_pod(json);
    if (object_new(json, KINDS[k->kind].group_label, &o, &err)) {
        log_warn(w->opt.lg, "object cannot be used", F_ERR(&err));
        return;
    }
    before = store_get(w->opt.store, k->kind, o->key);
    if (e == WATCH_DELETED) {
        store_remove(w->opt.store, k->kind, o->key);
        tell(w, o);
        object_unref(o);
    } else {
        (void)object_ref(o);
        if (store_put(w->opt.store, k->kind, o, &changed, &err))
            log_warn(w->opt.lg, "object was not cached", F_ERR(&err));
        if (changed)
            tell(w, o);
        object_unref(o);
    }
    if (before && changed) /* it may have moved to another service */
        tell(w, before);
    object_unref(before);
}

static void on_version(void *userdata, const char *version)
{
    struct kind_watch *k = userdata;

    store_set_version(k->all->opt.store, k->kind, version);
}

static void on_trouble(void *userdata, const struct err *err, uint64_t wait_ms)
{
    struct kind_watch *k = userdata;

    log_warn(k->all->opt.lg, "watch interrupted", F_STR("kind", KINDS[k->kind].resource->plural),
             F_ERR(err), F_U64("retry_ms", wait_ms));
}

/* --- the authentication ConfigMap --- */

static void nothing(void *userdata)
{
    (void)userdata;
}

static void on_config_map(void *userdata, enum watch_event e, cJSON *json)
{
    struct watches *w = userdata;
    struct err err = {0};

    if (e != WATCH_DELETED && front_proxy_update(w->opt.front_proxy, json, &err))
        log_warn(w->opt.lg, "request-header CA", F_ERR(&err));
    cJSON_Delete(json);
}

static void no_version(void *userdata, const char *version)
{
    (void)userdata;
    (void)version;
}

static void on_config_trouble(void *userdata, const struct err *err, uint64_t wait_ms)
{
    struct watches *w = userdata;

    log_warn(w->opt.lg, "watch interrupted", F_STR("kind", "extension-apiserver-authentication"),
             F_ERR(err), F_U64("retry_ms", wait_ms));
}

static int watch_config_map(struct watches *w, struct err *err)
{
    struct watch_options o = {.resource = &KUBE_CONFIG_MAP,
                              .namespace = "kube-system",
                              .field_selector = "metadata.name=extension-apiserver-authentication",
                              .clock = w->opt.clock,
                              .seed = w->opt.seed,
                              .on_list_begin = nothing,
                              .on_object = on_config_map,
                              .on_list_end = nothing,
                              .on_version = no_version,
                              .on_trouble = on_config_trouble,
                              .userdata = w};

    return kube_loop_watch(w->opt.loop, &o, err);
}

int watches_new(const struct watches_options *o, struct watches **ret, struct err *err)
{
    CLEANUP(watches_freep) struct watches *w = mem_calloc(1, sizeof(*w));
    int r = 0;

    if (!w)
        return err_set(err, ERR_NO_MEMORY, "watches");
    w->opt = *o;
    for (unsigned kind = 0; kind < WATCHED_COUNT && r == 0; kind++) {
        struct watch_options wo = {.resource = KINDS[kind].resource,
                                   .label_selector = KINDS[kind].label_selector,
                                   .clock = o->clock,
                                   .seed = o->seed + kind * 7919,
                                   .on_list_begin = on_list_begin,
                                   .on_object = on_object,
                                   .on_list_end = on_list_end,
                                   .on_version = on_version,
                                   .on_trouble = on_trouble,
                                   .userdata = &w->kinds[kind]};

        w->kinds[kind] = (struct kind_watch){w, kind};
        r = kube_loop_watch(o->loop, &wo, err);
    }
    if (r == 0)
        r = watch_config_map(w, err);
    if (r)
        return r;
    *ret = TAKE_PTR(w);
    return 0;
}

void watches_free(struct watches *w)
{
    mem_free(w);
}
