/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "operator/scaling/api_service.h"
#include "operator/scaling/decide.h"
#include "operator/scaling/exposition.h"
#include "operator/scaling/front_proxy.h"
#include "operator/scaling/selector.h"
#include "operator/scaling/serving_cert.h"
#include "operator/scaling/signals.h"
#include "tests/support.h"

static cJSON *parse(const char *text)
{
    struct err err = {0};
    cJSON *json = NULL;

    assert_ok(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, &err), &err);
    return json;
}

static void sums_series_and_refuses_nonsense(void **state)
{
    static const struct {
        const char *text;
        double want; /* < 0: missing */
    } cases[] = {
            {"q 3\n", 3},
            {"q 3", 3},
            {"# HELP q x\n# TYPE q gauge\nq{m=\"a\"} 1\nq{m=\"b\"} 2.5 1700000000\n", 3.5},
            {"q{m=\"a}\\\"b\"} 4\n", 4},
            {"q\t5\r\n", 5},
            {"qq 3\nq_x 4\n", -1},
            {"", -1},
            {"q", -1},
            {"q \n", -1},
            {"q NaN\n", -1},
            {"q +Inf\n", -1},
            {"q -1\n", -1},
            {"q 1e400\n", -1},
            {"q 1e3\n", 1000},
            {"q 1\nq x\n", -1}, /* one bad series spoils the sum */
            {"q{m=\"a 7\n", -1},
            {"q 99999999999999999999999999999999999999999999\n", -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double v = -1;

        if (!exposition_sum(cases[i].text, strlen(cases[i].text), "q", &v))
            v = -1;
        if (fabs(v - cases[i].want) > 1e-9)
            fail_msg("case %zu: %g", i, v);
    }
}

static void means_and_labels(void **state)
{
    static const char text[] =
            "# TYPE x gauge\nx{a=\"1\",uuid=\"GPU-1\"} 1\ny 7\n"
            "x{uuid=\"GPU \\\"2\\\"\"} 3\nx{b=\"u,uuid=\",uuid=\"\"} 5\nx 3\nz -1\n";
    const char *at = text, *end = text + sizeof(text) - 1;
    struct exposition_series s;
    char uuid[8];
    double v;

    (void)state;
    assert_true(exposition_mean(text, sizeof(text) - 1, "x", &v));
    assert_float_equal(v, 3, 1e-9);
    assert_false(exposition_mean(text, sizeof(text) - 1, "z", &v));
    assert_false(exposition_mean(text, sizeof(text) - 1, "none", &v));

    assert_int_equal(exposition_next(&at, end, "x", &s), 1);
    assert_true(exposition_label(&s, "uuid", uuid, sizeof(uuid)));
    assert_string_equal(uuid, "GPU-1");
    assert_true(exposition_label(&s, "a", uuid, sizeof(uuid)));
    assert_string_equal(uuid, "1");
    assert_false(exposition_label(&s, "uui", uuid, sizeof(uuid)));
    assert_false(exposition_label(&s, "uuid", uuid, 5)); /* does not fit */
    assert_int_equal(exposition_next(&at, end, "x", &s), 1);
    assert_false(exposition_label(&s, "uuid", uuid, sizeof(uuid))); /* escapes */
    assert_int_equal(exposition_next(&at, end, "x", &s), 1);
    assert_true(exposition_label(&s, "uuid", uuid, sizeof(uuid)));
    assert_string_equal(uuid, "");
    assert_int_equal(exposition_next(&at, end, "x", &s), 1);
    assert_false(exposition_label(&s, "uuid", uuid, sizeof(uuid))); /* no labels */
    assert_int_equal(exposition_next(&at, end, "x", &s), 0);
}

#define QUEUE "penstock_queue_length 0\npenstock_requests_running 0\n"
#define GPU(name, gpu, value) \
    "penstock_gpu_" name "{gpu=\"" gpu "\",uuid=\"GPU-" gpu "\"} " value "\n"

static void reads_gpus(void **state)
{
    static const struct {
        const char *text;
        double utilization, memory; /* < 0: not known */
        int xid;
        const char *gpu;
    } cases[] = {
            {"", -1, -1, 0, ""},
            {GPU("utilization_ratio", "0", "0.5") GPU("utilization_ratio", "1", "0.9"), 70, -1, 0,
             ""},
            {GPU("memory_used_bytes", "0", "20") GPU("memory_total_bytes", "0", "80"), -1, 25, 0,
             ""},
            {GPU("memory_used_bytes", "0", "20"), -1, -1, 0, ""},
            {GPU("memory_used_bytes", "0", "0") GPU("memory_total_bytes", "0", "0"), -1, -1, 0, ""},
            {GPU("memory_used_bytes", "0", "9") GPU("memory_total_bytes", "0", "8"), -1, -1, 0, ""},
            {GPU("utilization_ratio", "0", "NaN"), -1, -1, 0, ""},
            {GPU("utilization_ratio", "0", "1.5"), -1, -1, 0, ""},
            {GPU("xid_errors_total", "0", "0"), -1, -1, 0, ""},
            {GPU("last_xid", "1", "79"), -1, -1, 79, "GPU-1"},
            {GPU("last_xid", "1", "0") GPU("last_xid", "2", "48"), -1, -1, 48, "GPU-2"},
            {GPU("last_xid", "1", "1e9"), -1, -1, 0, ""},
            {"penstock_gpu_last_xid 79\n", -1, -1, 0, ""},
            {"penstock_gpu_last_xid{uuid=\"a<b>\"} 13\n", -1, -1, 13, "a?b?"},
    };
    struct clock_fake clock;
    CLEANUP(signals_freep) struct signals *s = NULL;
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 0);
    assert_ok(signals_new(&clock.clock, 5000, &s, &err), &err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pod_signal now;
        char text[1024];
        double v;

        (void)snprintf(text, sizeof(text), QUEUE "%s", cases[i].text);
        assert_ok(signals_sample(s, "u", text, strlen(text), &err), &err);
        signals_get(s, "u", &now);
        v = scale_metric_value(SCALE_GPU_UTILIZATION, &now, &v) ? v : -1;
        assert_float_equal(v, cases[i].utilization, 1e-9);
        v = scale_metric_value(SCALE_GPU_MEMORY, &now, &v) ? v : -1;
        assert_float_equal(v, cases[i].memory, 1e-9);
        assert_int_equal(now.xid, cases[i].xid);
        if (now.xid)
            assert_string_equal(now.xid_gpu, cases[i].gpu);
    }
}

