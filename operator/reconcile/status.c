/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c - what a service tells about itself.
 *
 * Everything here is computed from the snapshot anew each time and compared with the status that
 * stands: only a difference is written, so a steady service costs no writes, and a status that
 * somebody spoilt comes back.  For the same reason nothing here moves by itself: no time but that
 * of a transition, no queue length, progress in steps of ten.
 *
 * The conditions, most general first: Ready (requests are answered, by the template asked for),
 * Progressing, ModelReady, ScalingActive, Degraded, UpgradeAvailable.  Each is always there.
 */
#include "operator/reconcile/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "operator/api/names.h"
#include "operator/reconcile/tally.h"

enum { BODY_MAX = 256 << 10 };

enum condition_index {
    READY,
    PROGRESSING,
    MODEL_READY,
    SCALING_ACTIVE,
    DEGRADED,
    UPGRADE_AVAILABLE,
    CONDITION_COUNT,
};

struct draft {
    const struct inference_service *spec;
    const struct observed *seen;
    struct tally tally;
    struct condition conditions[CONDITION_COUNT];
    int64_t replicas, ready_replicas;
    const char *old_phase;
    int64_t desired;
    const char *scale_reason, *scale_time; /* time NULL: never scaled */
    char now[CLOCK_TEXT_BYTES];
    bool rolling;
};

static const cJSON *old_status(const struct draft *d)
{
    return json_get(d->seen->service, "status");
}

static const char *phase_name(enum load_phase p)
{
    static const char *const names[] = {
            [LOAD_UNKNOWN] = "Pending", [LOAD_DOWNLOADING] = "Downloading",
            [LOAD_LOADING] = "Loading", [LOAD_READY] = "Ready",
            [LOAD_FAILED] = "Failed",
    };
    return names[p];
}

/* The Deployment's own trouble: quota, pod security, a webhook.  The text starts with the name of
 * a pod that was never made and differs each time; it is cut. */
static void judge_deployment(const cJSON *deployment, struct pod_cause *cause)
{
    const cJSON *c = condition_find(json_path(deployment, "status.conditions"), "ReplicaFailure");
    const char *message = json_str(c, "message", ""), *cut;

    if (strcmp(json_str(c, "status", ""), "True") != 0)
        return;
    cut = strncmp(message, "pods \"", 6) == 0 ? strstr(message, "\" ") : NULL;
    (void)snprintf(cause->reason, sizeof(cause->reason), "FailedCreate");
    (void)snprintf(cause->message, sizeof(cause->message), "no pod can be made: %.500s",
                   cut ? cut + 2 : message);
}

static const char *foreign_kinds(unsigned foreign, char *out, size_t size)
{
    size_t len = 0;

    out[0] = '\0';
    for (unsigned c = 0; c < CHILD_COUNT; c++) {
        int n = foreign >> c & 1 ? snprintf(out + len, size - len, "%s%s", len ? ", " : "",
                                            child_kind((enum child)c))
                                 : 0;

        if (n > 0 && (size_t)n < size - len)
            len += (size_t)n;
    }
    return out;
}

/* What NVIDIA's catalogue of Xids advises, in three steps of severity. */
static const char *xid_remedy(int xid)
{
    static const int program[] = {13, 31, 43, 45, 68}, reset[] = {48, 63, 64, 94, 95};

    for (size_t i = 0; i < sizeof(program) / sizeof(program[0]); i++)
        if (program[i] == xid)
            return "a program's fault rather than the GPU's; delete the pod to start anew, and "
                   "report it if it comes back";
    for (size_t i = 0; i < sizeof(reset) / sizeof(reset[0]); i++)
        if (reset[i] == xid)
            return "memory of the GPU failed; delete the pod, and drain the node and reset the "
                   "GPU if it comes back";
    return "cordon the node, delete the pod, and restart the node or have the GPU looked at";
}

