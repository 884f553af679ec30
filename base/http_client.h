/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

/* HTTP over libcurl.  A client is one keep-alive connection pool with its TLS settings; one
 * thread at a time uses it.  Two ways to call: http_client_do() blocks; an http_loop runs many
 * calls on one thread (watches).  Redirects are followed only when asked, only http(s), never from
 * https to http, and never carry Authorization to another host.  Proxies come from the usual
 * variables. */
struct http_client;

struct http_client_options {
    unsigned connect_timeout_ms;      /* 0: 10 s */
    unsigned idle_timeout_ms;         /* no byte for so long: ERR_TIMEOUT; 0: 60 s */
    const char *ca_file;              /* NULL: the system's */
    const char *ca_pem;               /* instead of ca_file; copied */
    const char *cert_file, *key_file; /* client certificate, or as text: */
    const char *cert_pem, *key_pem;
    bool insecure_skip_verify;
    bool follow_redirects;       /* up to 5 */
    bool refuse_private;         /* connect to no private address, also after a redirect */
    const char *tls_server_name; /* expected name when it is not the URL's host; NULL */
};

enum { HTTP_HEADERS_MAX = 32 };

/* One call; everything is borrowed until the call ended. */
struct http_reply;

struct http_call {
    const char *method; /* NULL: GET */
    const char *url;
    const char *headers[HTTP_HEADERS_MAX]; /* "Name: value"; NULL after the last */
    const void *body;
    size_t body_len;
    const char *want_header;   /* one more answer header to report, in reply.wanted */
    const char *bearer;        /* token for Authorization, dropped on a redirect to another host */
    unsigned timeout_ms;       /* the whole call; 0: no limit but the idle timeout */
    size_t reply_max;          /* bytes kept in reply.body; 0: 8 MiB.  More: ERR_INVALID */
    const atomic_bool *cancel; /* polled; true ends the call with ERR_CANCELED */
    /* When set, a 2xx body goes here instead of reply.body.  Non-zero ends with ERR_CANCELED. */
    int (*on_body)(void *userdata, const char *data, size_t len);
    /* When set, called once with the final answer's status and headers, before the body. */
    int (*on_head)(void *userdata, const struct http_reply *reply);
    void *userdata;
};

struct http_reply {
    int status;      /* 0: no answer arrived */
    struct str body; /* http_reply_release() */
    char content_type[128];
    char etag[128];
    char location[1024];    /* of the last redirect, absolute */
    char wanted[256];       /* value of call.want_header, "" if absent */
    int64_t content_length; /* -1: not said */
    int64_t range_start;    /* Content-Range; -1: none */
    int64_t range_total;    /* -1: none or unknown */
    int64_t retry_after_ms; /* -1: none */
    uint64_t connect_us, first_byte_us, total_us;
};

int http_client_new(const struct http_client_options *o, struct http_client **ret,
                    struct err *err) MUST_CHECK;
void http_client_free(struct http_client *c);
DEFINE_FREEP(http_client)

/* 0 whenever an HTTP answer was had, whatever its status.  Else ERR_UNAVAILABLE (resolve, connect,
 * reset), ERR_TIMEOUT, ERR_DENIED (TLS or a private address refused), ERR_CANCELED, ERR_INVALID. */
int http_client_do(struct http_client *c, const struct http_call *call, struct http_reply *reply,
                   struct err *err) MUST_CHECK;
void http_reply_init(struct http_reply *r);
void http_reply_release(struct http_reply *r);

/* Many calls on one thread. */
struct http_loop;
struct http_task;

int http_loop_new(struct http_loop **ret, struct err *err) MUST_CHECK;
void http_loop_free(struct http_loop *l); /* ends what still runs, without on_done */
DEFINE_FREEP(http_loop)
/* Start a call with the client's settings (the client must outlive it; its own connection pool is
 * not used).  call and its strings are borrowed until on_done ran.  on_done gets r = 0 or -code,
 * as from http_client_do(); it may start further calls.  It runs inside http_loop_run(). */
int http_loop_start(struct http_loop *l, struct http_client *c, const struct http_call *call,
                    void (*on_done)(void *userdata, int r, const struct http_reply *reply,
                                    const struct err *err),
                    struct http_task **ret, struct err *err) MUST_CHECK;
/* End a call now, without on_done.  Not from inside a call's on_head or on_body. */
void http_loop_cancel(struct http_loop *l, struct http_task *t);
/* Do what is ready, waiting up to timeout_ms for the first thing. */
void http_loop_run(struct http_loop *l, int timeout_ms);
void http_loop_wake(struct http_loop *l); /* any thread: ends a waiting http_loop_run() */

/* curl's global state: once, in main(), before threads. */
void http_client_global_init(void);