/* It shows until another process is in the pod. */
static void an_xid_is_a_change(void **state)
{
    const char *calm = QUEUE, *sick = QUEUE GPU("last_xid", "0", "79"),
               *other = QUEUE GPU("last_xid", "1", "79"), *start = "{\"phase\":\"loading\"}";
    struct clock_fake clock;
    CLEANUP(signals_freep) struct signals *s = NULL;
    struct pod_signal now;
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 0);
    assert_ok(signals_new(&clock.clock, 5000, &s, &err), &err);
    assert_ok(signals_sample(s, "u", calm, strlen(calm), &err), &err);
    assert_true(signals_changed(s, "u"));
    assert_ok(signals_sample(s, "u", sick, strlen(sick), &err), &err);
    assert_true(signals_changed(s, "u"));
    assert_false(signals_changed(s, "u"));
    assert_ok(signals_sample(s, "u", other, strlen(other), &err), &err);
    assert_true(signals_changed(s, "u"));
    assert_ok(signals_startup(s, "u", start, strlen(start), &err), &err);
    signals_get(s, "u", &now);
    assert_int_equal(now.xid, 0);
}

static void silent_is_not_idle(void **state)
{
    struct clock_fake clock;
    CLEANUP(signals_freep) struct signals *s = NULL;
    const char *start = "{\"phase\":\"loading\",\"percent\":47,\"bytes_total\":100}";
    const char *ready = "{\"phase\":\"ready\",\"percent\":100}";
    const char *text = "penstock_queue_length 3\npenstock_requests_running 2\n";
    struct pod_signal now;
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 1000);
    assert_ok(signals_new(&clock.clock, 5000, &s, &err), &err);
    signals_get(s, "u", &now);
    assert_int_equal(now.phase, LOAD_UNKNOWN);
    assert_false(signals_changed(s, "u"));
    assert_ok(signals_startup(s, "u", start, strlen(start), &err), &err);
    assert_true(signals_changed(s, "u"));
    assert_false(signals_changed(s, "u"));
    signals_get(s, "u", &now);
    assert_false(now.fresh); /* loading has no sample */
    assert_ok(signals_startup(s, "u", ready, strlen(ready), &err), &err);
    assert_ok(signals_sample(s, "u", text, strlen(text), &err), &err);
    assert_true(signals_changed(s, "u"));
    signals_get(s, "u", &now);
    assert_true(now.fresh);
    assert_float_equal(now.waiting, 3, 0);
    clock_fake_advance_ms(&clock, 5001);
    assert_true(signals_changed(s, "u")); /* it grew old */
    signals_get(s, "u", &now);
    assert_false(now.fresh);
    assert_float_equal(now.waiting, 3, 0);
    /* The container was restarted and loads again. */
    assert_ok(signals_sample(s, "u", text, strlen(text), &err), &err);
    assert_ok(signals_startup(s, "u", start, strlen(start), &err), &err);
    signals_get(s, "u", &now);
    assert_false(now.fresh);
    signals_forget(s, "u");
    signals_get(s, "u", &now);
    assert_int_equal(now.phase, LOAD_UNKNOWN);
}

