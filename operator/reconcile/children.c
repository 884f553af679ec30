/* SPDX-License-Identifier: Apache-2.0
 *
 * children.c - what a service should look like in the cluster.
 *
 * Text first (json_writer), then a tree: one check for memory instead of one a member, and the
 * layout of each object can be read from top to bottom.  Each body carries a digest of itself as
 * an annotation; plan.c compares digests to learn that we would apply something else today, and
 * trees to learn that somebody else changed what we applied.
 *
 * The autoscaler targets the service's own /scale, so it and a user's kubectl scale write the
 * same field; the Deployment's replicas are copied from there.
 */
#include "operator/reconcile/children.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/str.h"
#include "operator/api/digest.h"
#include "operator/api/names.h"
#include "operator/reconcile/template.h"

enum {
    BODY_MAX = 2 << 20,
    PROGRESS_DEADLINE_MIN = 600, /* Kubernetes' own default */
    PROGRESS_RESERVE = 120,      /* scheduling and image pull on top of the start */
    SCALE_DOWN_AFTER = 300,
    REVISION_HISTORY = 2,
};

const char *child_kind(enum child c)
{
    static const char *const kinds[] = {
            [CHILD_REVISION] = "ControllerRevision",
            [CHILD_DEPLOYMENT] = "Deployment",
            [CHILD_SERVICE] = "Service",
            [CHILD_SCALER] = "HorizontalPodAutoscaler",
    };
    _Static_assert(sizeof(kinds) / sizeof(kinds[0]) == CHILD_COUNT, "one name a kind");

    return kinds[c];
}

static void write_labels(struct json_writer *w, const struct inference_service *s)
{
    json_key(w, "labels");
    json_obj(w);
    json_kv_text(w, "app.kubernetes.io/name", "penstock-runtime");
    json_kv_text(w, "app.kubernetes.io/instance", s->name);
    json_kv_text(w, "app.kubernetes.io/managed-by", "penstock");
    json_kv_text(w, LABEL_SERVICE, s->name);
    json_end(w);
}

/* Opens the object and writes all that is the same in each child. */
static void write_head(struct json_writer *w, const struct inference_service *s,
                       const char *api_version, enum child child, const char *name)
{
    json_obj(w);
    json_kv_text(w, "apiVersion", api_version);
    json_kv_text(w, "kind", child_kind(child));
    json_key(w, "metadata");
    json_obj(w);
    json_kv_text(w, "name", name);
    json_kv_text(w, "namespace", s->namespace);
    write_labels(w, s);
    json_key(w, "ownerReferences");
    json_arr(w);
    json_obj(w);
    json_kv_text(w, "apiVersion", API_GROUP_VERSION);
    json_kv_text(w, "kind", API_KIND);
    json_kv_text(w, "name", s->name);
    json_kv_text(w, "uid", s->uid);
    json_kv_bool(w, "controller", true);
    json_kv_bool(w, "blockOwnerDeletion", true);
    json_end(w);
    json_end(w);
    json_end(w);
}

/* Text to tree, sealed with its digest. */
static int finish(struct str *text, enum child child, cJSON **ret, struct err *err)
{
    CLEANUP(json_freep) cJSON *body = NULL;
    char digest[DIGEST_BYTES];
    cJSON *annotations;
    int r = str_check(text, child_kind(child), err);

    if (r == 0)
        r = json_parse(str_text(text), text->len, &JSON_LIMITS_DEFAULT, &body, err);
    if (r == 0)
        r = digest_json(body, digest, err);
    if (r)
        return r;
    annotations = cJSON_AddObjectToObject(cJSON_GetObjectItemCaseSensitive(body, "metadata"),
                                          "annotations");
    if (!annotations || !cJSON_AddStringToObject(annotations, ANNOTATION_APPLIED, digest))
        return err_set(err, ERR_NO_MEMORY, "%s", child_kind(child));
    *ret = TAKE_PTR(body);
    return 0;
}

static int write_tree(struct json_writer *w, const char *key, const cJSON *tree, struct err *err)
{
    CLEANUP(mem_freep) char *text = json_print(tree);

    if (!text)
        return err_set(err, ERR_NO_MEMORY, "%s", key);
    json_key(w, key);
    json_raw(w, text);
    return 0;
}

int child_revision_name(const struct inference_service *s, const char *spec_digest, char *out,
                        size_t size, struct err *err)
{
    int n = snprintf(out, size, "%s-%s", s->name, spec_digest);

    return n > 0 && (size_t)n < size ? 0 : err_set(err, ERR_INVALID, "name is too long");
}

int child_revision(const struct inference_service *s, const char *spec_digest, int64_t revision,
                   const cJSON *template, cJSON **ret, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    struct json_writer w = json_writer_start(&text);
    char name[256];
    int r = child_revision_name(s, spec_digest, name, sizeof(name), err);

    if (r)
        return r;
    write_head(&w, s, "apps/v1", CHILD_REVISION, name);
    json_kv_i64(&w, "revision", revision);
    json_key(&w, "data");
    json_obj(&w);
    json_kv_text(&w, "specDigest", spec_digest);
    r = write_tree(&w, "template", template, err);
    json_end(&w);
    json_end(&w);
    return r ? r : finish(&text, CHILD_REVISION, ret, err);
}

