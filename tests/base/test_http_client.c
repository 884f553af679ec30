/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http_client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/http_server.h"
#include "tests/certs.h"
#include "tests/support.h"

struct fixture {
    struct http_server *server;
    char seen_authorization[128];
    size_t peer_cert_len;
};

static void redirect(struct http_exchange *x, unsigned port)
{
    char location[128];
    const char *headers[] = {location, NULL};

    (void)snprintf(location, sizeof(location), "Location: http://localhost:%u/who", port);
    http_exchange_answer(x, 302, headers, "", 0);
}

static void hold(void *userdata)
{
    (void)userdata;
}

static void handle(void *userdata, struct http_exchange *x)
{
    static const char *const range[] = {"Content-Range: bytes 2-4/10", "ETag: \"v1\"",
                                        "Retry-After: 3", "X-Extra: more", NULL};
    struct fixture *f = userdata;
    const char *path = http_exchange_path(x), *auth = http_exchange_header(x, "Authorization");

    (void)http_exchange_peer_cert(x, &f->peer_cert_len);
    (void)snprintf(f->seen_authorization, sizeof(f->seen_authorization), "%s", auth ? auth : "");
    if (strcmp(path, "/range") == 0) {
        http_exchange_answer(x, 206, range, "cde", 3);
    } else if (strcmp(path, "/redirect") == 0) {
        redirect(x, http_server_port(f->server));
    } else if (strcmp(path, "/silent") == 0) {
        http_exchange_keep(x, hold, NULL);
        (void)usleep(300000);
        http_exchange_answer(x, 200, NULL, "late", 4);
    } else if (strcmp(path, "/big") == 0) {
        static char big[100000];

        http_exchange_answer(x, 200, NULL, big, sizeof(big));
    } else {
        http_exchange_answer(x, 200, NULL, http_exchange_method(x),
                             strlen(http_exchange_method(x)));
    }
}

static int setup(void **state)
{
    static struct fixture f;
    struct http_server_options o = {.handler = handle, .userdata = &f};
    struct err err;

    memset(&f, 0, sizeof(f));
    assert_ok(http_server_start(&o, &f.server, &err), &err);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    http_server_free(((struct fixture *)*state)->server);
    return 0;
}

static struct http_client *make(struct http_client_options o)
{
    struct http_client *c;
    struct err err;

    assert_ok(http_client_new(&o, &c, &err), &err);
    return c;
}

static const char *url_of(const struct fixture *f, const char *path)
{
    static char url[128];

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", http_server_port(f->server), path);
    return url;
}

static void an_answer_is_taken_apart(void **state)
{
    CLEANUP(http_client_freep) struct http_client *c = make((struct http_client_options){0});
    struct http_call call = {.url = url_of(*state, "/range"), .want_header = "X-Extra"};
    struct http_reply r;
    struct err err;

    assert_ok(http_client_do(c, &call, &r, &err), &err);
    assert_int_equal(r.status, 206);
    assert_string_equal(str_text(&r.body), "cde");
    assert_string_equal(r.etag, "\"v1\"");
    assert_string_equal(r.wanted, "more");
    assert_int_equal(r.range_start, 2);
    assert_int_equal(r.range_total, 10);
    assert_int_equal(r.content_length, 3);
    assert_int_equal(r.retry_after_ms, 3000);
    http_reply_release(&r);
}

static void methods_are_sent(void **state)
{
    static const char *const methods[] = {"GET", "DELETE", "PATCH", "PUT"};
    CLEANUP(http_client_freep) struct http_client *c = make((struct http_client_options){0});

    for (size_t i = 0; i < 4; i++) {
        struct http_call call = {.method = methods[i],
                                 .url = url_of(*state, "/"),
                                 .body = i >= 2 ? "{}" : NULL,
                                 .body_len = i >= 2 ? 2 : 0};
        struct http_reply r;
        struct err err;

        assert_ok(http_client_do(c, &call, &r, &err), &err);
        assert_string_equal(str_text(&r.body), methods[i]);
        http_reply_release(&r);
    }
}

static void a_token_stays_with_its_host(void **state)
{
    struct fixture *f = *state;
    CLEANUP(http_client_freep)
    struct http_client *c = make((struct http_client_options){.follow_redirects = true});
    struct http_call call = {.url = url_of(f, "/who"), .bearer = "secret"};
    struct http_reply r;
    struct err err;

    assert_ok(http_client_do(c, &call, &r, &err), &err);
    http_reply_release(&r);
    assert_string_equal(f->seen_authorization, "Bearer secret");
    call.url = url_of(f, "/redirect"); /* from 127.0.0.1 to localhost: another host */
    assert_ok(http_client_do(c, &call, &r, &err), &err);
    assert_int_equal(r.status, 200);
    http_reply_release(&r);
    assert_string_equal(f->seen_authorization, "");
}

