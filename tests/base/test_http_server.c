/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_client.h"
#include "base/mailbox.h"
#include "tests/support.h"

struct fixture {
    struct http_server *server;
    struct mailbox *kept;
    atomic_int n_gone;
};

static void on_gone(void *userdata)
{
    struct fixture *f = userdata;

    atomic_fetch_add(&f->n_gone, 1);
}

/* /echo answers the body; /keep hands the exchange to the test; else 404 with the raw target. */
static void handle(void *userdata, struct http_exchange *x)
{
    struct fixture *f = userdata;
    size_t len;
    const char *body = http_exchange_body(x, &len);

    if (strcmp(http_exchange_path(x), "/echo") == 0) {
        http_exchange_answer(x, 200, NULL, body, len);
    } else if (strcmp(http_exchange_path(x), "/keep") == 0) {
        http_exchange_keep(x, on_gone, f);
        assert_true(mailbox_put(f->kept, x));
    } else {
        http_exchange_answer(x, 404, NULL, http_exchange_path(x), strlen(http_exchange_path(x)));
    }
}

static int setup_with(void **state, struct http_server_options o)
{
    static struct fixture f;
    struct err err;

    memset(&f, 0, sizeof(f));
    assert_ok(mailbox_new(64, &f.kept, &err), &err);
    o.handler = handle;
    o.userdata = &f;
    assert_ok(http_server_start(&o, &f.server, &err), &err);
    *state = &f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, (struct http_server_options){.body_bytes_max = 1000,
                                                          .header_timeout_ms = 400,
                                                          .body_timeout_ms = 600,
                                                          .stream_bytes_max = 1 << 16});
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_server_free(f->server);
    mailbox_free(f->kept);
    return 0;
}

