/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - from what is seen and what is wanted to what to do.
 *
 * Level-based: no memory of earlier runs, no difference between a first and a hundredth look.  A
 * child is applied when its body's digest is not the one it carries (we would say something else
 * today) or when the live object no longer holds what we said (somebody changed it); else it is
 * left alone, so a steady service plans nothing.
 *
 * The pod template is pinned: the ControllerRevision named after the digest of the spec holds the
 * template as it was first rendered, and while it exists that template is applied, whatever this
 * version would render.  The revision is written before the Deployment that uses it, and older
 * ones are removed after, so a crash between two steps loses nothing.
 *
 * An object with our name and another owner is never touched; it shows up as a condition.
 */
#include "operator/reconcile/plan.h"

#include <string.h>

#include "operator/api/names.h"
#include "operator/reconcile/merge.h"

enum { FOREIGN_AGAIN_MS = 30000 };

bool observed_is_ours(const cJSON *object, const char *service_uid)
{
    const cJSON *ref;

    cJSON_ArrayForEach(ref, json_path(object, "metadata.ownerReferences"))
    {
        if (json_bool(ref, "controller", false))
            return strcmp(json_str(ref, "uid", ""), service_uid) == 0;
    }
    return false;
}

struct work {
    const struct inference_service *spec;
    const struct observed *seen;
    struct plan *plan;
    struct err *err;
    char digest[DIGEST_BYTES];
    char revision[256];
    bool upgrade_available;
};

static const char *applied_digest(const cJSON *object)
{
    return json_str(json_path(object, "metadata.annotations"), ANNOTATION_APPLIED, "");
}

static struct plan_step *new_step(struct work *w)
{
    return w->plan->n_steps < PLAN_STEPS_MAX ? &w->plan->steps[w->plan->n_steps++] : NULL;
}

/* body is taken over. */
static void want(struct work *w, enum child child, const char *name, const cJSON *live, cJSON *body)
{
    struct plan_step *step;

    if (live && strcmp(applied_digest(live), applied_digest(body)) == 0 &&
        merge_covers(live, body)) {
        cJSON_Delete(body);
        return;
    }
    step = new_step(w);
    if (!step) {
        cJSON_Delete(body);
        return;
    }
    *step = (struct plan_step){
            .verb = PLAN_APPLY, .child = child, .name = name, .body = body, .is_new = !live};
}

static void unwant(struct work *w, enum child child, const cJSON *live)
{
    const cJSON *metadata = json_get(live, "metadata");
    struct plan_step *step;

    if (!live || !observed_is_ours(live, w->spec->uid) || json_get(metadata, "deletionTimestamp"))
        return;
    step = new_step(w);
    if (step)
        *step = (struct plan_step){.verb = PLAN_DELETE,
                                   .child = child,
                                   .name = json_str(metadata, "name", ""),
                                   .uid = json_str(metadata, "uid", "")};
}

static bool is_foreign(const struct work *w, enum child child)
{
    return w->seen->foreign >> child & 1;
}

/* The pinned template of this spec, NULL: none yet.  *ret_last: the highest revision number. */
static const cJSON *find_pinned(const struct work *w, int64_t *ret_last)
{
    const cJSON *found = NULL;

    *ret_last = 0;
    for (size_t i = 0; i < w->seen->n_revisions; i++) {
        const cJSON *r = w->seen->revisions[i], *data = json_get(r, "data");
        int64_t number = json_int(r, "revision", 0);

        if (!observed_is_ours(r, w->spec->uid))
            continue;
        if (number > *ret_last)
            *ret_last = number;
        if (strcmp(json_str(data, "specDigest", ""), w->digest) == 0 &&
            cJSON_IsObject(json_get(data, "template")))
            found = json_get(data, "template");
    }
    return found;
}

static int plan_revision(struct work *w, const cJSON *rendered, const cJSON **ret_template)
{
    int64_t last;
    const cJSON *pinned = find_pinned(w, &last);
    cJSON *body = NULL;
    int r;

    if (pinned) {
        w->upgrade_available = !json_equal(pinned, rendered);
        *ret_template = pinned;
        return 0;
    }
    *ret_template = rendered;
    r = child_revision(w->spec, w->digest, last + 1, rendered, &body, w->err);
    if (r == 0)
        want(w, CHILD_REVISION, w->revision, NULL, body);
    return r;
}

static int plan_children(struct work *w, const cJSON *template)
{
    const cJSON *const *live = w->seen->children;
    const char *name = w->spec->name;
    cJSON *body = NULL;
    int r = 0;

    if (!is_foreign(w, CHILD_DEPLOYMENT)) {
        r = child_deployment(w->spec, template, &body, w->err);
        if (r)
            return r;
        want(w, CHILD_DEPLOYMENT, name, live[CHILD_DEPLOYMENT], body);
    }
    if (!is_foreign(w, CHILD_SERVICE)) {
        r = child_service(w->spec, &body, w->err);
        if (r)
            return r;
        want(w, CHILD_SERVICE, name, live[CHILD_SERVICE], body);
    }
    if (is_foreign(w, CHILD_SCALER))
        return 0;
    /* Without a metrics API of ours an HPA would read a stranger's figures, or none. */
    if (!w->spec->scaling.enabled || w->seen->metrics_api == METRICS_API_CONFLICT) {
        unwant(w, CHILD_SCALER, live[CHILD_SCALER]);
        return 0;
    }
    r = child_scaler(w->spec, w->seen->decision.hold_down, &body, w->err);
    if (r == 0)
        want(w, CHILD_SCALER, name, live[CHILD_SCALER], body);
    return r;
}

static void plan_old_revisions(struct work *w)
{
    for (size_t i = 0; i < w->seen->n_revisions; i++) {
        const cJSON *r = w->seen->revisions[i];

        if (strcmp(json_path_str(r, "data.specDigest", ""), w->digest) != 0)
            unwant(w, CHILD_REVISION, r);
    }
}

static int plan_valid(struct work *w)
{
    CLEANUP(json_freep) cJSON *rendered = NULL;
    const cJSON *template = NULL;
    int r = template_spec_digest(w->spec, w->digest, w->err);

    if (r == 0)
        r = child_revision_name(w->spec, w->digest, w->revision, sizeof(w->revision), w->err);
    if (r == 0)
        r = template_render(w->spec, w->seen->defaults, w->digest, &rendered, w->err);
    if (r == 0)
        r = plan_revision(w, rendered, &template);
    if (r == 0)
        r = plan_children(w, template);
    if (r == 0)
        plan_old_revisions(w);
    return r;
}

int plan_make(const struct inference_service *spec, const struct err *refused,
              const struct observed *seen, struct arena *mem, struct plan *ret, struct err *err)
{
    struct work *w = arena_alloc(mem, sizeof(*w));
    int r = 0;

    *ret = (struct plan){0};
    if (!w)
        return err_set(err, ERR_NO_MEMORY, "plan");
    w->spec = spec;
    w->seen = seen;
    w->plan = ret;
    w->err = err;
    if (spec->deleting)
        return 0; /* the garbage collector takes the children, by their owner */
    if (!refused)
        r = plan_valid(w);
    if (r == 0)
        r = status_make(spec, refused, seen, w->digest, w->upgrade_available, mem, &ret->status,
                        err);
    if (seen->foreign)
        ret->again_ms = FOREIGN_AGAIN_MS;
    if (r)
        plan_release(ret);
    return r;
}

void plan_release(struct plan *p)
{
    for (size_t i = 0; i < p->n_steps; i++)
        cJSON_Delete(p->steps[i].body);
    *p = (struct plan){0};
}
