/* SPDX-License-Identifier: Apache-2.0
 *
 * template.c - the pods of a service.
 *
 * Rendered once per spec and then kept in a ControllerRevision (plan.c): what this file renders
 * tomorrow must not restart the pods of today.  So every default of a field that reaches the
 * container stands here, next to its use, and none in the schema.
 *
 * The pod passes the "restricted" pod security level: non-root, nothing writable but two volumes,
 * no capabilities, the default seccomp profile, no API token.  The startup probe holds the other
 * two back while the model loads; liveness asks the metrics port, which answers under any load.
 */
#include "operator/reconcile/template.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/str.h"
#include "operator/api/names.h"
#include "operator/reconcile/merge.h"

#define CACHE_DIR "/var/cache/penstock"
#define MODEL_DIR "/var/lib/penstock/model"

enum {
    TEXT_MAX = 1 << 20,
    USER_ID = 65532, /* as the images are built; numeric, so that runAsNonRoot can be checked */
    STARTUP_BUDGET = 1800,
    STARTUP_PERIOD = 2,
    DRAIN_TIMEOUT = 60,
    DRAIN_GRACE = 5,    /* until every node knows that the endpoint is gone */
    GRACE_RESERVE = 10, /* from the end of the drain to SIGKILL */
};

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value == UNSET ? fallback : value;
}

int64_t template_startup_budget(const struct inference_service *s)
{
    int64_t period = or_default(s->startup.period, STARTUP_PERIOD);
    int64_t delay = or_default(s->startup.initial_delay, 0);

    if (s->startup.failures != UNSET)
        return delay + period * s->startup.failures;
    return delay + or_default(s->startup_budget, STARTUP_BUDGET);
}

int template_spec_digest(const struct inference_service *s, char ret[DIGEST_BYTES], struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(TEXT_MAX);
    CLEANUP(json_freep) cJSON *spec = cJSON_Duplicate(s->spec, true);
    int r;

    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "spec");
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "replicas");
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "scaling");
    json_canonical(spec, &text);
    str_adds(&text, s->refresh ? s->refresh : "");
    r = str_check(&text, "spec", err);
    return r ? r : digest_bytes(str_text(&text), text.len, ret, err);
}

static void arg(struct json_writer *w, const char *flag, const char *value)
{
    CLEANUP(str_release) struct str text = STR_INIT(8192);

    if (!value)
        return;
    str_addf(&text, "--%s=%s", flag, value);
    if (text.failed)
        w->out->failed = true;
    json_text(w, str_text(&text));
}

static void arg_number(struct json_writer *w, const char *flag, int64_t value)
{
    CLEANUP(str_release) struct str text = STR_INIT(128);

    if (value == UNSET)
        return;
    str_addf(&text, "--%s=%lld", flag, (long long)value);
    json_text(w, str_text(&text));
}

static void write_args(struct json_writer *w, const struct inference_service *s)
{
    CLEANUP(str_release) struct str model = STR_INIT(8192);
    const cJSON *extra;

    if (s->model.kind == SOURCE_PVC)
        str_addf(&model, "%s/%s", MODEL_DIR, s->model.path);
    else
        str_addf(&model, "%s%s%s", s->model.source, s->model.revision ? "@" : "",
                 s->model.revision ? s->model.revision : "");
    json_key(w, "args");
    json_arr(w);
    json_text(w, "serve");
    arg(w, "model", str_text(&model));
    arg(w, "served-model-name", s->model.served_name);
    arg(w, "host", "0.0.0.0");
    arg_number(w, "port", PORT_API);
    arg(w, "metrics-host", "0.0.0.0");
    arg_number(w, "metrics-port", PORT_METRICS);
    arg(w, "device", s->runtime.device);
    if (s->runtime.tensor > 1)
        arg_number(w, "tensor-parallel-size", s->runtime.tensor);
    arg_number(w, "max-model-len", s->model.max_length);
    arg_number(w, "max-num-seqs", inference_service_max_sequences(s));
    arg_number(w, "max-num-batched-tokens", s->runtime.max_batch_tokens);
    arg_number(w, "max-queue-requests", s->runtime.queue_requests);
    arg_number(w, "max-queue-tokens", s->runtime.queue_tokens);
    if (s->runtime.kv_memory)
        arg_number(w, "kv-cache-memory", (int64_t)s->runtime.kv_memory_bytes);
    if (s->model.kind != SOURCE_PVC)
        arg(w, "cache-dir", CACHE_DIR);
    json_text(w, "--drain-grace=5s");
    _Static_assert(DRAIN_GRACE == 5, "the text above says it, too");
    arg_number(w, "drain-timeout", or_default(s->drain_timeout, DRAIN_TIMEOUT)); /* seconds */
    cJSON_ArrayForEach(extra, s->runtime.args) json_text(w, extra->valuestring);
    json_end(w);
}