static void signals_refuse_what_is_no_answer(void **state)
{
    static const char *const bodies[] = {
            "", "[]", "{}", "{\"phase\":\"odd\"}", "{\"phase\":3}", "{\"phase\":\"ready\""};
    struct clock_fake clock;
    CLEANUP(signals_freep) struct signals *s = NULL;
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 0);
    assert_ok(signals_new(&clock.clock, 5000, &s, &err), &err);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_int_equal(signals_startup(s, "u", bodies[i], strlen(bodies[i]), &err), -ERR_INVALID);
    assert_int_equal(signals_sample(s, "u", "penstock_queue_length 1\n", 24, &err), -ERR_INVALID);
}

/* --- decide --- */

struct pods {
    size_t n;
    struct decide_pod each[16];
};

/* "s3" serving with 3 waiting, "r5" serving with 5 running, "l" loading, "x" silent, "f" failing,
 * "g7" serving with GPUs at 70 % */
static struct pods make_pods(const char *text)
{
    struct pods p = {0};

    for (; *text; text += strcspn(text, " ") + (text[strcspn(text, " ")] == ' ')) {
        struct decide_pod *pod = &p.each[p.n++];

        pod->state = *text == 'l' ? POD_LOADING : *text == 'f' ? POD_FAILING : POD_SERVING;
        pod->signal.fresh = *text == 's' || *text == 'r' || *text == 'g';
        pod->signal.gpu_utilization.known = *text == 'g';
        if (*text == 'g')
            pod->signal.gpu_utilization.percent = 10 * (text[1] - '0');
        if (*text == 's')
            pod->signal.waiting = text[1] - '0';
        if (*text == 'r')
            pod->signal.running = text[1] - '0';
    }
    return p;
}