static void judge_degraded(struct draft *d)
{
    struct condition *c = &d->conditions[DEGRADED];
    const struct observed *seen = d->seen;
    char kinds[120];

    if (d->tally.cause.reason[0] == '\0')
        judge_deployment(seen->children[CHILD_DEPLOYMENT], &d->tally.cause);
    if (seen->foreign)
        condition_set(c, CONDITION_TRUE, "ChildConflict",
                      "an object named \"%s\" that is not ours is in the way (%s); rename the "
                      "service or remove it",
                      d->spec->name, foreign_kinds(seen->foreign, kinds, sizeof(kinds)));
    else if (seen->trouble[0])
        condition_set(c, CONDITION_TRUE, seen->trouble_reason, "%s", seen->trouble);
    else if (d->tally.xid && !d->tally.failing)
        condition_set(c, CONDITION_TRUE, "GPUError",
                      "%s of pod \"%s\" on node \"%s\" reported Xid %d: %s", d->tally.xid_gpu,
                      d->tally.xid_pod, d->tally.xid_node, d->tally.xid, xid_remedy(d->tally.xid));
    else if (d->tally.cause.reason[0])
        condition_set(c, CONDITION_TRUE, d->tally.cause.reason, "%s", d->tally.cause.message);
    else
        condition_set(c, CONDITION_FALSE, "AsExpected", "nothing is wrong");
}

static void judge_model(struct draft *d)
{
    struct condition *c = &d->conditions[MODEL_READY];
    const struct tally *t = &d->tally;

    if (t->serving)
        condition_set(c, CONDITION_TRUE, "Loaded", "the model is loaded");
    else if (t->failing && !t->loading)
        condition_set(c, CONDITION_FALSE, t->cause.reason, "%s", t->cause.message);
    else if (t->loading && t->phase != LOAD_UNKNOWN)
        condition_set(c, CONDITION_FALSE, phase_name(t->phase), "%d%% of the model is in place",
                      t->percent);
    else if (d->spec->replicas == 0)
        condition_set(c, CONDITION_FALSE, "NoReplicas", "no replica is wanted");
    else
        condition_set(c, CONDITION_UNKNOWN, "Pending", "no pod has reported yet");
}

static void judge_ready(struct draft *d)
{
    struct condition *c = &d->conditions[READY];
    const struct condition *model = &d->conditions[MODEL_READY];
    const struct condition *degraded = &d->conditions[DEGRADED];
    const struct tally *t = &d->tally;

    if (d->seen->foreign)
        condition_set(c, CONDITION_FALSE, degraded->reason, "%s", degraded->message);
    else if (d->spec->replicas == 0)
        condition_set(c, CONDITION_FALSE, "NoReplicas", "no replica is wanted");
    else if (t->serving && d->rolling)
        condition_set(c, CONDITION_FALSE, "RolloutInProgress",
                      "pods of the former template still serve while new ones start%s%.400s",
                      t->cause.reason[0] ? "; " : "", t->cause.message);
    else if (t->serving)
        condition_set(c, CONDITION_TRUE, "Serving", "requests are answered");
    else if (degraded->status == CONDITION_TRUE)
        condition_set(c, CONDITION_FALSE, degraded->reason, "%s", degraded->message);
    else
        condition_set(c, CONDITION_FALSE, model->reason, "%s", model->message);
}

static void judge_progress(struct draft *d)
{
    struct condition *c = &d->conditions[PROGRESSING];
    const cJSON *deployment = d->seen->children[CHILD_DEPLOYMENT];
    const cJSON *p = condition_find(json_path(deployment, "status.conditions"), "Progressing");

    if (strcmp(json_str(p, "reason", ""), "ProgressDeadlineExceeded") == 0)
        condition_set(c, CONDITION_FALSE, "DeadlineExceeded",
                      "the pods did not become ready within the start-up budget "
                      "(spec.probes.startup.timeout)");
    else if (d->rolling)
        condition_set(c, CONDITION_TRUE, "RollingOut", "pods of a new template replace the old");
    else if (d->tally.loading)
        condition_set(c, CONDITION_TRUE, "Loading", "pods are starting");
    else if (d->replicas != d->spec->replicas)
        condition_set(c, CONDITION_TRUE, "Scaling", "the number of pods is changing");
    else if (d->tally.failing)
        condition_set(c, CONDITION_FALSE, "Failing", "pods fail; see Degraded");
    else
        condition_set(c, CONDITION_FALSE, "Stable", "all is as asked for");
}