static void write_env(struct json_writer *w, const struct inference_service *s)
{
    if (!s->model.secret)
        return;
    json_key(w, "env");
    json_arr(w);
    json_obj(w);
    json_kv_text(w, "name", "HF_TOKEN");
    json_key(w, "valueFrom");
    json_obj(w);
    json_key(w, "secretKeyRef");
    json_obj(w);
    json_kv_text(w, "name", s->model.secret);
    json_kv_text(w, "key", "token");
    json_end(w);
    json_end(w);
    json_end(w);
    json_end(w);
}

static void write_port(struct json_writer *w, const char *name, int port)
{
    json_obj(w);
    json_kv_text(w, "name", name);
    json_kv_i64(w, "containerPort", port);
    json_kv_text(w, "protocol", "TCP");
    json_end(w);
}

/* p over the defaults d. */
static void write_probe(struct json_writer *w, const char *name, const char *path,
                        const struct probe_spec *p, struct probe_spec d)
{
    json_key(w, name);
    json_obj(w);
    json_key(w, "httpGet");
    json_obj(w);
    json_kv_text(w, "path", path);
    json_kv_text(w, "port", PORT_METRICS_NAME);
    json_end(w);
    if (p->initial_delay != UNSET)
        json_kv_i64(w, "initialDelaySeconds", p->initial_delay);
    json_kv_i64(w, "periodSeconds", or_default(p->period, d.period));
    json_kv_i64(w, "timeoutSeconds", or_default(p->timeout, d.timeout));
    json_kv_i64(w, "failureThreshold", or_default(p->failures, d.failures));
    if (p->successes != UNSET)
        json_kv_i64(w, "successThreshold", p->successes);
    json_end(w);
}

static void write_probes(struct json_writer *w, const struct inference_service *s)
{
    int64_t period = or_default(s->startup.period, STARTUP_PERIOD);
    int64_t budget = or_default(s->startup_budget, STARTUP_BUDGET);
    struct probe_spec startup = {
            .period = period, .timeout = 2, .failures = (budget + period - 1) / period};
    struct probe_spec readiness = {.period = 2, .timeout = 2, .failures = 2};
    struct probe_spec liveness = {.period = 10, .timeout = 5, .failures = 3};

    write_probe(w, "startupProbe", "/readyz", &s->startup, startup);
    write_probe(w, "readinessProbe", "/readyz", &s->readiness, readiness);
    write_probe(w, "livenessProbe", "/livez", &s->liveness, liveness);
}

static void write_mount(struct json_writer *w, const char *name, const char *path, bool read_only)
{
    json_obj(w);
    json_kv_text(w, "name", name);
    json_kv_text(w, "mountPath", path);
    if (read_only)
        json_kv_bool(w, "readOnly", true);
    json_end(w);
}

static void write_container_security(struct json_writer *w)
{
    json_key(w, "securityContext");
    json_raw(w, "{\"allowPrivilegeEscalation\":false,\"readOnlyRootFilesystem\":true,"
                "\"runAsNonRoot\":true,\"capabilities\":{\"drop\":[\"ALL\"]}}");
}

/* GPUs are limits alone; Kubernetes copies them to the requests.  -1: no memory */
static int add_gpus(cJSON *resources, const struct inference_service *s)
{
    char count[24];
    cJSON *limits = cJSON_GetObjectItemCaseSensitive(resources, "limits");

    if (inference_service_gpus(s) == 0)
        return 0;
    if (!cJSON_IsObject(limits)) {
        cJSON_DeleteItemFromObjectCaseSensitive(resources, "limits");
        limits = cJSON_AddObjectToObject(resources, "limits");
    }
    (void)snprintf(count, sizeof(count), "%lld", (long long)inference_service_gpus(s));
    return limits && cJSON_AddStringToObject(limits, inference_service_gpu_resource(s), count) ? 0
                                                                                               : -1;
}

static int write_resources(struct json_writer *w, const struct inference_service *s,
                           struct err *err)
{
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(json_freep) cJSON *resources = NULL;

