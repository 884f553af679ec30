/* SPDX-License-Identifier: Apache-2.0
 *
 * The API client's parts: credentials, answers, events; and the client and loop against a small
 * server on loopback.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/http_server.h"
#include "operator/kube/answer.h"
#include "operator/kube/base64.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/kube/kubeconfig.h"
#include "operator/kube/loop.h"
#include "tests/support.h"

static void base64_both_ways(void **state)
{
    static const struct {
        const char *text, *plain; /* plain NULL: refused */
    } cases[] = {{"", ""},           {"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"},
                 {"Zm 9v\n", "foo"}, {"Zg=", NULL}, {"Z", NULL},    {"Zg==Zg==", NULL},
                 {"Z*==", NULL},     {"=", NULL},   {"Zg===", NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(str_release) struct str out = STR_INIT(100), back = STR_INIT(100);
        struct err err = {0};
        int r = base64_decode(cases[i].text, &out, &err);

        assert_int_equal(r, cases[i].plain ? 0 : -ERR_INVALID);
        if (!cases[i].plain)
            continue;
        assert_string_equal(str_text(&out), cases[i].plain);
        base64_encode(str_text(&out), out.len, &back);
        if (!strchr(cases[i].text, ' '))
            assert_string_equal(str_text(&back), cases[i].text);
    }
}

#define CONFIG(cluster, user)                                                \
    "apiVersion: v1\nkind: Config\ncurrent-context: x\n"                     \
    "contexts: [{name: x, context: {cluster: c, user: u, namespace: ns}}]\n" \
    "clusters: [{name: c, cluster: {" cluster "}}]\nusers: [{name: u, user: {" user "}}]\n"

static void reads_a_kubeconfig(void **state)
{
    const char *text = CONFIG("server: 'https://h:6443/', certificate-authority: ca.crt",
                              "client-certificate-data: Zm9v, client-key: /abs/key, tokenFile: t");
    struct kubeconfig k;
    struct err err = {0};

    (void)state;
    assert_ok(kubeconfig_parse(text, strlen(text), "/etc/kube", &k, &err), &err);
    assert_string_equal(k.server, "https://h:6443");
    assert_string_equal(k.ca_file, "/etc/kube/ca.crt");
    assert_string_equal(k.cert_pem, "foo");
    assert_string_equal(k.key_file, "/abs/key");
    assert_string_equal(k.token_file, "/etc/kube/t");
    assert_string_equal(k.namespace, "ns");
    kubeconfig_release(&k);
}

static void refuses_a_kubeconfig_and_says_why(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
            {"a: b", "no current-context"},
            {"current-context: x", "no context \"x\""},
            {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]",
             "no cluster \"c\""},
            {CONFIG("server: 'nonsense'", "token: t"), "cluster's server"},
            {CONFIG("server: 'https://h'", "exec: {command: aws}"), "\"exec\" is not supported"},
            {CONFIG("server: 'https://h'", "client-certificate-data: '*'"), "not base64"},
            {CONFIG("server: 'https://h'", "client-certificate: c"), "go together"},
            {": [", "kubeconfig"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kubeconfig k;
        struct err err = {0};

        assert_int_equal(kubeconfig_parse(cases[i].text, strlen(cases[i].text), ".", &k, &err),
                         -ERR_INVALID);
        if (!strstr(err.msg, cases[i].message))
            fail_msg("\"%s\" lacks \"%s\"", err.msg, cases[i].message);
    }
}

static int parse_config(struct err *err)
{
    const char *text = CONFIG("server: 'https://h', certificate-authority-data: Zm9v", "token: t");
    struct kubeconfig k;
    int r = kubeconfig_parse(text, strlen(text), ".", &k, err);

    if (r == 0)
        kubeconfig_release(&k);
    return r;
}

static void kubeconfig_survives_every_oom(void **state)
{
    struct err err = {0};

    (void)state;
    mem_sweep(parse_config(&err));
}

static void answers_become_errors(void **state)
{
    static const struct {
        int status;
        enum err_code code;
    } cases[] = {{400, ERR_INVALID},     {401, ERR_DENIED},   {403, ERR_DENIED},
                 {404, ERR_NOT_FOUND},   {409, ERR_CONFLICT}, {410, ERR_CONFLICT},
                 {422, ERR_INVALID},     {429, ERR_BUSY},     {500, ERR_UNAVAILABLE},
                 {503, ERR_UNAVAILABLE}, {504, ERR_TIMEOUT}};
    const char *body = "{\"message\":\"because\"}";

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};

        assert_int_equal(kube_answer_error(cases[i].status, body, strlen(body), &err),
                         -(int)cases[i].code);
        assert_non_null(strstr(err.msg, "because"));
        assert_int_equal(kube_answer_error(cases[i].status, "<html>", 6, &err),
                         -(int)cases[i].code);
    }
}

