/* SPDX-License-Identifier: Apache-2.0
 *
 * http_exchange.c - one request and its answer.
 *
 * The handler may answer at once, or keep the exchange and have another thread answer it later.
 * libmicrohttpd wants all its own calls on its own threads, save one: resume.  So the answering
 * thread only fills in the exchange (under its lock) and resumes the connection; libmicrohttpd
 * then calls back and the answer is queued there.  'suspended' says whether a resume is owed; it
 * changes under the lock together with the call, so a resume is never lost nor doubled.
 *
 * A suspended connection reports nothing of a client that left; the server's watch thread sees it
 * on the descriptor and calls http_exchange_set_gone().
 */
#include <string.h>
#include <strings.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/http_internal.h"
#include "base/json_writer.h"
#include "base/mem.h"

int http_exchange_new(struct http_server *s, const char *target, struct http_exchange **ret)
{
    struct http_exchange *x = mem_calloc(1, sizeof(*x));

    if (!x)
        return -1;
    x->target = mem_strdup(target);
    if (!x->target) {
        mem_free(x);
        return -1;
    }
    x->query = "";
    x->server = s;
    x->arrival_ns = clock_ns(clock_system());
    x->body.max = s->o.body_bytes_max;
    x->out.max = s->o.stream_bytes_max;
    atomic_init(&x->refs, 1);
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->told, NULL);
    *ret = x;
    return 0;
}