    if (!s->resources && inference_service_gpus(s) == 0)
        return 0;
    resources = s->resources ? cJSON_Duplicate(s->resources, true) : cJSON_CreateObject();
    if (!resources || add_gpus(resources, s))
        return err_set(err, ERR_NO_MEMORY, "resources");
    text = json_print(resources);
    if (!text)
        return err_set(err, ERR_NO_MEMORY, "resources");
    json_key(w, "resources");
    json_raw(w, text);
    return 0;
}

static const char *default_image(const struct inference_service *s,
                                 const struct template_defaults *d)
{
    return inference_service_gpus(s) ? d->cuda_image : d->image;
}

/* NCCL's ranks exchange through shared memory; a container's own /dev/shm of 64 MiB is too small.
 */
static bool wants_shm(const struct inference_service *s)
{
    return inference_service_gpus(s) > 1;
}

static int write_container(struct json_writer *w, const struct inference_service *s,
                           const struct template_defaults *d, struct err *err)
{
    int r;

    json_obj(w);
    json_kv_text(w, "name", RUNTIME_CONTAINER);
    json_kv_text(w, "image", s->runtime.image ? s->runtime.image : default_image(s, d));
    if (d->image_pull_policy)
        json_kv_text(w, "imagePullPolicy", d->image_pull_policy);
    json_key(w, "command");
    json_raw(w, "[\"penstock-runtime\"]");
    write_args(w, s);
    write_env(w, s);
    json_key(w, "ports");
    json_arr(w);
    write_port(w, PORT_API_NAME, PORT_API);
    write_port(w, PORT_METRICS_NAME, PORT_METRICS);
    json_end(w);
    write_probes(w, s);
    r = write_resources(w, s, err);
    write_container_security(w);
    json_kv_text(w, "terminationMessagePolicy", "FallbackToLogsOnError");
    json_key(w, "volumeMounts");
    json_arr(w);
    write_mount(w, "tmp", "/tmp", false);
    if (s->model.kind == SOURCE_PVC)
        write_mount(w, "model", MODEL_DIR, true);
    else
        write_mount(w, "cache", CACHE_DIR, false);
    if (wants_shm(s))
        write_mount(w, "shm", "/dev/shm", false);
    json_end(w);
    json_end(w);
    return r;
}

static void write_claim(struct json_writer *w, const char *claim, bool read_only)
{
    json_key(w, "persistentVolumeClaim");
    json_obj(w);
    json_kv_text(w, "claimName", claim);
    if (read_only)
        json_kv_bool(w, "readOnly", true);
    json_end(w);
}

static void write_volumes(struct json_writer *w, const struct inference_service *s)
{
    json_key(w, "volumes");
    json_arr(w);
    json_raw(w, "{\"name\":\"tmp\",\"emptyDir\":{}}");
    if (wants_shm(s))
        json_raw(w, "{\"name\":\"shm\",\"emptyDir\":{\"medium\":\"Memory\","
                    "\"sizeLimit\":\"1Gi\"}}");
    json_obj(w);
    if (s->model.kind == SOURCE_PVC) {
        json_kv_text(w, "name", "model");
        write_claim(w, s->model.claim, true);
    } else {
        json_kv_text(w, "name", "cache");
        if (s->model.cache_claim) {
            write_claim(w, s->model.cache_claim, false);
        } else {
            json_key(w, "emptyDir");
            json_raw(w, "{}");
        }
    }
    json_end(w);
    json_end(w);
}

static void write_metadata(struct json_writer *w, const struct inference_service *s,
                           const char *spec_digest)
{
    json_key(w, "metadata");
    json_obj(w);
    json_key(w, "labels");
    json_obj(w);
    json_kv_text(w, "app.kubernetes.io/name", "penstock-runtime");
    json_kv_text(w, "app.kubernetes.io/instance", s->name);
    json_kv_text(w, "app.kubernetes.io/component", "runtime");
    json_kv_text(w, "app.kubernetes.io/managed-by", "penstock");
    json_kv_text(w, LABEL_SERVICE, s->name);
    json_end(w);
    json_key(w, "annotations");
    json_obj(w);
    json_kv_text(w, ANNOTATION_TEMPLATE, spec_digest);
    json_kv_text(w, "kubectl.kubernetes.io/default-container", RUNTIME_CONTAINER);
    json_end(w);
    json_end(w);
}

static int write_template(struct json_writer *w, const struct inference_service *s,
                          const struct template_defaults *d, const char *spec_digest,
                          struct err *err)
{
    int64_t drain = or_default(s->drain_timeout, DRAIN_TIMEOUT);
    int r;

