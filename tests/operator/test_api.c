/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "operator/api/digest.h"
#include "operator/api/inference_service.h"
#include "operator/api/pod.h"
#include "operator/api/units.h"
#include "tests/support.h"

static cJSON *parse(const char *text)
{
    struct err err = {0};
    cJSON *json = NULL;

    assert_ok(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, &err), &err);
    return json;
}

static int decode_spec(const char *name, const char *spec, struct err *err)
{
    CLEANUP(arena_freep) struct arena *mem = NULL;
    CLEANUP(json_freep) cJSON *cr = NULL;
    struct inference_service s;
    char text[2048];

    (void)snprintf(text, sizeof(text), "{\"metadata\":{\"name\":\"%s\"},\"spec\":%s}", name, spec);
    cr = parse(text);
    assert_ok(arena_new(1 << 20, &mem, err), err);
    return inference_service_decode(cr, mem, &s, err);
}

static void refuses_and_names_the_field(void **state)
{
    static const struct {
        const char *spec, *message;
    } cases[] = {
#define M "\"model\":{\"source\":\"hf://o/r/f.gguf\"}"
            {"{}", "spec.model.source: required"},
            {"{\"modle\":{}}", "spec.modle: no such field"},
            {"{\"model\":{\"sauce\":\"x\"}}", "spec.model.sauce: no such field"},
            {"{\"model\":3}", "spec.model: want an object"},
            {"{\"model\":{\"source\":\"\"}}", "spec.model.source: want a text"},
            {"{\"model\":{\"source\":\"ftp://x\"}}", "spec.model.source: want hf://"},
            {"{\"model\":{\"source\":\"hf://a b\"}}", "no spaces"},
            {"{\"model\":{\"source\":\"pvc://claim\"}}", "want pvc://CLAIM/PATH"},
            {"{\"model\":{\"source\":\"pvc:///x\"}}", "want pvc://CLAIM/PATH"},
            {"{\"model\":{\"source\":\"pvc://c/a/../b\"}}", "no \"..\""},
            {"{\"model\":{\"source\":\"pvc://c/a\",\"cache\":{\"claimName\":\"x\"}}}",
             "spec.model.cache"},
            {"{\"model\":{\"source\":\"https://h/a\",\"secretRef\":{\"name\":\"x\"}}}",
             "spec.model.secretRef"},
            {"{\"model\":{\"source\":\"https://h/a\",\"revision\":\"x\"}}", "spec.model.revision"},
            {"{" M ",\"replicas\":-1}", "spec.replicas: want a whole number from 0"},
            {"{" M ",\"replicas\":1.5}", "spec.replicas"},
            {"{" M ",\"replicas\":\"1\"}", "spec.replicas"},
            {"{" M ",\"runtime\":{\"device\":\"tpu\"}}", "spec.runtime.device: want auto"},
            {"{" M ",\"runtime\":{\"args\":[1]}}", "spec.runtime.args"},
#define CUDA(more) "{" M ",\"runtime\":{\"device\":\"cuda\"" more "}"
            {CUDA(",\"parallel\":{\"tensor\":0}") "}",
             "spec.runtime.parallel.tensor: want a whole"},
            {CUDA(",\"parallel\":{\"tensor\":9}") "}", "number from 1 to 8"},
            {CUDA(",\"parallel\":{\"pipeline\":2}") "}",
             "spec.runtime.parallel.pipeline: no such field"},
            {"{" M ",\"runtime\":{\"parallel\":{\"tensor\":2}}}",
             "spec.runtime.parallel.tensor: more than 1 needs spec.runtime.device: cuda or cpu"},
            {"{" M ",\"runtime\":{\"device\":\"auto\",\"parallel\":{\"tensor\":2}}}",
             "spec.runtime.parallel.tensor"},
            {"{" M ",\"runtime\":{\"gpuResource\":\"nvidia.com/gpu\"}}",
             "spec.runtime.gpuResource: only spec.runtime.device: cuda"},
            {CUDA(",\"gpuResource\":\"gpu\"") "}", "spec.runtime.gpuResource: want a resource"},
            {CUDA(",\"gpuResource\":\"nvidia.com/\"") "}", "spec.runtime.gpuResource"},
            {CUDA(",\"gpuResource\":\"nvidia.com/a b\"") "}", "spec.runtime.gpuResource"},
            {CUDA("") ",\"resources\":{\"limits\":{\"nvidia.com/gpu\":1}}}",
             "spec.resources.limits: \"nvidia.com/gpu\" follows from"},
            {CUDA(",\"gpuResource\":\"nvidia.com/mig-1g.10gb\"") ",\"resources\":{\"requests\":{"
                                                                 "\"nvidia.com/mig-1g.10gb\":1}}}",
             "spec.resources.requests: \"nvidia.com/mig-1g.10gb\" follows from"},
            {"{" M ",\"scaling\":{\"maxReplicas\":2,\"metrics\":[{\"name\":\"gpuMemory\","
             "\"target\":\"80\"}]}}",
             "spec.scaling.metrics[0].name: \"gpuMemory\" needs GPUs; set spec.runtime.device"},
            {CUDA("") ",\"scaling\":{\"maxReplicas\":2,\"metrics\":[{\"name\":"
                      "\"gpuUtilization\",\"target\":\"101\"}]}}",
             "metrics[0].target: want a number over 0, at most 100, percent"},
#undef CUDA
            {"{" M ",\"runtime\":{\"kvCache\":{\"memory\":\"lots\"}}}",
             "spec.runtime.kvCache.memory"},
            {"{" M ",\"rollout\":{\"drainTimeout\":\"soon\"}}", "spec.rollout.drainTimeout"},
            {"{" M ",\"rollout\":{\"drainTimeout\":\"99h\"}}", "too long"},
            {"{" M ",\"scaling\":{\"minReplicas\":1}}", "spec.scaling.maxReplicas: required"},
            {"{" M ",\"scaling\":{\"minReplicas\":3,\"maxReplicas\":2}}", "is over maxReplicas"},
            {"{" M ",\"scaling\":{\"minReplicas\":0,\"maxReplicas\":2}}",
             "spec.scaling.minReplicas"},
            {"{" M ",\"scaling\":{\"maxReplicas\":2,\"metrics\":[{\"name\":\"x\"}]}}",
             "metrics[0].name: want queueLength"},
            {"{" M ",\"scaling\":{\"maxReplicas\":2,\"metrics\":[{\"name\":\"requests\"}]}}",
             "metrics[0].target"},
            {"{" M ",\"scaling\":{\"maxReplicas\":2,\"metrics\":[{\"name\":\"requests\","
             "\"target\":\"4\"},{\"name\":\"requests\",\"target\":\"4\"}]}}",
             "stands twice"},
            {"{" M ",\"probes\":{\"startup\":{\"timeout\":\"5m\",\"failureThreshold\":3}}}",
             "timeout or failureThreshold"},
            {"{" M ",\"podTemplate\":[]}", "spec.podTemplate"},
#undef M
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};

        assert_int_equal(decode_spec("chat", cases[i].spec, &err), -ERR_INVALID);
        if (!strstr(err.msg, cases[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].spec, err.msg, cases[i].message);
    }
}

