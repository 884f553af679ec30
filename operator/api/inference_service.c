/* SPDX-License-Identifier: Apache-2.0
 *
 * inference_service.c - spec to struct, strictly.
 *
 * One table says which paths exist, of which type and in which range; the walk goes over what the
 * user wrote, not over the table, so a field nobody knows is an error that names it rather than
 * something silently ignored.  Parts that other objects own the meaning of (resources,
 * podTemplate) are borrowed whole.
 */
#include "operator/api/inference_service.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "operator/api/names.h"
#include "operator/api/units.h"

enum field_type { FIELD_TEXT, FIELD_INT, FIELD_DURATION, FIELD_WHOLE };

struct field {
    const char *path;
    enum field_type type;
    size_t offset;
    int64_t min, max; /* FIELD_INT, and FIELD_DURATION in seconds */
};

#define AT(member) offsetof(struct inference_service, member)
#define PROBE_FIELDS(prefix, member)                                                          \
    {"probes." prefix ".initialDelaySeconds", FIELD_INT, AT(member.initial_delay), 0, 86400}, \
            {"probes." prefix ".periodSeconds", FIELD_INT, AT(member.period), 1, 3600},       \
            {"probes." prefix ".timeoutSeconds", FIELD_INT, AT(member.timeout), 1, 600},      \
    {                                                                                         \
        "probes." prefix ".failureThreshold", FIELD_INT, AT(member.failures), 1, 100000       \
    }

enum { DAY = 86400, MAX_SEQUENCES = 64, TENSOR_MAX = 8 };

static const struct field FIELDS[] = {
        {"replicas", FIELD_INT, AT(replicas), 0, 10000},
        {"model.source", FIELD_TEXT, AT(model.source), 0, 0},
        {"model.revision", FIELD_TEXT, AT(model.revision), 0, 0},
        {"model.servedName", FIELD_TEXT, AT(model.served_name), 0, 0},
        {"model.secretRef.name", FIELD_TEXT, AT(model.secret), 0, 0},
        {"model.cache.claimName", FIELD_TEXT, AT(model.cache_claim), 0, 0},
        {"model.maxLength", FIELD_INT, AT(model.max_length), 1, 1 << 20},
        {"runtime.image", FIELD_TEXT, AT(runtime.image), 0, 0},
        {"runtime.device", FIELD_TEXT, AT(runtime.device), 0, 0},
        {"runtime.gpuResource", FIELD_TEXT, AT(runtime.gpu_resource), 0, 0},
        {"runtime.parallel.tensor", FIELD_INT, AT(runtime.tensor), 1, TENSOR_MAX},
        {"runtime.batching.maxSequences", FIELD_INT, AT(runtime.max_sequences), 1, 1024},
        {"runtime.batching.maxBatchTokens", FIELD_INT, AT(runtime.max_batch_tokens), 16, 65536},
        {"runtime.queue.maxRequests", FIELD_INT, AT(runtime.queue_requests), 1, 65536},
        {"runtime.queue.maxTokens", FIELD_INT, AT(runtime.queue_tokens), 1, 1000000000},
        {"runtime.kvCache.memory", FIELD_TEXT, AT(runtime.kv_memory), 0, 0},
        {"runtime.args", FIELD_WHOLE, AT(runtime.args), 0, 0},
        {"resources", FIELD_WHOLE, AT(resources), 0, 0},
        {"scaling.minReplicas", FIELD_INT, AT(scaling.min), 1, 10000},
        {"scaling.maxReplicas", FIELD_INT, AT(scaling.max), 1, 10000},
        {"scaling.scaleDownAfter", FIELD_DURATION, AT(scaling.scale_down_after), 0, 3600},
        {"rollout.drainTimeout", FIELD_DURATION, AT(drain_timeout), 0, DAY},
        {"probes.startup.timeout", FIELD_DURATION, AT(startup_budget), 1, 7 * DAY},
        PROBE_FIELDS("startup", startup),
        PROBE_FIELDS("readiness", readiness),
        {"probes.readiness.successThreshold", FIELD_INT, AT(readiness.successes), 1, 100},
        PROBE_FIELDS("liveness", liveness),
        {"podTemplate", FIELD_WHOLE, AT(pod_template), 0, 0},
};

static const char *const METRIC_NAMES[] = {
        [SCALE_QUEUE_LENGTH] = "queueLength",
        [SCALE_REQUESTS] = "requests",
        [SCALE_GPU_UTILIZATION] = "gpuUtilization",
        [SCALE_GPU_MEMORY] = "gpuMemory",
};