    json_obj(w);
    write_metadata(w, s, spec_digest);
    json_key(w, "spec");
    json_obj(w);
    json_kv_bool(w, "automountServiceAccountToken", false);
    json_kv_bool(w, "enableServiceLinks", false);
    json_kv_i64(w, "terminationGracePeriodSeconds", DRAIN_GRACE + drain + GRACE_RESERVE);
    if (inference_service_gpus(s) && d->gpu_runtime_class)
        json_kv_text(w, "runtimeClassName", d->gpu_runtime_class);
    json_key(w, "securityContext");
    json_obj(w);
    json_kv_bool(w, "runAsNonRoot", true);
    json_kv_i64(w, "runAsUser", USER_ID);
    json_kv_i64(w, "runAsGroup", USER_ID);
    json_kv_i64(w, "fsGroup", USER_ID);
    /* Without it every file of a large model volume is chowned at each start. */
    json_kv_text(w, "fsGroupChangePolicy", "OnRootMismatch");
    json_key(w, "seccompProfile");
    json_raw(w, "{\"type\":\"RuntimeDefault\"}");
    json_end(w);
    json_key(w, "containers");
    json_arr(w);
    r = write_container(w, s, d, err);
    json_end(w);
    write_volumes(w, s);
    json_end(w);
    json_end(w);
    return r;
}

/* What a podTemplate cannot take from us: the selector's label and the mark of the revision. */
static int keep_marks(cJSON *template, const char *name, const char *spec_digest, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(4096);
    CLEANUP(json_freep) cJSON *marks = NULL;
    struct json_writer w = json_writer_start(&text);
    int r;

    json_obj(&w);
    json_key(&w, "metadata");
    json_obj(&w);
    json_key(&w, "labels");
    json_obj(&w);
    json_kv_text(&w, LABEL_SERVICE, name);
    json_end(&w);
    json_key(&w, "annotations");
    json_obj(&w);
    json_kv_text(&w, ANNOTATION_TEMPLATE, spec_digest);
    json_end(&w);
    json_end(&w);
    json_end(&w);
    r = str_check(&text, "pod marks", err);
    if (r == 0)
        r = json_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &marks, err);
    return r ? r : merge_over(template, marks, err);
}

/* Nodes with GPUs keep other pods away by a taint.  A podTemplate's tolerations replace a list of
 * ours, so this one is added to whatever the list has become. */
static int tolerate_gpu_nodes(cJSON *template, struct err *err)
{
    cJSON *spec = cJSON_GetObjectItemCaseSensitive(template, "spec");
    cJSON *list = cJSON_GetObjectItemCaseSensitive(spec, "tolerations"), *t;

    if (!cJSON_IsObject(spec) || (list && !cJSON_IsArray(list)))
        return 0; /* the API server will say what is wrong with it */
    cJSON_ArrayForEach(t, list)
    {
        if (strcmp(json_str(t, "key", GPU_RESOURCE), GPU_RESOURCE) == 0)
            return 0;
    }
    if (!list)
        list = cJSON_AddArrayToObject(spec, "tolerations");
    t = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(list, t)) {
        cJSON_Delete(t);
        return err_set(err, ERR_NO_MEMORY, "tolerations");
    }
    if (!cJSON_AddStringToObject(t, "key", GPU_RESOURCE) ||
        !cJSON_AddStringToObject(t, "operator", "Exists") ||
        !cJSON_AddStringToObject(t, "effect", "NoSchedule"))
        return err_set(err, ERR_NO_MEMORY, "tolerations");
    return 0;
}

int template_render(const struct inference_service *s, const struct template_defaults *defaults,
                    const char *spec_digest, cJSON **ret, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(TEXT_MAX);
    CLEANUP(json_freep) cJSON *template = NULL;
    struct json_writer w = json_writer_start(&text);
    int r = write_template(&w, s, defaults, spec_digest, err);

    if (r == 0)
        r = str_check(&text, "pod template", err);
    if (r == 0)
        r = json_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &template, err);
    if (r == 0 && s->pod_template)
        r = merge_over(template, s->pod_template, err);
    if (r == 0 && inference_service_gpus(s))
        r = tolerate_gpu_nodes(template, err);
    if (r == 0)
        r = keep_marks(template, s->name, spec_digest, err);
    if (r)
        return r;
    *ret = TAKE_PTR(template);
    return 0;
}