void http_exchange_unref(struct http_exchange *x)
{
    if (atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    if (x->response)
        MHD_destroy_response(x->response);
    str_release(&x->body);
    str_release(&x->out);
    mem_free(x->peer_cert);
    mem_free(x->target);
    (void)pthread_cond_destroy(&x->told);
    (void)pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

/* Both with x->lock held. */
static void suspend(struct http_exchange *x)
{
    MHD_suspend_connection(x->mhd);
    x->suspended = true;
    http_server_watch(x->server, x);
}

static void resume(struct http_exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    http_server_unwatch(x->server, x);
    MHD_resume_connection(x->mhd);
}

/* Content-Type first if the caller gave none; Connection: close while draining. */
static void set_headers(struct http_exchange *x, const char *const *headers)
{
    bool typed = false;

    for (; headers && *headers; headers++) {
        const char *colon = strstr(*headers, ": ");
        char name[64];

        ASSERT(colon && (size_t)(colon - *headers) < sizeof(name));
        memcpy(name, *headers, (size_t)(colon - *headers));
        name[colon - *headers] = '\0';
        typed |= strcasecmp(name, "Content-Type") == 0;
        (void)MHD_add_response_header(x->response, name, colon + 2);
    }
    if (!typed)
        (void)MHD_add_response_header(x->response, "Content-Type", "application/json");
    if (atomic_load(&x->server->draining))
        (void)MHD_add_response_header(x->response, "Connection", "close");
}

/* With x->lock held: the answer, if it is ready and not queued yet. */
static struct MHD_Response *take_answer(struct http_exchange *x)
{
    struct MHD_Response *response = x->answer_ready ? x->response : NULL;

    if (response)
        x->response = NULL;
    return response;
}

/* Without x->lock: libmicrohttpd locks the response here, and also while it calls read_stream(). */
static enum MHD_Result queue_answer(struct http_exchange *x, struct MHD_Response *response)
{
    enum MHD_Result r;

    if (!response)
        return MHD_NO; /* given up, or no memory for it: the connection is closed */
    r = MHD_queue_response(x->mhd, (unsigned)x->status, response);
    MHD_destroy_response(response); /* the connection holds its own reference */
    return r;
}

enum MHD_Result http_exchange_dispatch(struct http_exchange *x)
{
    struct http_server *s = x->server;
    struct MHD_Response *response;
    bool wait;

    x->dispatched = true;
    http_server_set_state(s, x->conn, CONN_BUSY);
    s->o.handler(s->o.userdata, x);

    (void)pthread_mutex_lock(&x->lock);
    wait = !x->answer_ready && !x->gone && !x->ended;
    ASSERT(!wait || x->kept); /* a handler answers or keeps */
    if (wait)
        suspend(x);
    response = take_answer(x);
    (void)pthread_mutex_unlock(&x->lock);
    return wait ? MHD_YES : queue_answer(x, response);
}

enum MHD_Result http_exchange_continue(struct http_exchange *x)
{
    struct MHD_Response *response;

    (void)pthread_mutex_lock(&x->lock);
    response = take_answer(x);
    (void)pthread_mutex_unlock(&x->lock);
    return queue_answer(x, response);
}

static void default_error_body(const char *message, struct str *out)
{
    struct json_writer w = json_writer_start(out);

    json_obj(&w);
    json_kv_text(&w, "error", message);
    json_end(&w);
}

enum MHD_Result http_exchange_refuse(struct http_exchange *x, int status, const char *message)
{
    static const char *const headers[] = {"Connection: close", NULL};
    CLEANUP(str_release) struct str body = STR_INIT(4096);
    struct MHD_Response *response;

    if (x->server->o.error_body)
        x->server->o.error_body(x->server->o.userdata, status, message, &body);
    else
        default_error_body(message, &body);
    http_exchange_answer(x, status, headers, str_text(&body), body.len);
    (void)pthread_mutex_lock(&x->lock);
    response = take_answer(x);
    (void)pthread_mutex_unlock(&x->lock);
    return queue_answer(x, response);
}

void http_exchange_set_gone(struct http_exchange *x, bool do_resume)
{
    (void)pthread_mutex_lock(&x->lock);
    x->gone = true;
    if (x->kept && !x->ended && !x->was_told) {
        x->was_told = x->telling = true;
        (void)pthread_mutex_unlock(&x->lock);
        x->on_gone(x->userdata);
        (void)pthread_mutex_lock(&x->lock);
        x->telling = false;
        (void)pthread_cond_broadcast(&x->told);
    }
    if (do_resume)
        resume(x);
    (void)pthread_mutex_unlock(&x->lock);
}

void http_exchange_completed(struct http_exchange *x)
{
    http_exchange_set_gone(x, false);
    (void)pthread_mutex_lock(&x->lock);
    x->mhd = NULL;
    (void)pthread_mutex_unlock(&x->lock);
    http_exchange_unref(x);
}

/* libmicrohttpd asks for more of a stream. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct http_exchange *x = cls;
    ssize_t n = 0;

    (void)pos;
    (void)pthread_mutex_lock(&x->lock);
    if (x->out.len) {
        n = (ssize_t)(x->out.len < max ? x->out.len : max);
        memcpy(buf, x->out.data, (size_t)n);
        str_consume(&x->out, (size_t)n);
    } else if (x->ended) {
        /* a write that did not fit was dropped: the client must not take the rest for whole */
        n = x->out.failed ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else if (x->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        suspend(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return n;
}

/* The holder is done: what remains is libmicrohttpd's.  Takes the lock the caller holds.  Waits for
 * an on_gone() under way, so that the holder may free what it touches. */
static void end_and_unlock(struct http_exchange *x)
{
    struct http_server *s = x->server;
    bool kept = x->kept;

    ASSERT(!x->ended);
    while (x->telling)
        (void)pthread_cond_wait(&x->told, &x->lock);
    x->ended = true;
    resume(x);
    (void)pthread_mutex_unlock(&x->lock);
    if (kept) {
        http_exchange_unref(x);
        http_server_count_kept(s, -1);
    }
}

void http_exchange_answer(struct http_exchange *x, int status, const char *const *headers,
                          const void *body, size_t len)
{
    (void)pthread_mutex_lock(&x->lock);
    ASSERT(!x->answer_ready);
    if (!x->gone || !x->kept) {
        x->status = status;
        x->response = MHD_create_response_from_buffer(len, (void *)(uintptr_t)(len ? body : ""),
                                                      MHD_RESPMEM_MUST_COPY);
        if (x->response)
            set_headers(x, headers);
        x->answer_ready = true;
    }
    end_and_unlock(x);
}

void http_exchange_keep(struct http_exchange *x, void (*on_gone)(void *userdata), void *userdata)
{
    (void)pthread_mutex_lock(&x->lock);
    ASSERT(!x->kept && !x->answer_ready);
    x->kept = true;
    x->on_gone = on_gone;
    x->userdata = userdata;
    atomic_fetch_add(&x->refs, 1);
    (void)pthread_mutex_unlock(&x->lock);
    http_server_count_kept(x->server, 1);
    if (atomic_load(&x->server->stopping))
        http_exchange_set_gone(x, false);
}

bool http_exchange_is_gone(const struct http_exchange *x)
{
    struct http_exchange *m = (struct http_exchange *)(uintptr_t)x;
    bool gone;

    (void)pthread_mutex_lock(&m->lock);
    gone = m->gone;
    (void)pthread_mutex_unlock(&m->lock);
    return gone;
}

enum { STREAM_CHUNK = 16 << 10 };

void http_exchange_stream(struct http_exchange *x, int status, const char *const *headers)
{
    (void)pthread_mutex_lock(&x->lock);
    ASSERT(x->kept && !x->answer_ready);
    if (!x->gone) {
        x->status = status;
        x->streaming = true;
        /* the reader runs only while the request lives, so it needs no reference of its own */
        x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_CHUNK, read_stream,
                                                        x, NULL);
        if (x->response)
            set_headers(x, headers);
        x->answer_ready = true;
        resume(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

int http_exchange_write(struct http_exchange *x, const void *data, size_t len, struct err *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&x->lock);
    if (x->gone) {
        r = err_set(err, ERR_CANCELED, "the client left");
    } else {
        ASSERT(x->streaming && !x->ended);
        str_add(&x->out, data, len);
        if (x->out.failed)
            r = err_set(err, ERR_BUSY, "the client reads too slowly: over %zu bytes wait for it",
                        x->out.max);
        else
            resume(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return r;
}

void http_exchange_end(struct http_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    ASSERT(x->kept);
    end_and_unlock(x);
}

const char *http_exchange_method(const struct http_exchange *x)
{
    return x->method;
}

const char *http_exchange_path(const struct http_exchange *x)
{
    return x->target;
}

const char *http_exchange_query(const struct http_exchange *x)
{
    return x->query;
}

const char *http_exchange_header(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *http_exchange_body(const struct http_exchange *x, size_t *ret_len)
{
    *ret_len = x->body.len;
    return str_text(&x->body);
}

void http_exchange_drop_body(struct http_exchange *x)
{
    str_release(&x->body);
}

const char *http_exchange_peer(const struct http_exchange *x)
{
    return x->peer;
}

const void *http_exchange_peer_cert(const struct http_exchange *x, size_t *ret_len)
{
    *ret_len = x->peer_cert_len;
    return x->peer_cert;
}

uint64_t http_exchange_arrival_ns(const struct http_exchange *x)
{
    return x->arrival_ns;
}