const char *scale_metric_name(enum scale_metric m)
{
    return METRIC_NAMES[m];
}

int scale_metric_parse(const char *name, enum scale_metric *ret)
{
    for (unsigned i = 0; i < SCALE_METRIC_COUNT; i++) {
        if (strcmp(METRIC_NAMES[i], name) == 0) {
            *ret = (enum scale_metric)i;
            return 0;
        }
    }
    return -1;
}

bool scale_metric_is_gpu(enum scale_metric m)
{
    return m == SCALE_GPU_UTILIZATION || m == SCALE_GPU_MEMORY;
}

bool scale_metric_value(enum scale_metric m, const struct pod_signal *signal, double *ret)
{
    const struct gpu_figure *f =
            m == SCALE_GPU_UTILIZATION ? &signal->gpu_utilization : &signal->gpu_memory;

    if (scale_metric_is_gpu(m))
        *ret = f->percent;
    else
        *ret = signal->waiting + (m == SCALE_REQUESTS ? signal->running : 0);
    return !scale_metric_is_gpu(m) || f->known;
}

static void *member(struct inference_service *s, const struct field *f)
{
    return (char *)s + f->offset;
}

static int decode_int(const struct field *f, const cJSON *v, int64_t *ret, struct err *err)
{
    double d = cJSON_IsNumber(v) ? v->valuedouble : NAN;

    if (!(d >= (double)f->min && d <= (double)f->max) || d != floor(d))
        return err_set(err, ERR_INVALID, "spec.%s: want a whole number from %lld to %lld", f->path,
                       (long long)f->min, (long long)f->max);
    *ret = (int64_t)d;
    return 0;
}

static int decode_field(const struct field *f, const cJSON *v, struct inference_service *s,
                        struct err *err)
{
    switch (f->type) {
    case FIELD_WHOLE:
        *(const cJSON **)member(s, f) = v;
        return 0;
    case FIELD_INT:
        return decode_int(f, v, member(s, f), err);
    case FIELD_TEXT:
        if (!cJSON_IsString(v) || v->valuestring[0] == '\0')
            return err_set(err, ERR_INVALID, "spec.%s: want a text that is not empty", f->path);
        *(const char **)member(s, f) = v->valuestring;
        return 0;
    case FIELD_DURATION:
        break;
    }
    if (!cJSON_IsString(v))
        return err_set(err, ERR_INVALID, "spec.%s: want a duration like \"90s\"", f->path);
    if (parse_duration(v->valuestring, f->max, member(s, f), err))
        return err_wrap(err, "spec.%s", f->path);
    if (*(int64_t *)member(s, f) < f->min)
        return err_set(err, ERR_INVALID, "spec.%s: want at least %llds", f->path,
                       (long long)f->min);
    return 0;
}

static int decode_object(const cJSON *obj, const char *prefix, struct inference_service *s,
                         struct err *err);

static int decode_member(const cJSON *v, const char *path, struct inference_service *s,
                         struct err *err)
{
    size_t n = strlen(path);
    bool known = strcmp(path, "scaling.metrics") == 0;

    if (cJSON_IsNull(v) || known)
        return 0;
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        if (strcmp(FIELDS[i].path, path) == 0)
            return decode_field(&FIELDS[i], v, s, err);
        known = known || (strncmp(FIELDS[i].path, path, n) == 0 && FIELDS[i].path[n] == '.');
    }
    if (!known)
        return err_set(err, ERR_INVALID, "spec.%s: no such field", path);
    if (!cJSON_IsObject(v))
        return err_set(err, ERR_INVALID, "spec.%s: want an object", path);
    return decode_object(v, path, s, err);
}

/* Depth is bounded by the table: only its prefixes are descended into. */
static int decode_object(const cJSON *obj, const char *prefix, struct inference_service *s,
                         struct err *err)
{
    const cJSON *v;

    cJSON_ArrayForEach(v, obj)
    {
        char path[128];
        int n = snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "", v->string);
        int r;

        if (n < 0 || (size_t)n >= sizeof(path))
            return err_set(err, ERR_INVALID, "spec.%.80s...: no such field", path);
        r = decode_member(v, path, s, err);
        if (r)
            return r;
    }
    return 0;
}