static void refuses_names_that_are_no_service(void **state)
{
    static const char *const names[] = {
            "", "1chat", "Chat", "a.b",
            "a-very-long-name-that-does-not-leave-room-for-the-hash-of-a-pod"};
    const char *spec = "{\"model\":{\"source\":\"hf://o/r/f.gguf\"}}";

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct err err = {0};

        assert_int_equal(decode_spec(names[i], spec, &err), -ERR_INVALID);
        assert_non_null(strstr(err.msg, "metadata.name"));
    }
}

static void decodes_what_is_given(void **state)
{
    CLEANUP(arena_freep) struct arena *mem = NULL;
    CLEANUP(json_freep)
    cJSON *cr = parse(
            "{\"metadata\":{\"name\":\"chat\",\"namespace\":\"demo\",\"uid\":\"u\","
            "\"generation\":7},\"spec\":{\"replicas\":3,"
            "\"model\":{\"source\":\"pvc://models/a/b.gguf\",\"maxLength\":4096},"
            "\"runtime\":{\"batching\":{\"maxSequences\":8},\"kvCache\":{\"memory\":\"1Gi\"}},"
            "\"scaling\":{\"maxReplicas\":4,\"scaleDownAfter\":\"1m30s\","
            "\"metrics\":[{\"name\":\"queueLength\",\"target\":\"2500m\"}]},"
            "\"probes\":{\"readiness\":{\"periodSeconds\":9}}}}");
    struct inference_service s;
    struct err err = {0};

    (void)state;
    assert_ok(arena_new(1 << 20, &mem, &err), &err);
    assert_ok(inference_service_decode(cr, mem, &s, &err), &err);
    assert_int_equal(s.replicas, 3);
    assert_int_equal(s.generation, 7);
    assert_int_equal(s.model.kind, SOURCE_PVC);
    assert_string_equal(s.model.claim, "models");
    assert_string_equal(s.model.path, "a/b.gguf");
    assert_string_equal(s.model.served_name, "chat");
    assert_int_equal(s.model.max_length, 4096);
    assert_int_equal(s.runtime.max_sequences, 8);
    assert_int_equal(s.runtime.max_batch_tokens, UNSET);
    assert_float_equal(s.runtime.kv_memory_bytes, 1073741824.0, 0);
    assert_int_equal(s.scaling.min, 1);
    assert_int_equal(s.scaling.scale_down_after, 90);
    assert_int_equal(s.scaling.n_targets, 1);
    assert_float_equal(s.scaling.targets[0].target, 2.5, 1e-9);
    assert_int_equal(s.readiness.period, 9);
    assert_int_equal(s.liveness.period, UNSET);
}