static void decides(void **state)
{
    static const struct {
        int64_t replicas;
        const char *pods;
        int64_t want;
        bool hold;
        const char *reason;
    } cases[] = {
            {1, "s0", 1, false, "0 queued over 1 serving pod, target 4"},
            {1, "s9", 3, false, "9 queued over 1 serving pod, target 4"},
            {3, "s9 l l", 3, true, "9 queued over 1 serving pod, target 4; more are loading"},
            {3, "s0 s0 s0", 1, false, "over 3 serving pods"},
            {3, "s0 s0 l", 3, true, "more are loading"},
            {3, "s0 s0 x", 3, true, "over 2 serving pods"},
            {2, "x x", 2, true, "no serving pod answers its metrics port"},
            {2, "l l", 2, true, "no pod serves yet"},
            {2, "f f", 2, false, "no pod serves yet"},
            {2, "s4 s4", 2, false, "8 queued"},
            {2, "s4 s4 f", 2, false, "8 queued"},
            {1, "r9", 2, false, "9 queued or running over 1 serving pod, target 8"},
            {2, "s9 s9", 5, false, "18 queued"},
            {4, "s9 s9 s9 s9", 6, false, "36 queued"}, /* max */
            {0, "", 1, false, "no pod serves yet"},    /* min */
    };
    struct inference_service s = {
            .scaling = {.enabled = true,
                        .min = 1,
                        .max = 6,
                        .n_targets = 2,
                        .targets = {{SCALE_QUEUE_LENGTH, 4}, {SCALE_REQUESTS, 8}}}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pods p = make_pods(cases[i].pods);
        struct scale_decision d = {0};

        s.replicas = cases[i].replicas;
        decide(&s, p.each, p.n, &d);
        if (d.desired != cases[i].want || d.hold_down != cases[i].hold ||
            !strstr(d.reason, cases[i].reason))
            fail_msg("case %zu \"%s\": %lld %d \"%s\"", i, cases[i].pods, (long long)d.desired,
                     d.hold_down, d.reason);
    }
}

/* A figure that is not there is not 0: it asks for nothing and lets nothing go. */
static void follows_the_gpus(void **state)
{
    static const struct {
        int64_t replicas;
        const char *pods;
        int64_t want;
        const char *reason;
    } cases[] = {
            {1, "g9", 2, "90% GPU utilization over 1 serving pod, target 50"},
            {2, "g9 g9", 4, "90% GPU utilization over 2 serving pods, target 50"},
            {3, "g2 g2 g2", 2, "20% GPU utilization over 3 serving pods"},
            {3, "g2 g2 s0", 3, "20% GPU utilization over 2 serving pods"},
            {3, "s0 s0 s0", 3, "no serving pod tells its gpuUtilization: replicas are held"},
            {2, "g9 l", 2, "more are loading"},
            {2, "g5 g5", 2, "50%"},
    };
    struct inference_service s = {.scaling = {.enabled = true,
                                              .min = 1,
                                              .max = 6,
                                              .n_targets = 1,
                                              .targets = {{SCALE_GPU_UTILIZATION, 50}}}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pods p = make_pods(cases[i].pods);
        struct scale_decision d = {0};

        s.replicas = cases[i].replicas;
        decide(&s, p.each, p.n, &d);
        if (d.desired != cases[i].want || !strstr(d.reason, cases[i].reason))
            fail_msg("case %zu \"%s\": %lld \"%s\"", i, cases[i].pods, (long long)d.desired,
                     d.reason);
    }
}

static void within_tolerance_nothing_moves(void **state)
{
    struct inference_service s = {.replicas = 4,
                                  .scaling = {.enabled = true,
                                              .min = 1,
                                              .max = 9,
                                              .n_targets = 1,
                                              .targets = {{SCALE_QUEUE_LENGTH, 5}}}};
    struct pods p = make_pods("s5 s5 s5 s6"); /* 21 of 20 */
    struct scale_decision d = {0};

    (void)state;
    decide(&s, p.each, p.n, &d);
    assert_int_equal(d.desired, 4);
}

/* --- selectors --- */