static int decode_pvc(struct inference_service *s, struct arena *mem, struct err *err)
{
    const char *rest = s->model.source + strlen("pvc://");
    size_t n = strcspn(rest, "/");

    if (n == 0 || n > 253 || rest[n] == '\0' || rest[n + 1] == '\0')
        return err_set(err, ERR_INVALID, "spec.model.source: want pvc://CLAIM/PATH/TO/FILE");
    s->model.claim = arena_strndup(mem, rest, n);
    if (!s->model.claim)
        return err_set(err, ERR_NO_MEMORY, "model source");
    s->model.path = rest + n + 1;
    for (const char *p = s->model.path; *p; p += strcspn(p, "/") + (p[strcspn(p, "/")] == '/')) {
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return err_set(err, ERR_INVALID, "spec.model.source: no \"..\" in a path");
    }
    return 0;
}

static int decode_source(struct inference_service *s, struct arena *mem, struct err *err)
{
    const char *source = s->model.source;

    if (!source)
        return err_set(err, ERR_INVALID,
                       "spec.model.source: required; name a model, for example "
                       "hf://org/repository/file.gguf");
    for (const char *p = source; *p; p++) {
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return err_set(err, ERR_INVALID, "spec.model.source: no spaces or control characters");
    }
    if (strncmp(source, "pvc://", 6) == 0) {
        s->model.kind = SOURCE_PVC;
        return decode_pvc(s, mem, err);
    }
    if (strncmp(source, "hf://", 5) == 0)
        s->model.kind = SOURCE_HF;
    else if (strncmp(source, "https://", 8) == 0)
        s->model.kind = SOURCE_HTTPS;
    else
        return err_set(err, ERR_INVALID,
                       "spec.model.source: want hf://, https:// or pvc:// in front");
    return 0;
}

static int decode_target(const cJSON *v, size_t i, struct inference_service *s, struct err *err)
{
    const char *name = json_str(v, "name", "");
    const cJSON *target = json_get(v, "target"), *child;
    struct scaling_target *t = &s->scaling.targets[s->scaling.n_targets];
    double max;

    cJSON_ArrayForEach(child, v)
    {
        if (strcmp(child->string, "name") != 0 && strcmp(child->string, "target") != 0)
            return err_set(err, ERR_INVALID, "spec.scaling.metrics[%zu].%.60s: no such field", i,
                           child->string);
    }
    if (scale_metric_parse(name, &t->metric))
        return err_set(err, ERR_INVALID,
                       "spec.scaling.metrics[%zu].name: want queueLength, requests, "
                       "gpuUtilization or gpuMemory",
                       i);
    if (scale_metric_is_gpu(t->metric) && inference_service_gpus(s) == 0)
        return err_set(err, ERR_INVALID,
                       "spec.scaling.metrics[%zu].name: \"%s\" needs GPUs; set "
                       "spec.runtime.device: cuda, or follow queueLength",
                       i, name);
    for (size_t k = 0; k < s->scaling.n_targets; k++) {
        if (s->scaling.targets[k].metric == t->metric)
            return err_set(err, ERR_INVALID, "spec.scaling.metrics[%zu].name: \"%s\" stands twice",
                           i, name);
    }
    if (cJSON_IsNumber(target))
        t->target = target->valuedouble;
    else if (!cJSON_IsString(target) || parse_quantity(target->valuestring, &t->target, err))
        t->target = 0;
    max = scale_metric_is_gpu(t->metric) ? 100 : 1e6;
    if (!(t->target > 0 && t->target <= max))
        return err_set(err, ERR_INVALID,
                       "spec.scaling.metrics[%zu].target: want a number over 0, %s", i,
                       scale_metric_is_gpu(t->metric) ? "at most 100, percent" : "requests a pod");
    s->scaling.n_targets++;
    return 0;
}

static int decode_scaling(struct inference_service *s, struct err *err)
{
    const cJSON *scaling = json_get(s->spec, "scaling"), *metrics, *v;
    size_t i = 0;

    s->scaling.enabled = cJSON_IsObject(scaling);
    if (!s->scaling.enabled)
        return 0;
    if (s->scaling.max == UNSET)
        return err_set(err, ERR_INVALID, "spec.scaling.maxReplicas: required with spec.scaling");
    if (s->scaling.min > s->scaling.max)
        return err_set(err, ERR_INVALID,
                       "spec.scaling.minReplicas: %lld is over maxReplicas, which is %lld",
                       (long long)s->scaling.min, (long long)s->scaling.max);
    metrics = json_get(scaling, "metrics");
    if (metrics && !cJSON_IsArray(metrics))
        return err_set(err, ERR_INVALID, "spec.scaling.metrics: want a list");
    cJSON_ArrayForEach(v, metrics)
    {
        if (i >= SCALING_METRICS_MAX)
            return err_set(err, ERR_INVALID, "spec.scaling.metrics: at most %d",
                           (int)SCALING_METRICS_MAX);
        if (decode_target(v, i++, s, err))
            return -(int)err->code;
    }
    return 0;
}