static void judge_scaling(struct draft *d)
{
    struct condition *c = &d->conditions[SCALING_ACTIVE];
    const cJSON *hpa = json_path(d->seen->children[CHILD_SCALER], "status.conditions");
    const cJSON *active = condition_find(hpa, "ScalingActive");

    if (!d->spec->scaling.enabled)
        condition_set(c, CONDITION_FALSE, "NotConfigured",
                      "replicas change by kubectl scale; give spec.scaling to follow the queue");
    else if (d->seen->metrics_api == METRICS_API_CONFLICT)
        condition_set(c, CONDITION_FALSE, "MetricsAPIConflict",
                      "custom.metrics.k8s.io is served by %s; replicas stay as they are",
                      d->seen->metrics_api_owner);
    else if (d->seen->foreign >> CHILD_SCALER & 1)
        condition_set(c, CONDITION_FALSE, "ChildConflict",
                      "a HorizontalPodAutoscaler \"%s\" that is not ours is in the way",
                      d->spec->name);
    else if (!active)
        condition_set(c, CONDITION_UNKNOWN, "Starting", "the autoscaler has not reported yet");
    else if (strcmp(json_str(active, "status", ""), "True") == 0)
        condition_set(c, CONDITION_TRUE, "FollowingQueue", "replicas follow the queue");
    else if (d->tally.serving == 0)
        condition_set(c, CONDITION_FALSE, "NoSamples",
                      "no pod serves yet; a pod that loads counts as capacity, not as idle");
    else
        condition_set(c, CONDITION_FALSE, json_str(active, "reason", "Unknown"), "%.500s",
                      json_str(active, "message", ""));
}

/* What the autoscaler wants; the reason is kept from the moment in which the number changed. */
static void judge_decision(struct draft *d)
{
    const cJSON *hpa = json_get(d->seen->children[CHILD_SCALER], "status");
    const cJSON *old = json_get(old_status(d), "scaling");
    int64_t before = json_int(old, "desiredReplicas", -1);

    d->desired = d->spec->replicas;
    if (d->spec->scaling.enabled && d->seen->metrics_api != METRICS_API_CONFLICT)
        d->desired = json_int(hpa, "desiredReplicas", d->spec->replicas);
    if (d->desired == 0 && d->spec->scaling.enabled)
        d->desired = d->spec->replicas; /* the HPA has not decided yet */
    if (before == d->desired) {
        d->scale_reason = json_str(old, "reason", "");
        d->scale_time = json_str(old, "lastScaleTime", NULL);
        return;
    }
    d->scale_reason = d->spec->scaling.enabled ? d->seen->decision.reason : "set by /scale";
    d->scale_time = before < 0 ? NULL : d->now;
}

static void judge_upgrade(struct draft *d, bool available)
{
    struct condition *c = &d->conditions[UPGRADE_AVAILABLE];

    if (available)
        condition_set(c, CONDITION_TRUE, "TemplateDiffers",
                      "this operator would make other pods from the same spec; set the "
                      "annotation " ANNOTATION_REFRESH " to a new value to roll them out");
    else
        condition_set(c, CONDITION_FALSE, "UpToDate", "the pods are what this operator makes");
}

static void judge_refused(struct draft *d, const struct err *refused)
{
    for (int i = 0; i < CONDITION_COUNT; i++)
        condition_set(&d->conditions[i], CONDITION_UNKNOWN, "InvalidSpec",
                      "not judged while the spec is invalid");
    condition_set(&d->conditions[READY], CONDITION_FALSE, "InvalidSpec", "%s", refused->msg);
    condition_set(&d->conditions[DEGRADED], CONDITION_TRUE, "InvalidSpec", "%s", refused->msg);
}