static void failures_have_their_codes(void **state)
{
    static const struct {
        const char *path;
        struct http_client_options options;
        unsigned timeout_ms;
        size_t reply_max;
        int want;
    } cases[] = {
            {"/silent", {0}, 100, 0, -ERR_TIMEOUT},
            {"/big", {0}, 0, 1000, -ERR_INVALID},
            {"/", {.refuse_private = true}, 0, 0, -ERR_DENIED},
    };
    struct err err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(http_client_freep) struct http_client *c = make(cases[i].options);
        struct http_call call = {.url = url_of(*state, cases[i].path),
                                 .timeout_ms = cases[i].timeout_ms,
                                 .reply_max = cases[i].reply_max};
        struct http_reply r;

        assert_int_equal(http_client_do(c, &call, &r, &err), cases[i].want);
        http_reply_release(&r);
    }
}

static void nobody_there_is_unavailable(void **state)
{
    CLEANUP(http_client_freep) struct http_client *c = make((struct http_client_options){0});
    struct http_call call = {.url = "http://127.0.0.1:1/"};
    struct http_reply r;
    struct err err;

    (void)state;
    assert_int_equal(http_client_do(c, &call, &r, &err), -ERR_UNAVAILABLE);
    assert_int_equal(r.status, 0);
    http_reply_release(&r);
}