int child_deployment(const struct inference_service *s, const cJSON *template, cJSON **ret,
                     struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    struct json_writer w = json_writer_start(&text);
    int64_t deadline = template_startup_budget(s) + PROGRESS_RESERVE;
    int r;

    write_head(&w, s, "apps/v1", CHILD_DEPLOYMENT, s->name);
    json_key(&w, "spec");
    json_obj(&w);
    json_kv_i64(&w, "replicas", s->replicas);
    json_kv_i64(&w, "revisionHistoryLimit", REVISION_HISTORY);
    json_kv_i64(&w, "progressDeadlineSeconds",
                deadline > PROGRESS_DEADLINE_MIN ? deadline : PROGRESS_DEADLINE_MIN);
    json_key(&w, "strategy");
    json_raw(&w, "{\"type\":\"RollingUpdate\","
                 "\"rollingUpdate\":{\"maxSurge\":1,\"maxUnavailable\":0}}");
    json_key(&w, "selector");
    json_obj(&w);
    json_key(&w, "matchLabels");
    json_obj(&w);
    json_kv_text(&w, LABEL_SERVICE, s->name);
    json_end(&w);
    json_end(&w);
    r = write_tree(&w, "template", template, err);
    json_end(&w);
    json_end(&w);
    return r ? r : finish(&text, CHILD_DEPLOYMENT, ret, err);
}

int child_service(const struct inference_service *s, cJSON **ret, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    struct json_writer w = json_writer_start(&text);

    write_head(&w, s, "v1", CHILD_SERVICE, s->name);
    json_key(&w, "spec");
    json_obj(&w);
    json_key(&w, "selector");
    json_obj(&w);
    json_kv_text(&w, LABEL_SERVICE, s->name);
    json_end(&w);
    json_key(&w, "ports");
    json_arr(&w);
    json_obj(&w);
    json_kv_text(&w, "name", PORT_API_NAME);
    json_kv_i64(&w, "port", PORT_API);
    json_kv_text(&w, "targetPort", PORT_API_NAME);
    json_kv_text(&w, "protocol", "TCP");
    json_end(&w);
    json_end(&w);
    json_end(&w);
    json_end(&w);
    return finish(&text, CHILD_SERVICE, ret, err);
}

static void write_metric(struct json_writer *w, const struct scaling_target *t)
{
    char value[40];
    int64_t milli = llround(t->target * 1000);

    if (milli % 1000 == 0)
        (void)snprintf(value, sizeof(value), "%lld", (long long)(milli / 1000));
    else
        (void)snprintf(value, sizeof(value), "%lldm", (long long)milli);
    json_obj(w);
    json_kv_text(w, "type", "Pods");
    json_key(w, "pods");
    json_obj(w);
    json_key(w, "metric");
    json_obj(w);
    json_kv_text(w, "name", scale_metric_name(t->metric));
    json_end(w);
    json_key(w, "target");
    json_obj(w);
    json_kv_text(w, "type", "AverageValue");
    json_kv_text(w, "averageValue", value);
    json_end(w);
    json_end(w);
    json_end(w);
}

static void write_behavior(struct json_writer *w, const struct inference_service *s, bool hold_down)
{
    int64_t window =
            s->scaling.scale_down_after == UNSET ? SCALE_DOWN_AFTER : s->scaling.scale_down_after;

    json_key(w, "behavior");
    json_obj(w);
    json_key(w, "scaleUp");
    json_raw(w, "{\"stabilizationWindowSeconds\":0,\"selectPolicy\":\"Max\",\"policies\":["
                "{\"type\":\"Percent\",\"value\":100,\"periodSeconds\":15},"
                "{\"type\":\"Pods\",\"value\":4,\"periodSeconds\":15}]}");
    json_key(w, "scaleDown");
    json_obj(w);
    json_kv_i64(w, "stabilizationWindowSeconds", window);
    json_kv_text(w, "selectPolicy", hold_down ? "Disabled" : "Max");
    json_key(w, "policies");
    json_raw(w, "[{\"type\":\"Percent\",\"value\":100,\"periodSeconds\":15}]");
    json_end(w);
    json_end(w);
}

int child_scaler(const struct inference_service *s, bool hold_down, cJSON **ret, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    struct json_writer w = json_writer_start(&text);
    struct scaling_target targets[SCALING_METRICS_MAX];
    size_t n = inference_service_targets(s, targets);

    write_head(&w, s, "autoscaling/v2", CHILD_SCALER, s->name);
    json_key(&w, "spec");
    json_obj(&w);
    json_key(&w, "scaleTargetRef");
    json_obj(&w);
    json_kv_text(&w, "apiVersion", API_GROUP_VERSION);
    json_kv_text(&w, "kind", API_KIND);
    json_kv_text(&w, "name", s->name);
    json_end(&w);
    json_kv_i64(&w, "minReplicas", s->scaling.min);
    json_kv_i64(&w, "maxReplicas", s->scaling.max);
    json_key(&w, "metrics");
    json_arr(&w);
    for (size_t i = 0; i < n; i++)
        write_metric(&w, &targets[i]);
    json_end(&w);
    write_behavior(&w, s, hold_down);
    json_end(&w);
    json_end(&w);
    return finish(&text, CHILD_SCALER, ret, err);
}