static void judge(struct draft *d, const char *spec_digest, bool upgrade_available)
{
    const cJSON *deployment = json_get(d->seen->children[CHILD_DEPLOYMENT], "status");

    tally_make(d->seen, spec_digest, &d->tally);
    d->replicas = json_int(deployment, "replicas", 0);
    d->ready_replicas = json_int(deployment, "readyReplicas", 0);
    d->rolling = d->tally.old > 0;
    judge_degraded(d);
    judge_model(d);
    judge_ready(d);
    judge_progress(d);
    judge_scaling(d);
    judge_decision(d);
    judge_upgrade(d, upgrade_available);
}

static void write_model(struct json_writer *w, const struct draft *d)
{
    const cJSON *old = json_path(old_status(d), "model.bytesTotal");
    int64_t total = d->tally.bytes_total;

    /* A pod that was not asked yet knows no size; what was known stays. */
    if (total == 0 && cJSON_IsNumber(old))
        total = (int64_t)old->valuedouble;
    json_key(w, "model");
    json_obj(w);
    json_kv_text(w, "phase", phase_name(d->tally.phase));
    json_kv_i64(w, "loadedPercent", d->tally.phase == LOAD_READY ? 100 : d->tally.percent);
    if (total > 0)
        json_kv_i64(w, "bytesTotal", total);
    json_end(w);
}

static void write_counts(struct json_writer *w, const struct draft *d)
{
    char text[400];

    json_kv_i64(w, "replicas", d->replicas);
    json_kv_i64(w, "readyReplicas", d->ready_replicas);
    json_kv_i64(w, "loadingReplicas", (int64_t)d->tally.loading);
    (void)snprintf(text, sizeof(text), "%s=%s", LABEL_SERVICE, d->spec->name);
    json_kv_text(w, "selector", text);
    (void)snprintf(text, sizeof(text), "http://%s.%s.svc:%d", d->spec->name, d->spec->namespace,
                   PORT_API);
    json_kv_text(w, "url", text);
    write_model(w, d);
    json_key(w, "scaling");
    json_obj(w);
    json_kv_i64(w, "desiredReplicas", d->desired);
    json_kv_text(w, "reason", d->scale_reason);
    if (d->scale_time)
        json_kv_text(w, "lastScaleTime", d->scale_time);
    json_end(w);
}

/* With a refused spec the counts stay what they were: nothing was looked at. */
static int write_old_counts(struct json_writer *w, const struct draft *d, struct err *err)
{
    const cJSON *v;

    cJSON_ArrayForEach(v, old_status(d))
    {
        char *text;

        if (strcmp(v->string, "conditions") == 0 || strcmp(v->string, "observedGeneration") == 0)
            continue;
        text = json_print(v);
        if (!text)
            return err_set(err, ERR_NO_MEMORY, "status");
        json_key(w, v->string);
        json_raw(w, text);
        mem_free(text);
    }
    return 0;
}

static int write_status(struct str *out, const struct draft *d, bool refused, struct err *err)
{
    struct json_writer w = json_writer_start(out);
    int r = 0;

    json_obj(&w);
    json_kv_i64(&w, "observedGeneration", d->spec->generation);
    if (refused)
        r = write_old_counts(&w, d, err);
    else
        write_counts(&w, d);
    json_key(&w, "conditions");
    json_arr(&w);
    for (int i = 0; i < CONDITION_COUNT; i++)
        condition_write(&w, &d->conditions[i], d->spec->generation,
                        json_get(old_status(d), "conditions"), d->now);
    json_end(&w);
    json_end(&w);
    return r ? r : str_check(out, "status", err);
}

static void add_event(struct status *s, bool warning, const char *reason, const char *action,
                      const char *note)
{
    if (s->n_events < STATUS_EVENTS_MAX && reason && note)
        s->events[s->n_events++] = (struct status_event){warning, reason, action, note};
}

static bool is_warning(enum condition_index i, const struct condition *c)
{
    if (i == DEGRADED)
        return c->status == CONDITION_TRUE;
    return i == SCALING_ACTIVE && strcmp(c->reason, "MetricsAPIConflict") == 0;
}