static void a_namespace_that_goes_ends_the_work(void **state)
{
    const char *body =
            "{\"message\":\"because\",\"details\":{\"causes\":["
            "{\"reason\":\"FieldValueInvalid\"},{\"reason\":\"NamespaceTerminating\"}]}}";
    struct err err = {0};

    (void)state;
    assert_int_equal(kube_answer_error(403, body, strlen(body), &err), -ERR_CANCELED);
}

static void paths_are_encoded(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(500);

    (void)state;
    kube_path(&KUBE_POD, "n/../x", "a b", "log", &out);
    assert_string_equal(str_text(&out), "/api/v1/namespaces/n%2F..%2Fx/pods/a%20b/log");
    str_clear(&out);
    kube_path(&KUBE_AUTOSCALER, NULL, NULL, NULL, &out);
    assert_string_equal(str_text(&out), "/apis/autoscaling/v2/horizontalpodautoscalers");
}

/* --- events --- */

static void repeats_become_a_series_and_objects_have_a_budget(void **state)
{
    struct clock_fake clock;
    CLEANUP(events_freep) struct events *e = NULL;
    CLEANUP(str_release) struct str name = STR_INIT(1024), body = STR_INIT(8192);
    struct event ev = {.kind = "K",
                       .api_version = "g/v1",
                       .namespace = "n",
                       .name = "x",
                       .uid = "u",
                       .reason = "R",
                       .action = "A",
                       .note = "note"};
    struct err err = {0};
    int created = 0;

    (void)state;
    clock_fake_init(&clock, 1787392800000u);
    assert_ok(events_new(&clock.clock, "c/o", "me", &e, &err), &err);
    assert_int_equal(events_decide(e, &ev, &name, &body), EVENT_CREATE);
    assert_non_null(strstr(str_text(&body), "\"eventTime\":\"2026-08-22T10:00:00.000000Z\""));
    assert_non_null(strstr(str_text(&body), "\"type\":\"Normal\""));
    assert_int_equal(events_decide(e, &ev, &name, &body), EVENT_PATCH);
    assert_non_null(strstr(str_text(&body), "\"count\":2"));
    for (int i = 0; i < 100; i++)
        assert_int_equal(events_decide(e, &ev, &name, &body), EVENT_DROP);
    for (int i = 0; i < 31; i++) { /* it goes on for half an hour: one refresh */
        clock_fake_advance_ms(&clock, 60000);
        assert_int_equal(events_decide(e, &ev, &name, &body), i == 29 ? EVENT_PATCH : EVENT_DROP);
    }
    clock_fake_advance_ms(&clock, EVENTS_FORGET_MS);
    assert_int_equal(events_decide(e, &ev, &name, &body), EVENT_CREATE);

    ev.uid = "flapping";
    for (int i = 0; i < 100; i++) {
        char note[16];

        (void)snprintf(note, sizeof(note), "%d", i);
        ev.note = note;
        created += events_decide(e, &ev, &name, &body) == EVENT_CREATE;
    }
    assert_int_equal(created, EVENTS_BURST);
}

static void notes_are_cut_between_characters(void **state)
{
    struct clock_fake clock;
    CLEANUP(events_freep) struct events *e = NULL;
    CLEANUP(str_release) struct str name = STR_INIT(1024), body = STR_INIT(16384);
    CLEANUP(str_release) struct str note = STR_INIT(8192);
    struct event ev = {.kind = "K",
                       .api_version = "v1",
                       .namespace = "n",
                       .name = "x",
                       .uid = "u",
                       .reason = "R",
                       .action = "A"};
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 0);
    assert_ok(events_new(&clock.clock, "c/o", "me", &e, &err), &err);
    str_addc(&note, 'x');
    for (int i = 0; i < 600; i++)
        str_adds(&note, "\xc3\xa9"); /* byte 1000 is in the middle of one */
    ev.note = str_text(&note);
    assert_int_equal(events_decide(e, &ev, &name, &body), EVENT_CREATE);
    assert_null(strstr(str_text(&body), "\xef\xbf\xbd"));
    assert_true(body.len < 1500);
}

/* --- a server on loopback --- */

struct stub {
    struct http_server *server;
    char folder[64], config[128], token[128];
    atomic_int n_list, n_watch, n_put;
    atomic_bool refuse_old_token;
    char last[2048]; /* method, path and body of the last write */
};

static void answer(struct http_exchange *x, int status, const char *body)
{
    http_exchange_answer(x, status, NULL, body, strlen(body));
}