static void decodes_gpus(void **state)
{
    static const struct {
        const char *runtime;
        int64_t gpus;
        const char *resource;
    } cases[] = {
            {"{}", 0, "nvidia.com/gpu"},
            {"{\"device\":\"cpu\",\"parallel\":{\"tensor\":2}}", 0, "nvidia.com/gpu"},
            {"{\"device\":\"cuda\"}", 1, "nvidia.com/gpu"},
            {"{\"device\":\"cuda\",\"parallel\":{\"tensor\":8}}", 8, "nvidia.com/gpu"},
            {"{\"device\":\"cuda\",\"gpuResource\":\"nvidia.com/mig-1g.10gb\"}", 1,
             "nvidia.com/mig-1g.10gb"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(arena_freep) struct arena *mem = NULL;
        CLEANUP(json_freep) cJSON *cr = NULL;
        struct inference_service s;
        struct err err = {0};
        char text[1024];

        (void)snprintf(text, sizeof(text),
                       "{\"metadata\":{\"name\":\"chat\"},\"spec\":{\"model\":{\"source\":"
                       "\"hf://o/r/f.gguf\"},\"runtime\":%s}}",
                       cases[i].runtime);
        cr = parse(text);
        assert_ok(arena_new(1 << 20, &mem, &err), &err);
        assert_ok(inference_service_decode(cr, mem, &s, &err), &err);
        assert_int_equal(inference_service_gpus(&s), cases[i].gpus);
        assert_string_equal(inference_service_gpu_resource(&s), cases[i].resource);
    }
}

static void parses_units(void **state)
{
    static const struct {
        const char *text;
        double want; /* < 0: refused */
    } quantities[] = {
            {"1", 1},     {"250m", .25}, {"1.5Gi", 1610612736}, {"1e3", 1000},
            {"2E", 2e18}, {"0.5", .5},   {"1k", 1000},          {"+3", 3},
            {"", -1},     {"Gi", -1},    {"1.2.3", -1},         {"1 Gi", -1},
            {"1gi", -1},  {"e3", -1},
    };
    static const struct {
        const char *text;
        int64_t want;
    } durations[] = {{"90s", 90}, {"5m", 300},  {"1h30m", 5400}, {"0s", 0},
                     {"", -1},    {"5", -1},    {"5m5m", -1},    {"1s1m", -1},
                     {"-1s", -1}, {"1.5h", -1}, {"s", -1},       {"999999999999999h", -1}};
    struct err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(quantities) / sizeof(quantities[0]); i++) {
        double v = -1;

        (void)!parse_quantity(quantities[i].text, &v, &err);
        assert_float_equal(v, quantities[i].want, 1e-9);
    }
    for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++) {
        int64_t v = -1;

        (void)!parse_duration(durations[i].text, 86400, &v, &err);
        assert_int_equal(v, durations[i].want);
    }
}