/* A first "nothing is wrong" or "not configured" is no news, and one event a cause is enough. */
static bool is_news(const struct draft *d, enum condition_index i, const cJSON *was)
{
    const struct condition *c = &d->conditions[i];

    if (c->status == CONDITION_UNKNOWN ||
        (strcmp(json_str(was, "status", ""), condition_status_name(c->status)) == 0 &&
         strcmp(json_str(was, "reason", ""), c->reason) == 0))
        return false;
    if (i == READY)
        return strcmp(c->reason, d->conditions[DEGRADED].reason) != 0;
    return was || c->status == CONDITION_TRUE || is_warning(i, c);
}

/* One event for each of the conditions people act on, when its status or reason changed. */
static void make_events(const struct draft *d, bool refused, struct arena *mem, struct status *ret)
{
    static const enum condition_index told[] = {READY, SCALING_ACTIVE, DEGRADED};
    const cJSON *old = json_get(old_status(d), "conditions");
    int64_t before = json_path(old_status(d), "scaling.desiredReplicas")
                             ? json_int(json_get(old_status(d), "scaling"), "desiredReplicas", 0)
                             : -1;

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        const struct condition *c = &d->conditions[told[i]];

        if (is_news(d, told[i], condition_find(old, c->type)))
            add_event(ret, is_warning(told[i], c), arena_strdup(mem, c->reason), c->type,
                      arena_strdup(mem, c->message));
    }
    if (refused || before < 0 || before == d->desired)
        return;
    ret->scaled = before < d->desired ? 1 : -1;
    add_event(ret, false, ret->scaled > 0 ? "ScaledUp" : "ScaledDown", "Scale",
              arena_printf(mem, "from %lld to %lld replicas: %s", (long long)before,
                           (long long)d->desired, d->scale_reason));
}

/* The whole patch body around a status. */
static char *wrap_body(const struct draft *d, const struct str *status, struct arena *mem)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    struct json_writer w = json_writer_start(&text);

    json_obj(&w);
    json_kv_text(&w, "apiVersion", API_GROUP_VERSION);
    json_kv_text(&w, "kind", API_KIND);
    json_key(&w, "metadata");
    json_obj(&w);
    json_kv_text(&w, "name", d->spec->name);
    json_kv_text(&w, "namespace", d->spec->namespace);
    json_end(&w);
    json_key(&w, "status");
    json_raw(&w, str_text(status));
    json_end(&w);
    return text.failed ? NULL : arena_strdup(mem, str_text(&text));
}

static void name_conditions(struct draft *d)
{
    static const char *const types[] = {
            [READY] = "Ready",
            [PROGRESSING] = "Progressing",
            [MODEL_READY] = "ModelReady",
            [SCALING_ACTIVE] = "ScalingActive",
            [DEGRADED] = "Degraded",
            [UPGRADE_AVAILABLE] = "UpgradeAvailable",
    };

    for (int i = 0; i < CONDITION_COUNT; i++)
        d->conditions[i].type = types[i];
}

int status_make(const struct inference_service *spec, const struct err *refused,
                const struct observed *seen, const char *spec_digest, bool upgrade_available,
                struct arena *mem, struct status *ret, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(BODY_MAX);
    CLEANUP(json_freep) cJSON *wanted = NULL;
    struct draft *d = arena_alloc(mem, sizeof(*d));
    int r;

    *ret = (struct status){0};
    if (!d)
        return err_set(err, ERR_NO_MEMORY, "status");
    d->spec = spec;
    d->seen = seen;
    clock_rfc3339(seen->now_wall_ms, d->now);
    name_conditions(d);
    if (refused)
        judge_refused(d, refused);
    else
        judge(d, spec_digest, upgrade_available);
    r = write_status(&text, d, refused != NULL, err);
    if (r == 0)
        r = json_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &wanted, err);
    if (r || json_equal(wanted, old_status(d)))
        return r;
    ret->body = wrap_body(d, &text, mem);
    if (!ret->body)
        return err_set(err, ERR_NO_MEMORY, "status");
    make_events(d, refused != NULL, mem, ret);
    return 0;
}