static void *cancel_soon(void *flag)
{
    (void)usleep(50000);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

static void a_call_can_be_cancelled(void **state)
{
    CLEANUP(http_client_freep) struct http_client *c = make((struct http_client_options){0});
    atomic_bool cancel = false;
    struct http_call call = {.url = url_of(*state, "/silent"), .cancel = &cancel};
    struct http_reply r;
    struct err err;
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    assert_int_equal(http_client_do(c, &call, &r, &err), -ERR_CANCELED);
    (void)pthread_join(t, NULL);
    http_reply_release(&r);
}

struct count {
    int n_done, n_bytes;
};

static int count_bytes(void *userdata, const char *data, size_t len)
{
    (void)data;
    ((struct count *)userdata)->n_bytes += (int)len;
    return 0;
}

static void count_done(void *userdata, int r, const struct http_reply *reply, const struct err *err)
{
    struct err copy = *err;

    assert_ok(r, &copy);
    assert_int_equal(reply->status, 200);
    ((struct count *)userdata)->n_done++;
}

static void a_loop_runs_many_calls(void **state)
{
    CLEANUP(http_client_freep) struct http_client *c = make((struct http_client_options){0});
    CLEANUP(http_loop_freep) struct http_loop *loop = NULL;
    char urls[8][128];
    struct http_call calls[8];
    struct count count = {0};
    struct http_task *cancelled;
    struct err err;

    assert_ok(http_loop_new(&loop, &err), &err);
    for (int i = 0; i < 8; i++) {
        (void)snprintf(urls[i], sizeof(urls[i]), "%s", url_of(*state, "/big"));
        calls[i] = (struct http_call){.url = urls[i], .on_body = count_bytes, .userdata = &count};
        assert_ok(http_loop_start(loop, c, &calls[i], count_done, &cancelled, &err), &err);
    }
    http_loop_cancel(loop, cancelled); /* the last one */
    for (int i = 0; i < 500 && count.n_done < 7; i++)
        http_loop_run(loop, 10);
    assert_int_equal(count.n_done, 7);
    assert_int_equal(count.n_bytes, 700000);
}

/* TLS: a CA of our own, a client certificate, another name, a replaced certificate */

static int get(const struct http_client_options *o, const char *url, struct err *err)
{
    CLEANUP(http_client_freep) struct http_client *c = make(*o);
    struct http_call call = {.url = url, .timeout_ms = 5000};
    struct http_reply r;
    int code = http_client_do(c, &call, &r, err);

    http_reply_release(&r);
    return code;
}

static void certificates_are_checked_on_both_sides(void **state)
{
    struct test_cert ca = {0}, other_ca = {0}, server = {0}, client = {0}, second = {0};
    struct fixture f = {0};
    struct http_server_options so = {.handler = handle, .userdata = &f, .want_client_cert = true};
    struct http_client_options co = {0};
    struct err err;
    char url[128], plain[160];

    (void)state;
    test_cert_make(&ca, "ca", NULL, NULL);
    test_cert_make(&other_ca, "other", NULL, NULL);
    test_cert_make(&server, "s", "IP:127.0.0.1,DNS:a.test", &ca);
    test_cert_make(&second, "s2", "IP:127.0.0.1", &other_ca);
    test_cert_make(&client, "c", NULL, &ca);
    so.cert_pem = server.cert_pem;
    so.key_pem = server.key_pem;
    assert_ok(http_server_start(&so, &f.server, &err), &err);
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", http_server_port(f.server));

    assert_int_equal(get(&co, url, &err), -ERR_DENIED); /* the system knows no such CA */
    co.ca_pem = other_ca.cert_pem;
    assert_int_equal(get(&co, url, &err), -ERR_DENIED);
    co.ca_pem = ca.cert_pem;
    assert_ok(get(&co, url, &err), &err);
    assert_int_equal(f.peer_cert_len, 0);
    co.cert_pem = client.cert_pem;
    co.key_pem = client.key_pem;
    assert_ok(get(&co, url, &err), &err);
    assert_true(f.peer_cert_len > 0); /* any certificate arrives: the caller verifies */
    co.tls_server_name = "a.test";
    assert_ok(get(&co, url, &err), &err);
    co.tls_server_name = "b.test";
    assert_int_equal(get(&co, url, &err), -ERR_DENIED);
    co.tls_server_name = NULL;
    co.follow_redirects = true;
    (void)snprintf(plain, sizeof(plain), "%sredirect", url);
    assert_int_equal(get(&co, plain, &err), -ERR_INVALID); /* to http: no */
    assert_non_null(strstr(err.msg, "rotocol"));

    assert_int_equal(http_server_set_cert(f.server, "no", second.key_pem, &err), -ERR_INVALID);
    assert_ok(get(&co, url, &err), &err); /* the old one still stands */
    assert_ok(http_server_set_cert(f.server, second.cert_pem, second.key_pem, &err), &err);
    assert_int_equal(get(&co, url, &err), -ERR_DENIED);
    co.ca_pem = other_ca.cert_pem;
    assert_ok(get(&co, url, &err), &err);

    http_server_free(f.server);
    test_cert_release(&ca);
    test_cert_release(&other_ca);
    test_cert_release(&server);
    test_cert_release(&second);
    test_cert_release(&client);
}

static void certificate_files_are_read_again(void **state)
{
    char dir[] = "/tmp/penstock-tls-XXXXXX", cert[64], key[64], url[128];
    struct test_cert a = {0}, b = {0};
    struct fixture f = {0};
    struct http_server_options so = {
            .handler = handle, .userdata = &f, .cert_file = cert, .key_file = key};
    struct http_client_options co = {0};
    struct err err;
    int r = -1;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(cert, sizeof(cert), "%s/cert", dir);
    (void)snprintf(key, sizeof(key), "%s/key", dir);
    test_cert_make(&a, "a", "IP:127.0.0.1", NULL);
    test_cert_make(&b, "b", "IP:127.0.0.1", NULL);
    assert_ok(file_write_atomic(cert, a.cert_pem, strlen(a.cert_pem), 0600, &err), &err);
    assert_ok(file_write_atomic(key, a.key_pem, strlen(a.key_pem), 0600, &err), &err);
    assert_ok(http_server_start(&so, &f.server, &err), &err);
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/", http_server_port(f.server));
    co.ca_pem = a.cert_pem;
    assert_ok(get(&co, url, &err), &err);
    assert_ok(file_write_atomic(cert, b.cert_pem, strlen(b.cert_pem), 0600, &err), &err);
    assert_ok(file_write_atomic(key, b.key_pem, strlen(b.key_pem), 0600, &err), &err);
    co.ca_pem = b.cert_pem;
    for (int i = 0; i < 100 && r != 0; i++) {
        (void)usleep(100000);
        r = get(&co, url, &err);
    }
    assert_ok(r, &err);
    http_server_free(f.server);
    test_cert_release(&a);
    test_cert_release(&b);
    (void)unlink(cert);
    (void)unlink(key);
    (void)rmdir(dir);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            T(an_answer_is_taken_apart),
            T(methods_are_sent),
            T(a_token_stays_with_its_host),
            T(failures_have_their_codes),
            T(nobody_there_is_unavailable),
            T(a_call_can_be_cancelled),
            T(a_loop_runs_many_calls),
            cmocka_unit_test(certificates_are_checked_on_both_sides),
            cmocka_unit_test(certificate_files_are_read_again),
    };

    http_client_global_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