static void selects_as_kubernetes_does(void **state)
{
    static const struct {
        const char *text;
        int want; /* -1: refused */
    } cases[] = {
            {"", 1},           {"a=1", 1},         {"a==1", 1},        {"a=2", 0},
            {"a!=2", 1},       {"a!=1", 0},        {"z!=1", 1},        {"a", 1},
            {"z", 0},          {"!z", 1},          {"!a", 0},          {"a in (1,2)", 1},
            {"a in (2)", 0},   {"a notin (2)", 1}, {"z notin (1)", 1}, {"a=1,b/c=x", 1},
            {"a=1, b/c=y", 0}, {" a = 1 ", 1},     {"e=", 1},          {"a=,b/c=x", 0},
            {"a in(1)", 1},    {"a in (1", -1},    {"=1", -1},         {"a=1,", -1},
            {"a~1", -1},       {"a in 1", -1},     {",", -1},          {"a b", -1},
    };
    CLEANUP(json_freep) cJSON *labels = parse("{\"a\":\"1\",\"b/c\":\"x\",\"e\":\"\"}");

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(arena_freep) struct arena *mem = NULL;
        const struct selector *s = NULL;
        struct err err = {0};
        int got;

        assert_ok(arena_new(1 << 20, &mem, &err), &err);
        got = selector_parse(cases[i].text, mem, &s, &err) ? -1 : selector_matches(s, labels);
        if (got != cases[i].want)
            fail_msg("\"%s\": %d", cases[i].text, got);
    }
}

/* --- who has the group --- */

#define SERVICE(name, version, ns, service, more)                                          \
    "{\"metadata\":{\"name\":\"" name "\"},\"spec\":{\"group\":\"custom.metrics.k8s.io\"," \
    "\"version\":\"" version "\",\"groupPriorityMinimum\":100,\"versionPriority\":200,"    \
    "\"service\":{\"namespace\":\"" ns "\",\"name\":\"" service "\",\"port\":443}," more "}}"
#define OURS SERVICE(API_SERVICE_NAME, "v1beta2", "sys", "op", "\"caBundle\":\"ca\"")
#define THEIRS SERVICE("v1beta1.custom.metrics.k8s.io", "v1beta1", "mon", "adapter", "\"x\":1")
#define OTHER "{\"metadata\":{\"name\":\"v1.apps\"},\"spec\":{\"group\":\"apps\"}}"

static void judges_the_group(void **state)
{
    static const struct {
        const char *items;
        enum api_service_state want;
        bool ours_too;
        const char *owner;
    } cases[] = {
            {"", API_SERVICE_FREE, false, ""},
            {OTHER, API_SERVICE_FREE, false, ""},
            {OURS "," OTHER, API_SERVICE_OURS, true, ""},
            {SERVICE(API_SERVICE_NAME, "v1beta2", "sys", "op", "\"caBundle\":\"old\""),
             API_SERVICE_DRIFT, true, ""},
            {SERVICE(API_SERVICE_NAME, "v1beta2", "sys", "op",
                     "\"caBundle\":\"ca\",\"insecureSkipTLSVerify\":true"),
             API_SERVICE_DRIFT, true, ""},
            {THEIRS, API_SERVICE_TAKEN, false, "service mon/adapter (v1beta1)"},
            {OURS "," THEIRS, API_SERVICE_TAKEN, true, "service mon/adapter (v1beta1)"},
            {SERVICE(API_SERVICE_NAME, "v1beta2", "mon", "op", "\"caBundle\":\"ca\""),
             API_SERVICE_TAKEN, false, "service mon/op (v1beta2)"},
    };
    struct api_service_want want = {
            .namespace = "sys", .service = "op", .ca_bundle = "ca", .owner_uid = "u"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[2048], owner[API_SERVICE_OWNER_BYTES];
        bool ours_too;
        cJSON *list;

        (void)snprintf(text, sizeof(text), "{\"items\":[%s]}", cases[i].items);
        list = parse(text);
        assert_int_equal(api_service_judge(list, &want, owner, &ours_too), cases[i].want);
        assert_int_equal(ours_too, cases[i].ours_too);
        assert_string_equal(owner, cases[i].owner);
        cJSON_Delete(list);
    }
}