static void digests_ignore_the_order_of_keys(void **state)
{
    CLEANUP(json_freep) cJSON *a = parse("{\"x\":1,\"y\":{\"p\":[1,2],\"q\":\"t\"}}");
    CLEANUP(json_freep) cJSON *b = parse("{\"y\":{\"q\":\"t\",\"p\":[1,2]},\"x\":1.0}");
    CLEANUP(json_freep) cJSON *c = parse("{\"y\":{\"q\":\"t\",\"p\":[2,1]},\"x\":1}");
    char da[DIGEST_BYTES], db[DIGEST_BYTES], dc[DIGEST_BYTES];
    struct err err = {0};

    (void)state;
    assert_ok(digest_json(a, da, &err), &err);
    assert_ok(digest_json(b, db, &err), &err);
    assert_ok(digest_json(c, dc, &err), &err);
    assert_string_equal(da, db);
    assert_string_not_equal(da, dc);
}

#define STATUSES(x) "{\"status\":{\"phase\":\"Running\",\"containerStatuses\":[" x "]}}"
#define RUNTIME(x) STATUSES("{\"name\":\"runtime\",\"image\":\"i:1\"," x "}")

static void explains_pods(void **state)
{
    static const struct {
        const char *pod;
        enum pod_state state;
        const char *reason, *message;
    } cases[] = {
            {"{}", POD_LOADING, "", ""},
            {"{\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"disk\"}}",
             POD_GONE, "Evicted", "disk"},
            {"{\"metadata\":{\"deletionTimestamp\":\"x\"},\"status\":{\"conditions\":["
             "{\"type\":\"Ready\",\"status\":\"True\"}]}}",
             POD_LEAVING, "", ""},
            {"{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
             POD_SERVING, "", ""},
            {"{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
             "\"reason\":\"Unschedulable\",\"message\":\"0/1 nodes\"}]}}",
             POD_FAILING, "Unschedulable", "0/1 nodes"},
            {RUNTIME("\"restartCount\":3,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\","
                     "\"message\":\"back-off 40s\"}},\"lastState\":{\"terminated\":{"
                     "\"exitCode\":1,\"message\":\"log line\\nunknown option --foo\\n\"}}"),
             POD_FAILING, "CrashLoopBackOff", "container \"runtime\": unknown option --foo"},
            {RUNTIME("\"restartCount\":4,\"ready\":false,\"state\":{\"running\":{}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,\"message\":\"bad\"}}"),
             POD_FAILING, "CrashLoopBackOff", "container \"runtime\": bad"},
            {RUNTIME("\"restartCount\":1,\"ready\":false,\"state\":{\"running\":{}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":137,\"reason\":\"OOMKilled\"}}"),
             POD_LOADING, "OOMKilled", "was killed for memory"},
            {RUNTIME("\"restartCount\":0,\"state\":{\"terminated\":{\"exitCode\":3}}"), POD_LOADING,
             "ContainerExited", "ended with exit code 3"},
            {RUNTIME("\"restartCount\":2,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,"
                     "\"message\":\"https://h/m: HTTP 403\"}}"),
             POD_FAILING, "SourceUnauthorized", "HTTP 403"},
            {RUNTIME("\"restartCount\":2,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,"
                     "\"message\":\"cannot resolve host\"}}"),
             POD_FAILING, "SourceUnreachable", "resolve"},
            {RUNTIME("\"restartCount\":2,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,\"message\":"
                     "\"{\\\"msg\\\":\\\"listening\\\"}\\n{\\\"time\\\":\\\"2026\\\",\\\"msg\\\":"
                     "\\\"cannot serve\\\",\\\"error\\\":\\\"m.gguf: No such file\\\"}\"}}"),
             POD_FAILING, "SourceNotFound", "container \"runtime\": m.gguf: No such file"},
            {RUNTIME("\"restartCount\":2,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,\"message\":"
                     "\"the device failed: GPU 1 (GPU-0f): Xid 79: GPU 1: it timed out\"}}"),
             POD_FAILING, "GPUError", "GPU 1 (GPU-0f): Xid 79"},
            {RUNTIME("\"restartCount\":2,\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},"
                     "\"lastState\":{\"terminated\":{\"exitCode\":1,\"message\":"
                     "\"the device failed: GPU 0: the launch timed out\"}}"),
             POD_FAILING, "DeviceFailed", "GPU 0: the launch timed out"},
            {RUNTIME("\"state\":{\"waiting\":{\"reason\":\"ImagePullBackOff\",\"message\":"
                     "\"Back-off pulling image \\\"i:1\\\": ErrImagePull: no such tag\"}}"),
             POD_FAILING, "ImagePull", "cannot be pulled: no such tag"},
            {RUNTIME("\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\",\"message\":"
                     "\"no such tag\"}}"),
             POD_FAILING, "ImagePull", "cannot be pulled: no such tag"},
            {RUNTIME("\"state\":{\"waiting\":{\"reason\":\"CreateContainerConfigError\","
                     "\"message\":\"secret \\\"hub\\\" not found\"}}"),
             POD_FAILING, "ContainerConfig", "secret \"hub\" not found"},
            {STATUSES("{\"name\":\"runtime\",\"ready\":true,\"restartCount\":1,\"state\":{"
                      "\"running\":{}},\"lastState\":{\"terminated\":{\"exitCode\":1}}}"),
             POD_LOADING, "", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(json_freep) cJSON *pod = parse(cases[i].pod);
        struct pod_cause cause;

        assert_int_equal(pod_state_of(pod, NULL, &cause), cases[i].state);
        assert_string_equal(cause.reason, cases[i].reason);
        if (!strstr(cause.message, cases[i].message))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, cause.message, cases[i].message);
    }
}

static void believes_a_pod_that_says_it_failed(void **state)
{
    CLEANUP(json_freep) cJSON *pod = parse("{}");
    struct pod_signal signal = {.phase = LOAD_FAILED, .error = "hf://o/r/f: HTTP 404"};
    struct pod_cause cause;

    (void)state;
    assert_int_equal(pod_state_of(pod, &signal, &cause), POD_FAILING);
    assert_string_equal(cause.reason, "SourceNotFound");
    /* Failed, and why is still to come: no cause yet rather than an empty one. */
    signal.error[0] = '\0';
    assert_int_equal(pod_state_of(pod, &signal, &cause), POD_LOADING);
    assert_string_equal(cause.reason, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(refuses_and_names_the_field),
            cmocka_unit_test(refuses_names_that_are_no_service),
            cmocka_unit_test(decodes_what_is_given),
            cmocka_unit_test(decodes_gpus),
            cmocka_unit_test(parses_units),
            cmocka_unit_test(digests_ignore_the_order_of_keys),
            cmocka_unit_test(explains_pods),
            cmocka_unit_test(believes_a_pod_that_says_it_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