/* GPUs are counted by parallel.tensor, so that the runtime and the scheduler know one number. */
static int check_gpu_counts(const struct inference_service *s, struct err *err)
{
    static const char *const lists[] = {"limits", "requests"};
    const char *resource = inference_service_gpu_resource(s);

    for (size_t i = 0; i < 2 && inference_service_gpus(s); i++) {
        if (json_get(json_get(s->resources, lists[i]), resource))
            return err_set(err, ERR_INVALID,
                           "spec.resources.%s: \"%s\" follows from spec.runtime.parallel.tensor; "
                           "remove it",
                           lists[i], resource);
    }
    return 0;
}

static int check_whole(const struct inference_service *s, struct err *err)
{
    const cJSON *arg;
    size_t n = 0;

    if (s->runtime.args && !cJSON_IsArray(s->runtime.args))
        return err_set(err, ERR_INVALID, "spec.runtime.args: want a list of texts");
    cJSON_ArrayForEach(arg, s->runtime.args)
    {
        if (!cJSON_IsString(arg) || ++n > ARGS_MAX)
            return err_set(err, ERR_INVALID, "spec.runtime.args: want at most %d texts",
                           (int)ARGS_MAX);
    }
    if (s->resources && !cJSON_IsObject(s->resources))
        return err_set(err, ERR_INVALID, "spec.resources: want an object");
    if (check_gpu_counts(s, err))
        return -(int)err->code;
    if (s->pod_template && !cJSON_IsObject(s->pod_template))
        return err_set(err, ERR_INVALID, "spec.podTemplate: want an object");
    if (s->startup.failures != UNSET && s->startup_budget != UNSET)
        return err_set(err, ERR_INVALID,
                       "spec.probes.startup: give timeout or failureThreshold, not both");
    return 0;
}