static void what_we_register_is_as_it_should_be(void **state)
{
    CLEANUP(str_release) struct str body = STR_INIT(8192), list = STR_INIT(8192);
    struct api_service_want want = {
            .namespace = "sys", .service = "op", .ca_bundle = "ca", .owner_uid = "u"};
    char owner[API_SERVICE_OWNER_BYTES];
    bool ours_too;
    cJSON *json;

    (void)state;
    api_service_write(&want, &body);
    assert_null(strstr(str_text(&body), "insecureSkipTLSVerify"));
    str_addf(&list, "{\"items\":[%s]}", str_text(&body));
    json = parse(str_text(&list));
    assert_int_equal(api_service_judge(json, &want, owner, &ours_too), API_SERVICE_OURS);
    cJSON_Delete(json);
}

/* --- certificates --- */

static void issues_and_judges_certificates(void **state)
{
    struct serving_cert c = {0};
    struct err err = {0};
    char *ca, *leaf;

    (void)state;
    assert_false(serving_cert_is_good(&c, "op.sys.svc", 0));
    assert_ok(serving_cert_issue(&c, "op.sys.svc", &err), &err);
    assert_true(serving_cert_is_good(&c, "op.sys.svc", 60 * 86400));
    assert_false(serving_cert_is_good(&c, "other.sys.svc", 0));
    assert_false(serving_cert_is_good(&c, "op.sys.svc", 366 * 86400)); /* the leaf lives a year */
    ca = mem_strdup(c.ca_cert);
    leaf = mem_strdup(c.cert);
    assert_ok(serving_cert_issue(&c, "op.sys.svc", &err), &err); /* renewed by the same CA */
    assert_string_equal(c.ca_cert, ca);
    assert_string_not_equal(c.cert, leaf);
    mem_free(c.key);
    c.key = mem_strdup("nonsense");
    assert_false(serving_cert_is_good(&c, "op.sys.svc", 0));
    mem_free(c.ca_key);
    c.ca_key = mem_strdup("nonsense");
    assert_ok(serving_cert_issue(&c, "op.sys.svc", &err), &err); /* a CA without key is replaced */
    assert_string_not_equal(c.ca_cert, ca);
    mem_free(ca);
    mem_free(leaf);
    serving_cert_release(&c);
}

/* A client certificate signed by the CA in c, as DER; returns its length. */
static size_t make_client(const struct serving_cert *c, const char *cn, const char *usage,
                          unsigned char *der, size_t size)
{
    BIO *ca_bio = BIO_new_mem_buf(c->ca_cert, -1), *key_bio = BIO_new_mem_buf(c->ca_key, -1);
    X509 *ca = PEM_read_bio_X509(ca_bio, NULL, NULL, NULL), *cert = X509_new();
    EVP_PKEY *ca_key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_ext_key_usage, usage);
    unsigned char *p = der;
    int n;

    assert_int_equal(X509_set_version(cert, X509_VERSION_3), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), 5), 1);
    (void)X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    (void)X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
                                                (const unsigned char *)cn, -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(cert, X509_get_subject_name(ca)), 1);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    assert_true(X509_sign(cert, ca_key, EVP_sha256()) > 0);
    n = i2d_X509(cert, NULL);
    assert_true(n > 0 && (size_t)n < size);
    (void)i2d_X509(cert, &p);
    X509_EXTENSION_free(e);
    X509_free(cert);
    X509_free(ca);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    BIO_free(ca_bio);
    BIO_free(key_bio);
    return (size_t)n;
}