/* A watch that is cut into single bytes. */
static void stream(struct http_exchange *x)
{
    const char *text = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\","
                       "\"resourceVersion\":\"8\"}}}\n";
    struct err err = {0};

    http_exchange_keep(x, NULL, NULL);
    http_exchange_stream(x, 200, NULL);
    for (const char *p = text; *p; p++)
        (void)!http_exchange_write(x, p, 1, &err);
    http_exchange_end(x);
}

static void handle(void *userdata, struct http_exchange *x)
{
    struct stub *s = userdata;
    const char *method = http_exchange_method(x), *token = http_exchange_header(x, "Authorization");
    const char *body;
    size_t len;

    if (atomic_load(&s->refuse_old_token) && (!token || strcmp(token, "Bearer new") != 0)) {
        answer(x, 401, "{\"message\":\"Unauthorized\"}");
        return;
    }
    if (strcmp(method, "GET") != 0) {
        body = http_exchange_body(x, &len);
        (void)snprintf(s->last, sizeof(s->last), "%s %s?%s %s %.*s", method, http_exchange_path(x),
                       http_exchange_query(x), http_exchange_header(x, "Content-Type"), (int)len,
                       body ? body : "");
        (void)atomic_fetch_add(&s->n_put, 1);
        answer(x, 200, "{\"metadata\":{\"resourceVersion\":\"3\"}}");
    } else if (strstr(http_exchange_query(x), "watch=1")) {
        (void)atomic_fetch_add(&s->n_watch, 1);
        stream(x);
    } else {
        (void)atomic_fetch_add(&s->n_list, 1);
        answer(x, 200,
               "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":["
               "{\"metadata\":{\"name\":\"a\"}}]}");
    }
}

static int stub_up(void **state)
{
    struct stub *s = mem_calloc(1, sizeof(*s));
    struct http_server_options o = {.handler = handle, .userdata = s, .n_threads = 1};
    CLEANUP(str_release) struct str text = STR_INIT(4096);
    struct err err = {0};

    *state = s;
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/test-kube-XXXXXX");
    if (!mkdtemp(s->folder) || http_server_start(&o, &s->server, &err))
        return -1;
    (void)snprintf(s->config, sizeof(s->config), "%s/config", s->folder);
    (void)snprintf(s->token, sizeof(s->token), "%s/token", s->folder);
    str_addf(&text,
             "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
             "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:%u'}}]\n"
             "users: [{name: u, user: {tokenFile: token}}]\n",
             http_server_port(s->server));
    if (file_write_atomic(s->token, "old\n", 4, 0600, &err))
        return -1;
    return file_write_atomic(s->config, text.data, text.len, 0600, &err);
}

static int stub_down(void **state)
{
    struct stub *s = *state;

    http_server_free(s->server);
    (void)unlink(s->config);
    (void)unlink(s->token);
    (void)rmdir(s->folder);
    mem_free(s);
    return 0;
}

static void the_token_is_read_again(void **state)
{
    struct stub *s = *state;
    struct clock_fake clock;
    CLEANUP(kube_auth_freep) struct kube_auth *auth = NULL;
    CLEANUP(str_release) struct str token = STR_INIT(KUBE_TOKEN_MAX);
    struct err err = {0};

    clock_fake_init(&clock, 0);
    assert_ok(kube_auth_load(s->config, &clock.clock, &auth, &err), &err);
    assert_ok(kube_auth_token(auth, &token, &err), &err);
    assert_string_equal(str_text(&token), "old");
    assert_ok(file_write_atomic(s->token, "new", 3, 0600, &err), &err);
    clock_fake_advance_ms(&clock, 59000);
    assert_ok(kube_auth_token(auth, &token, &err), &err);
    assert_string_equal(str_text(&token), "old");
    clock_fake_advance_ms(&clock, 1000);
    assert_ok(kube_auth_token(auth, &token, &err), &err);
    assert_string_equal(str_text(&token), "new");
    /* The file is away for a moment: the last token serves on. */
    (void)unlink(s->token);
    kube_auth_refused(auth);
    assert_ok(kube_auth_token(auth, &token, &err), &err);
    assert_string_equal(str_text(&token), "new");
}

static bool no(void *userdata)
{
    (void)userdata;
    return false;
}

static void the_client_applies_deletes_and_minds_the_lease(void **state)
{
    struct stub *s = *state;
    CLEANUP(kube_auth_freep) struct kube_auth *auth = NULL;
    CLEANUP(kube_client_freep) struct kube_client *c = NULL, *follower = NULL;
    CLEANUP(json_freep) cJSON *answer_json = NULL;
    struct kube_client_options o = {0};
    struct err err = {0};

    assert_ok(kube_auth_load(s->config, clock_system(), &auth, &err), &err);
    o.auth = auth;
    assert_ok(kube_client_new(&o, &c, &err), &err);
    assert_ok(kube_apply(c, &KUBE_SERVICE, "n", "x", "status", "me", "{}", &answer_json, &err),
              &err);
    assert_string_equal(s->last, "PATCH /api/v1/namespaces/n/services/x/status?"
                                 "force=true&fieldManager=me application/apply-patch+yaml {}");
    assert_string_equal(json_path_str(answer_json, "metadata.resourceVersion", ""), "3");
    assert_ok(kube_delete(c, &KUBE_SERVICE, "n", "x", "uid-7", &err), &err);
    assert_non_null(strstr(s->last, "\"preconditions\":{\"uid\":\"uid-7\"}"));

    o.may_write = no;
    assert_ok(kube_client_new(&o, &follower, &err), &err);
    assert_int_equal(kube_delete(follower, &KUBE_SERVICE, "n", "x", "u", &err), -ERR_CANCELED);
    assert_int_equal(atomic_load(&s->n_put), 2);

    /* A 401 reads the token again and tries once more. */
    atomic_store(&s->refuse_old_token, true);
    assert_ok(file_write_atomic(s->token, "new", 3, 0600, &err), &err);
    assert_ok(kube_get(c, &KUBE_POD, "n", "x", NULL, &err), &err);
    assert_ok(file_write_atomic(s->token, "bad", 3, 0600, &err), &err);
    kube_auth_refused(auth);
    assert_int_equal(kube_get(c, &KUBE_POD, "n", "x", NULL, &err), -ERR_DENIED);
}

struct seen {
    char log[256];
};

static void log_object(void *userdata, enum watch_event e, cJSON *obj)
{
    struct seen *seen = userdata;
    size_t len = strlen(seen->log);

    (void)e;
    (void)snprintf(seen->log + len, sizeof(seen->log) - len, "%s/%s ", json_str(obj, "kind", "-"),
                   json_path_str(obj, "metadata.name", "?"));
    cJSON_Delete(obj);
}

static void ignore(void *userdata)
{
    (void)userdata;
}

static void ignore_version(void *userdata, const char *version)
{
    (void)userdata;
    (void)version;
}

static void ignore_trouble(void *userdata, const struct err *err, uint64_t wait_ms)
{
    (void)userdata;
    (void)err;
    (void)wait_ms;
}

static void the_loop_lists_watches_and_resumes(void **state)
{
    struct stub *s = *state;
    struct seen seen = {""};
    CLEANUP(kube_auth_freep) struct kube_auth *auth = NULL;
    CLEANUP(kube_loop_freep) struct kube_loop *loop = NULL;
    struct watch_options o = {.resource = &KUBE_POD,
                              .clock = clock_system(),
                              .seed = 1,
                              .on_list_begin = ignore,
                              .on_object = log_object,
                              .on_list_end = ignore,
                              .on_version = ignore_version,
                              .on_trouble = ignore_trouble,
                              .userdata = &seen};
    struct err err = {0};

    assert_ok(kube_auth_load(s->config, clock_system(), &auth, &err), &err);
    assert_ok(kube_loop_new(auth, clock_system(), NULL, &loop, &err), &err);
    assert_ok(kube_loop_watch(loop, &o, &err), &err);
    for (int i = 0; i < 200 && atomic_load(&s->n_watch) < 2; i++)
        kube_loop_run(loop, 50);
    assert_int_equal(atomic_load(&s->n_list), 1); /* the second stream needed no list */
    assert_memory_equal(seen.log, "Pod/a -/b ", 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(base64_both_ways),
            cmocka_unit_test(reads_a_kubeconfig),
            cmocka_unit_test(refuses_a_kubeconfig_and_says_why),
            cmocka_unit_test(kubeconfig_survives_every_oom),
            cmocka_unit_test(answers_become_errors),
            cmocka_unit_test(a_namespace_that_goes_ends_the_work),
            cmocka_unit_test(paths_are_encoded),
            cmocka_unit_test(repeats_become_a_series_and_objects_have_a_budget),
            cmocka_unit_test(notes_are_cut_between_characters),
            cmocka_unit_test_setup_teardown(the_token_is_read_again, stub_up, stub_down),
            cmocka_unit_test_setup_teardown(the_client_applies_deletes_and_minds_the_lease, stub_up,
                                            stub_down),
            cmocka_unit_test_setup_teardown(the_loop_lists_watches_and_resumes, stub_up, stub_down),
    };
    http_client_global_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
