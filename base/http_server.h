/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

/* HTTP/1.1 server over libmicrohttpd, with the request guard that 0.9.75 lacks (the list is in
 * http_guard.h), own deadlines, limits and drain.  The handler runs on a server thread once the
 * whole request has arrived (bounded); it answers at once, or keeps the exchange and answers from
 * any thread later, whole or as a stream. */
struct http_server;
struct http_exchange; /* one request and its answer */

struct http_server_options {
    const char *address;                  /* "127.0.0.1", "::", "0.0.0.0"; NULL: 127.0.0.1 */
    uint16_t port;                        /* 0: any free one, see http_server_port() */
    unsigned n_threads;                   /* 0: 1 */
    unsigned connections_max;             /* 0: 1024 */
    unsigned connections_per_address_max; /* 0: no limit */
    size_t header_bytes_max;              /* 0: 32 KiB */
    size_t body_bytes_max;                /* 0: 8 MiB */
    unsigned header_timeout_ms; /* from accept, and from the request line; 0: 10 s (idle: 75 s) */
    unsigned body_timeout_ms;   /* 0: 60 s */
    size_t stream_bytes_max;    /* unsent bytes of one stream; 0: 4 MiB */
    const char *cert_file, *key_file; /* both set: TLS; re-read when they change */
    const char *cert_pem, *key_pem;   /* instead of files: http_server_set_cert() replaces them */
    bool want_client_cert; /* ask for one; http_exchange_peer_cert(), the caller verifies */

    /* Called once a request is complete.  Must answer, or call http_exchange_keep() first. */
    void (*handler)(void *userdata, struct http_exchange *x);
    /* The body of an error the server itself answers (400, 408, 413, 431, 503): content type
     * application/json.  NULL: {"error":"..."}. */
    void (*error_body)(void *userdata, int status, const char *message, struct str *out);
    void *userdata;
};

int http_server_start(const struct http_server_options *o, struct http_server **ret,
                      struct err *err) MUST_CHECK;
uint16_t http_server_port(const struct http_server *s);
/* From now on answers carry Connection: close.  Requests are still taken. */
void http_server_drain(struct http_server *s);
/* Replace the certificate given as text; connections that are open keep theirs. */
int http_server_set_cert(struct http_server *s, const char *cert_pem, const char *key_pem,
                         struct err *err) MUST_CHECK;
/* Ends every connection, kept exchanges too (their holders are told they are gone and still must
 * end them: this call waits for that).  Never call it on a server thread. */
void http_server_free(struct http_server *s);
DEFINE_FREEP(http_server)

/* The request; all borrowed from the exchange.  Headers: inside the handler only. */
const char *http_exchange_method(const struct http_exchange *x);
const char *http_exchange_path(const struct http_exchange *x);  /* raw, without the query */
const char *http_exchange_query(const struct http_exchange *x); /* raw, "" if none */
const char *http_exchange_header(const struct http_exchange *x, const char *name); /* NULL: none */
const char *http_exchange_body(const struct http_exchange *x, size_t *ret_len);
/* The body was read and is not needed any more: a kept exchange need not hold its memory. */
void http_exchange_drop_body(struct http_exchange *x);
const char *http_exchange_peer(const struct http_exchange *x); /* address without port */
/* The client's certificate as DER; NULL: none was sent. */
const void *http_exchange_peer_cert(const struct http_exchange *x, size_t *ret_len);
uint64_t http_exchange_arrival_ns(const struct http_exchange *x); /* monotonic: first byte of it */

/* Answer whole.  Ends the exchange: x is dead after.  headers: "Name: value" strings, NULL last;
 * may be NULL.  Content-Type among them, or application/json. */
void http_exchange_answer(struct http_exchange *x, int status, const char *const *headers,
                          const void *body, size_t len);

/* Keep the exchange past the handler.  on_gone (any thread, once at most, never during or after the
 * end; it must not end the exchange itself) tells that the client left or the server stops; x stays
 * valid until it is ended. */
void http_exchange_keep(struct http_exchange *x, void (*on_gone)(void *userdata), void *userdata);
bool http_exchange_is_gone(const struct http_exchange *x);

/* Answer as a stream (chunked): start, write..., end.  Any one thread at a time. */
void http_exchange_stream(struct http_exchange *x, int status, const char *const *headers);
/* ERR_CANCELED: the client is gone.  ERR_BUSY: it reads too slowly, over stream_bytes_max; what was
 * written before still goes out, then the connection breaks. */
int http_exchange_write(struct http_exchange *x, const void *data, size_t len,
                        struct err *err) MUST_CHECK;
void http_exchange_end(struct http_exchange *x); /* x is dead after */