static int update(struct front_proxy *f, const char *ca_pem, const char *names, struct err *err)
{
    cJSON *map = cJSON_CreateObject(), *data = cJSON_AddObjectToObject(map, "data");
    int r;

    (void)cJSON_AddStringToObject(data, "requestheader-client-ca-file", ca_pem);
    (void)cJSON_AddStringToObject(data, "requestheader-allowed-names", names);
    r = front_proxy_update(f, map, err);
    cJSON_Delete(map);
    return r;
}

static void only_the_front_proxy_may_speak(void **state)
{
    CLEANUP(front_proxy_freep) struct front_proxy *f = NULL;
    struct serving_cert ours = {0}, others = {0};
    unsigned char good[2048], server[2048], stranger[2048];
    size_t n_good, n_server, n_stranger;
    struct err err = {0};

    (void)state;
    assert_ok(serving_cert_issue(&ours, "a", &err), &err);
    assert_ok(serving_cert_issue(&others, "b", &err), &err);
    n_good = make_client(&ours, "proxy", "clientAuth", good, sizeof(good));
    n_server = make_client(&ours, "proxy", "serverAuth", server, sizeof(server));
    n_stranger = make_client(&others, "proxy", "clientAuth", stranger, sizeof(stranger));
    assert_ok(front_proxy_new(&f, &err), &err);
    assert_int_equal(front_proxy_check(f, good, n_good, &err), -ERR_DENIED); /* nothing known */
    assert_ok(update(f, ours.ca_cert, "[\"proxy\"]", &err), &err);
    assert_ok(front_proxy_check(f, good, n_good, &err), &err);
    assert_int_equal(front_proxy_check(f, NULL, 0, &err), -ERR_DENIED);
    assert_int_equal(front_proxy_check(f, server, n_server, &err), -ERR_DENIED);
    assert_int_equal(front_proxy_check(f, stranger, n_stranger, &err), -ERR_DENIED);
    assert_int_equal(front_proxy_check(f, good, n_good - 1, &err), -ERR_DENIED);
    good[n_good] = 0;
    assert_int_equal(front_proxy_check(f, good, n_good + 1, &err), -ERR_DENIED); /* a tail */

    /* rotation; what cannot be read changes nothing; an empty list allows every name */
    assert_int_equal(update(f, "no pem", "[]", &err), -ERR_INVALID);
    assert_int_equal(update(f, ours.ca_cert, "[1]", &err), -ERR_INVALID);
    assert_int_equal(update(f, ours.ca_cert, "proxy", &err), -ERR_INVALID);
    assert_ok(front_proxy_check(f, good, n_good, &err), &err);
    assert_ok(update(f, ours.ca_cert, "[\"else\"]", &err), &err);
    assert_int_equal(front_proxy_check(f, good, n_good, &err), -ERR_DENIED);
    assert_ok(update(f, ours.ca_cert, "[]", &err), &err);
    assert_ok(front_proxy_check(f, good, n_good, &err), &err);
    assert_ok(update(f, others.ca_cert, "[\"proxy\"]", &err), &err);
    assert_int_equal(front_proxy_check(f, good, n_good, &err), -ERR_DENIED);
    assert_ok(front_proxy_check(f, stranger, n_stranger, &err), &err);
    serving_cert_release(&ours);
    serving_cert_release(&others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sums_series_and_refuses_nonsense),
            cmocka_unit_test(means_and_labels),
            cmocka_unit_test(reads_gpus),
            cmocka_unit_test(an_xid_is_a_change),
            cmocka_unit_test(silent_is_not_idle),
            cmocka_unit_test(signals_refuse_what_is_no_answer),
            cmocka_unit_test(decides),
            cmocka_unit_test(follows_the_gpus),
            cmocka_unit_test(within_tolerance_nothing_moves),
            cmocka_unit_test(selects_as_kubernetes_does),
            cmocka_unit_test(judges_the_group),
            cmocka_unit_test(what_we_register_is_as_it_should_be),
            cmocka_unit_test(issues_and_judges_certificates),
            cmocka_unit_test(only_the_front_proxy_may_speak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
