/* SPDX-License-Identifier: Apache-2.0
 *
 * apply.c - the writes of a reconcile.
 *
 * Everything is server-side apply under one field manager, so fields of others stay theirs and a
 * field we no longer send goes away.  Before a child is made for the first time the name is looked
 * up: apply would otherwise quietly adopt a stranger's object.  (Between look and apply another
 * client could still create one; API servers have no "apply only if absent".)
 */
#include "operator/reconcile/apply.h"

#include "base/mem.h"
#include "operator/api/kinds.h"
#include "operator/api/names.h"

static const struct kube_resource INFERENCE_SERVICE = {API_GROUP, API_VERSION, API_PLURAL,
                                                       API_KIND};

static const struct {
    const struct kube_resource *resource;
    enum watched_kind kind;
} CHILDREN[CHILD_COUNT] = {
        [CHILD_REVISION] = {&KUBE_CONTROLLER_REVISION, WATCHED_REVISION},
        [CHILD_DEPLOYMENT] = {&KUBE_DEPLOYMENT, WATCHED_DEPLOYMENT},
        [CHILD_SERVICE] = {&KUBE_SERVICE, WATCHED_SERVICE},
        [CHILD_SCALER] = {&KUBE_AUTOSCALER, WATCHED_SCALER},
};

static void expect(const struct apply *a, enum watched_kind kind, const cJSON *answer)
{
    barrier_expect(a->barrier, a->key, kind, json_path_str(answer, "metadata.resourceVersion", ""));
}

/* Is the name taken by a stranger? */
static int look(const struct apply *a, const struct plan_step *s, bool *ret_foreign,
                struct err *err)
{
    CLEANUP(json_freep) cJSON *live = NULL;
    int r = kube_get(a->client, CHILDREN[s->child].resource, a->namespace, s->name, &live, err);

    *ret_foreign = false;
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        *ret_foreign = !observed_is_ours(live, a->service_uid);
    return r;
}

static int apply_one(const struct apply *a, const struct plan_step *s, struct err *err)
{
    CLEANUP(json_freep) cJSON *answer = NULL;
    CLEANUP(mem_freep) char *body = json_print(s->body);
    int r;

    if (!body)
        return err_set(err, ERR_NO_MEMORY, "request body");
    r = kube_apply(a->client, CHILDREN[s->child].resource, a->namespace, s->name, NULL,
                   FIELD_MANAGER, body, &answer, err);
    if (r == 0)
        expect(a, CHILDREN[s->child].kind, answer);
    return r;
}

static int run_step(const struct apply *a, const struct plan_step *s, unsigned *ret_foreign,
                    struct err *err)
{
    bool foreign = false;
    int r = 0;

    if (s->verb == PLAN_DELETE)
        return kube_delete(a->client, CHILDREN[s->child].resource, a->namespace, s->name, s->uid,
                           err);
    if (s->is_new)
        r = look(a, s, &foreign, err);
    if (r == 0 && foreign)
        *ret_foreign |= 1u << s->child;
    else if (r == 0)
        r = apply_one(a, s, err);
    return r;
}

int apply_steps(const struct apply *a, const struct plan *p, unsigned *ret_foreign, struct err *err)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];

        if (run_step(a, s, ret_foreign, err))
            return err_wrap(err, "%s \"%s\"", child_kind(s->child), s->name);
    }
    return 0;
}

int apply_status(const struct apply *a, const char *name, const char *body, struct err *err)
{
    CLEANUP(json_freep) cJSON *answer = NULL;

    if (kube_apply(a->client, &INFERENCE_SERVICE, a->namespace, name, "status",
                   FIELD_MANAGER "-status", body, &answer, err))
        return err_wrap(err, "status");
    expect(a, WATCHED_INFERENCE_SERVICE, answer);
    return 0;
}