static bool is_resource_name(const char *s)
{
    static const char domain[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
    static const char name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz0123456789-.";
    size_t n = strspn(s, domain), m = s[n] == '/' ? strspn(s + n + 1, name) : 0;

    return n && m && s[n + 1 + m] == '\0' && n <= 253 && m <= 63;
}

static int decode_device(const struct inference_service *s, struct err *err)
{
    static const char *const devices[] = {"auto", "cpu", "cuda"};
    const char *device = s->runtime.device ? s->runtime.device : "auto";
    bool known = false;

    for (size_t i = 0; !known && i < sizeof(devices) / sizeof(devices[0]); i++)
        known = strcmp(devices[i], device) == 0;
    if (!known)
        return err_set(err, ERR_INVALID, "spec.runtime.device: want auto, cpu or cuda");
    if (s->runtime.tensor > 1 && strcmp(device, "auto") == 0)
        return err_set(err, ERR_INVALID,
                       "spec.runtime.parallel.tensor: more than 1 needs spec.runtime.device: cuda "
                       "or cpu; set it");
    if (!s->runtime.gpu_resource)
        return 0;
    if (strcmp(device, "cuda") != 0)
        return err_set(err, ERR_INVALID,
                       "spec.runtime.gpuResource: only spec.runtime.device: cuda takes GPUs; set "
                       "it, or remove gpuResource");
    if (!is_resource_name(s->runtime.gpu_resource))
        return err_set(err, ERR_INVALID,
                       "spec.runtime.gpuResource: want a resource's name, like " GPU_RESOURCE);
    return 0;
}

static int decode_texts(struct inference_service *s, struct err *err)
{
    if (decode_device(s, err))
        return -(int)err->code;
    if (s->model.revision && s->model.kind != SOURCE_HF)
        return err_set(err, ERR_INVALID,
                       "spec.model.revision: only a hf:// source has revisions; remove it");
    if (s->model.revision && strchr(s->model.source, '@'))
        return err_set(err, ERR_INVALID,
                       "spec.model.revision: the source names a revision already; remove one");
    if (s->model.kind == SOURCE_PVC && s->model.cache_claim)
        return err_set(err, ERR_INVALID,
                       "spec.model.cache: a pvc:// source is read in place; remove it");
    if (s->model.kind != SOURCE_HF && s->model.secret)
        return err_set(err, ERR_INVALID,
                       "spec.model.secretRef: only a hf:// source takes a token; remove it");
    if (!s->runtime.kv_memory)
        return 0;
    if (parse_quantity(s->runtime.kv_memory, &s->runtime.kv_memory_bytes, err))
        return err_wrap(err, "spec.runtime.kvCache.memory");
    if (!(s->runtime.kv_memory_bytes >= 1 && s->runtime.kv_memory_bytes < 1e15))
        return err_set(err, ERR_INVALID, "spec.runtime.kvCache.memory: out of range");
    return 0;
}

static void set_unset(struct inference_service *s)
{
    struct probe_spec none = {UNSET, UNSET, UNSET, UNSET, UNSET};

    s->replicas = 1; /* the schema's default, here for objects that are older */
    s->model.max_length = UNSET;
    s->runtime.max_sequences = s->runtime.max_batch_tokens = UNSET;
    s->runtime.tensor = UNSET;
    s->runtime.queue_requests = s->runtime.queue_tokens = UNSET;
    s->scaling.min = 1;
    s->scaling.max = UNSET;
    s->scaling.scale_down_after = UNSET;
    s->drain_timeout = UNSET;
    s->startup_budget = UNSET;
    s->startup = s->readiness = s->liveness = none;
}

static int decode_metadata(const cJSON *cr, struct inference_service *s, struct err *err)
{
    const cJSON *metadata = json_get(cr, "metadata");

    s->name = json_str(metadata, "name", "");
    s->namespace = json_str(metadata, "namespace", "");
    s->uid = json_str(metadata, "uid", "");
    s->generation = json_int(metadata, "generation", 0);
    s->deleting = json_get(metadata, "deletionTimestamp") != NULL;
    s->refresh = json_str(json_get(metadata, "annotations"), ANNOTATION_REFRESH, NULL);
    if (strlen(s->name) > API_NAME_MAX || !(s->name[0] >= 'a' && s->name[0] <= 'z') ||
        strspn(s->name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(s->name))
        return err_set(err, ERR_INVALID,
                       "metadata.name: want at most %d of a-z, 0-9 and -, starting with a letter; "
                       "it becomes the name of a Service",
                       API_NAME_MAX);
    return 0;
}

int inference_service_decode(const cJSON *cr, struct arena *mem, struct inference_service *ret,
                             struct err *err)
{
    struct inference_service s = {.spec = json_get(cr, "spec")};
    int r;

    set_unset(&s);
    r = decode_metadata(cr, &s, err);
    *ret = s; /* who it is stands even when the rest is refused */
    if (r)
        return r;
    if (!cJSON_IsObject(s.spec))
        return err_set(err, ERR_INVALID, "spec: required");
    if (decode_object(s.spec, "", &s, err) || decode_source(&s, mem, err) ||
        decode_texts(&s, err) || decode_scaling(&s, err) || check_whole(&s, err))
        return -(int)err->code;
    if (!s.model.served_name)
        s.model.served_name = s.name;
    *ret = s;
    return 0;
}

int64_t inference_service_max_sequences(const struct inference_service *s)
{
    return s->runtime.max_sequences == UNSET ? MAX_SEQUENCES : s->runtime.max_sequences;
}

int64_t inference_service_gpus(const struct inference_service *s)
{
    if (!s->runtime.device || strcmp(s->runtime.device, "cuda") != 0)
        return 0;
    return s->runtime.tensor == UNSET ? 1 : s->runtime.tensor;
}

const char *inference_service_gpu_resource(const struct inference_service *s)
{
    return s->runtime.gpu_resource ? s->runtime.gpu_resource : GPU_RESOURCE;
}

size_t inference_service_targets(const struct inference_service *s,
                                 struct scaling_target ret[SCALING_METRICS_MAX])
{
    if (s->scaling.n_targets) {
        memcpy(ret, s->scaling.targets, s->scaling.n_targets * sizeof(*ret));
        return s->scaling.n_targets;
    }
    /* Waiting requests alone are 0 until it is late, running ones alone stop at the batch size:
     * together they see both ends. */
    ret[0] = (struct scaling_target){SCALE_QUEUE_LENGTH, 4};
    ret[1] = (struct scaling_target){SCALE_REQUESTS,
                                     0.75 * (double)inference_service_max_sequences(s)};
    return 2;
}
