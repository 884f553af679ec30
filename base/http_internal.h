/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by http_server.c (daemon, connections, the watch thread), http_exchange.c (one request
 * and its answer) and http_tls.c (certificates).  Nobody else includes this. */
#include <gnutls/abstract.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/http_server.h"

enum http_conn_state { CONN_IDLE, CONN_HEADERS, CONN_BODY, CONN_BUSY };

/* One TCP connection; on the server's list from accept to close. */
struct http_conn {
    struct http_server *server;
    struct http_conn *prev, *next;
    int fd;
    enum http_conn_state state; /* these two under the server's lock */
    uint64_t deadline_ns;       /* 0: none */
};

struct http_cert {
    struct http_cert *older; /* handshakes may still use it: freed with the server */
    gnutls_pcert_st *chain;
    unsigned n_chain;
    gnutls_privkey_t key;
};

struct http_tls {
    pthread_mutex_t lock;
    struct http_cert *current;
    char *cert_file, *key_file;
    uint64_t stamp; /* of the files last loaded */
};

struct http_server {
    struct http_server_options o;
    struct MHD_Daemon *daemon;
    struct http_tls *tls; /* NULL: plain */
    int epoll_fd;
    pthread_t watcher;
    atomic_bool draining, stopping;
    pthread_mutex_t lock; /* the two lists, connection states, n_kept */
    pthread_cond_t ended;
    struct http_conn *conns;
    struct http_exchange *exchanges;
    uint64_t next_id;
    unsigned n_kept;
};

/* Lifetime: counted.  libmicrohttpd holds one reference until the request completed, the holder of
 * a kept exchange one until it ended it, and whoever looks it up from the list one meanwhile. */
struct http_exchange {
    struct http_server *server;
    struct http_conn *conn;
    struct MHD_Connection *mhd;
    struct http_exchange *prev, *next; /* the server's list */
    uint64_t id;
    atomic_uint refs;

    char *target; /* raw; cut at '?' once the guard has seen it */
    const char *query;
    char method[16];
    char peer[64];
    struct str body;
    uint64_t body_arrived; /* bytes, discarded ones too */
    bool body_too_large, dispatched;
    unsigned char *peer_cert;
    size_t peer_cert_len;
    uint64_t arrival_ns;

    pthread_mutex_t lock; /* what follows */
    pthread_cond_t told;
    bool kept, gone, telling, was_told, suspended, ended;
    bool streaming;    /* else 'out' is the whole answer */
    bool answer_ready; /* status and headers are set: may be queued */
    int status;
    struct MHD_Response *response; /* made by the answering thread, queued by the server's */
    struct str out;                /* unsent bytes of a stream */
    void (*on_gone)(void *userdata);
    void *userdata;
};

/* http_exchange.c */
int http_exchange_new(struct http_server *s, const char *target, struct http_exchange **ret);
void http_exchange_unref(struct http_exchange *x);
/* The request is complete: run the handler, then queue its answer or suspend. */
enum MHD_Result http_exchange_dispatch(struct http_exchange *x);
/* Resumed: queue the answer that is ready now. */
enum MHD_Result http_exchange_continue(struct http_exchange *x);
enum MHD_Result http_exchange_refuse(struct http_exchange *x, int status, const char *message);
/* The client left, or the server stops: tell the holder, once. */
void http_exchange_set_gone(struct http_exchange *x, bool resume);
/* libmicrohttpd is done with the request. */
void http_exchange_completed(struct http_exchange *x);

/* http_server.c: for a suspended exchange, look out for the client leaving. */
void http_server_watch(struct http_server *s, struct http_exchange *x);
void http_server_unwatch(struct http_server *s, struct http_exchange *x);
void http_server_count_kept(struct http_server *s, int delta);
void http_server_set_state(struct http_server *s, struct http_conn *c, enum http_conn_state state);

/* http_tls.c */
int http_tls_new(const struct http_server_options *o, struct http_tls **ret, struct err *err);
void http_tls_free(struct http_tls *t);
int http_tls_set(struct http_tls *t, const char *cert_pem, const char *key_pem, struct err *err);
/* Load the files again if they changed; a broken pair keeps the old one. */
void http_tls_refresh(struct http_tls *t);
int http_tls_retrieve(gnutls_session_t session, const gnutls_datum_t *req_ca_dn, int nreqs,
                      const gnutls_pk_algorithm_t *algos, int algos_length, gnutls_pcert_st **chain,
                      unsigned *n_chain, gnutls_privkey_t *key);