static int dial(const struct fixture *f)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(http_server_port(f->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

/* Send raw bytes, read until the peer closes or 5 s passed; the status, or 0 for a bare close. */
static int raw_status(const struct fixture *f, const char *bytes, size_t len, char *reply,
                      size_t size)
{
    int fd = dial(f), status = 0;
    size_t n = 0;
    ssize_t got;

    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
    while (n + 1 < size && (got = recv(fd, reply + n, size - n - 1, 0)) > 0)
        n += (size_t)got;
    reply[n] = '\0';
    (void)close(fd);
    if (sscanf(reply, "HTTP/1.%*d %d", &status) != 1)
        return 0;
    return status;
}

#define GET_HEAD "GET /x HTTP/1.1\r\nHost: a\r\n"

static void malformed_requests_are_refused_and_the_connection_closed(void **state)
{
    static const char *const requests[] = {
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
            "chunked\r\n\r\n0\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n",
            "POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            GET_HEAD "Host: b\r\n\r\n",
            GET_HEAD "Authorization: a\r\nAuthorization: b\r\n\r\n",
            GET_HEAD "X: a\rb\r\n\r\n",
            GET_HEAD ": empty\r\n\r\n",
            "GET /x HTTP/1.1\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost:\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a/#\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: u@a\r\n\r\n",
            "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /x HTTP/1.9\r\nHost: a\r\n\r\n",
            "G@T /x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a?b=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    char reply[4096];

    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        int status = raw_status(*state, requests[i], strlen(requests[i]), reply, sizeof(reply));

        /* the read only ends because the server closed */
        if (status != 400)
            fail_msg("request %zu got %d: %s", i, status, requests[i]);
    }
}

static void a_nul_in_a_header_is_refused(void **state)
{
    static const char request[] = GET_HEAD "X: a\0b\r\n\r\n";
    char reply[4096];

    assert_int_equal(raw_status(*state, request, sizeof(request) - 1, reply, sizeof(reply)), 400);
}

static void the_path_is_raw(void **state)
{
    static const char request[] = "GET /a%41/../b?q=%20 HTTP/1.1\r\nHost: a\r\nConnection: "
                                  "close\r\n\r\n";
    char reply[4096];

    assert_int_equal(raw_status(*state, request, sizeof(request) - 1, reply, sizeof(reply)), 404);
    assert_non_null(strstr(reply, "\r\n\r\n/a%41/../b"));
    assert_null(strstr(reply, "?q"));
}

static void bodies_over_the_limit_get_413(void **state)
{
    static const char huge[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n";
    char whole[2000], chunked[2000], reply[4096];
    int m = snprintf(whole, sizeof(whole),
                     "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n%01001d", 7);
    int n = snprintf(chunked, sizeof(chunked),
                     "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n3e9\r\n%01001d\r\n0\r\n\r\n",
                     7);

    assert_int_equal(raw_status(*state, huge, sizeof(huge) - 1, reply, sizeof(reply)), 413);
    assert_int_equal(raw_status(*state, whole, (size_t)m, reply, sizeof(reply)), 413);
    assert_int_equal(raw_status(*state, chunked, (size_t)n, reply, sizeof(reply)), 413);
}

/* A chunked body tells no length: what is thrown away has a limit all the same. */
static void a_chunked_body_without_end_is_cut(void **state)
{
    static const char head[] = "POST /echo HTTP/1.1\r\nHost: a\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    int fd = dial(*state), sent = 0;
    char chunk[520];
    int n = snprintf(chunk, sizeof(chunk), "200\r\n%0512d\r\n", 7);

    assert_true(send(fd, head, sizeof(head) - 1, MSG_NOSIGNAL) > 0);
    while (sent < 1000 && send(fd, chunk, (size_t)n, MSG_NOSIGNAL) == n) {
        sent++;
        (void)usleep(1000);
    }
    (void)close(fd);
    assert_in_range(sent, 16, 200);
}

/* Sends one byte each 50 ms: the deadline must not start anew with each of them. */
static void a_trickling_client_is_cut_off(void **state)
{
    static const char *const starts[] = {
            "GET /x HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n"};

    for (size_t i = 0; i < 2; i++) {
        uint64_t start = clock_ms(clock_system());
        int fd = dial(*state);
        char byte;

        assert_true(send(fd, starts[i], strlen(starts[i]), MSG_NOSIGNAL) > 0);
        while (send(fd, "a", 1, MSG_NOSIGNAL) == 1 && clock_ms(clock_system()) - start < 4000) {
            if (recv(fd, &byte, 1, MSG_DONTWAIT) == 0)
                break;
            (void)usleep(50000);
        }
        assert_in_range(clock_ms(clock_system()) - start, 300, 2500);
        (void)close(fd);
    }
}

static void post(const struct fixture *f, const char *path, const char *body,
                 struct http_reply *reply)
{
    struct http_client_options o = {0};
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    struct err err;
    char url[64];
    struct http_call call = {.url = url, .body = body, .body_len = strlen(body)};

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", http_server_port(f->server), path);
    assert_ok(http_client_new(&o, &c, &err), &err);
    assert_ok(http_client_do(c, &call, reply, &err), &err);
}

static void a_body_comes_back(void **state)
{
    struct http_reply reply;

    post(*state, "/echo", "hello", &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(str_text(&reply.body), "hello");
    assert_string_equal(reply.content_type, "application/json");
    http_reply_release(&reply);
}

static void *answer_later(void *userdata)
{
    static const char *const headers[] = {"Content-Type: text/event-stream", NULL};
    struct fixture *f = userdata;
    struct http_exchange *x = mailbox_get(f->kept, 5000);
    struct err err;

    assert_non_null(x);
    (void)usleep(20000);
    http_exchange_stream(x, 200, headers);
    for (int i = 0; i < 50; i++) {
        assert_ok(http_exchange_write(x, "piece ", 6, &err), &err);
        if (i % 10 == 0)
            (void)usleep(2000);
    }
    http_exchange_end(x);
    return NULL;
}

static void a_kept_exchange_streams_from_another_thread(void **state)
{
    for (int round = 0; round < 20; round++) {
        struct http_reply reply;
        pthread_t t;

        assert_int_equal(pthread_create(&t, NULL, answer_later, *state), 0);
        post(*state, "/keep", "x", &reply);
        (void)pthread_join(t, NULL);
        assert_int_equal(reply.status, 200);
        assert_string_equal(reply.content_type, "text/event-stream");
        assert_int_equal(reply.body.len, 300);
        http_reply_release(&reply);
    }
}

static struct http_exchange *keep_one(struct fixture *f, int *ret_fd)
{
    static const char request[] = "POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    struct http_exchange *x;

    *ret_fd = dial(f);
    assert_true(send(*ret_fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0);
    x = mailbox_get(f->kept, 5000);
    assert_non_null(x);
    return x;
}

static void wait_gone(struct fixture *f, int n)
{
    for (int i = 0; i < 200 && atomic_load(&f->n_gone) < n; i++)
        (void)usleep(10000);
    assert_int_equal(atomic_load(&f->n_gone), n);
}

static void a_client_that_leaves_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct http_exchange *x;
    struct err err;
    int fd;

    x = keep_one(f, &fd); /* while suspended, before any answer */
    (void)close(fd);
    wait_gone(f, 1);
    assert_true(http_exchange_is_gone(x));
    http_exchange_answer(x, 200, NULL, "late", 4);

    x = keep_one(f, &fd); /* in mid-stream, while nothing is to be sent */
    http_exchange_stream(x, 200, NULL);
    assert_ok(http_exchange_write(x, "a", 1, &err), &err);
    (void)usleep(50000);
    (void)close(fd);
    wait_gone(f, 2);
    assert_int_equal(http_exchange_write(x, "b", 1, &err), -ERR_CANCELED);
    http_exchange_end(x);
}

static void a_slow_reader_is_bounded(void **state)
{
    struct fixture *f = *state;
    static const char block[4096];
    struct http_exchange *x;
    struct err err;
    int fd, r = 0;

    x = keep_one(f, &fd);
    http_exchange_stream(x, 200, NULL);
    for (int i = 0; i < 10000 && r == 0; i++)
        r = http_exchange_write(x, block, sizeof(block), &err);
    assert_int_equal(r, -ERR_BUSY);
    http_exchange_end(x);
    (void)close(fd);
}

static void *end_when_gone(void *userdata)
{
    struct fixture *f = userdata;
    struct http_exchange *x = mailbox_get(f->kept, 5000);

    while (!http_exchange_is_gone(x))
        (void)usleep(1000);
    http_exchange_end(x);
    return NULL;
}

static void stopping_ends_kept_exchanges(void **state)
{
    static const char request[] = "POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    struct fixture *f = *state;
    pthread_t t;
    int fd = dial(f);

    assert_true(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0);
    assert_int_equal(pthread_create(&t, NULL, end_when_gone, f), 0);
    (void)usleep(50000);
    http_server_free(f->server); /* would abort the process if a connection stayed suspended */
    f->server = NULL;
    (void)pthread_join(t, NULL);
    (void)close(fd);
}

/* Sends a request and its end at once; the answer comes, and the connection does not linger. */
static void a_half_closed_client_does_not_linger(void **state)
{
    static const char request[] = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    char reply[4096];
    int fd = dial(*state);
    ssize_t n = 1;
    size_t got = 0;

    assert_true(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0);
    (void)shutdown(fd, SHUT_WR);
    while (got + 1 < sizeof(reply) && (n = recv(fd, reply + got, sizeof(reply) - got, 0)) > 0)
        got += (size_t)n;
    assert_int_equal(n, 0); /* closed, long before the idle timeout */
    assert_true(got > 12 && memcmp(reply, "HTTP/1.1 404", 12) == 0);
    (void)close(fd);
}

static void draining_closes_connections(void **state)
{
    struct fixture *f = *state;
    static const char request[] = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    char reply[4096];

    http_server_drain(f->server);
    assert_int_equal(raw_status(f, request, sizeof(request) - 1, reply, sizeof(reply)), 404);
    assert_non_null(strstr(reply, "Connection: close"));
}

static void a_port_in_use_is_a_plain_error(void **state)
{
    struct fixture *f = *state;
    struct http_server_options o = {.handler = handle, .port = http_server_port(f->server)};
    struct http_server *second;
    struct err err;

    assert_int_equal(http_server_start(&o, &second, &err), -ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "cannot listen on 127.0.0.1 port"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            T(malformed_requests_are_refused_and_the_connection_closed),
            T(a_nul_in_a_header_is_refused),
            T(the_path_is_raw),
            T(bodies_over_the_limit_get_413),
            T(a_chunked_body_without_end_is_cut),
            T(a_trickling_client_is_cut_off),
            T(a_body_comes_back),
            T(a_kept_exchange_streams_from_another_thread),
            T(a_client_that_leaves_is_noticed),
            T(a_slow_reader_is_bounded),
            T(stopping_ends_kept_exchanges),
            T(a_half_closed_client_does_not_linger),
            T(draining_closes_connections),
            T(a_port_in_use_is_a_plain_error),
    };

    http_client_global_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
