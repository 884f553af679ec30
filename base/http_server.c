/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server.c - the daemon, its connections and the thread that watches over both.
 *
 * libmicrohttpd parses and moves bytes on its epoll threads.  What it does not do is done here:
 *   - the request guard (http_guard.h) runs on every request before its body is read;
 *   - deadlines: its own timeout restarts with each byte, so a client that sends one byte a second
 *     would stay for ever.  The watch thread looks at all connections every WATCH_MS and calls
 *     shutdown() on the descriptor of one that is late;
 *   - it says nothing of a client that leaves while its connection is suspended, so the watch
 *     thread waits for that on the descriptors, in an epoll set of its own;
 *   - MHD_stop_daemon() aborts the process when a connection is suspended, so http_server_free()
 *     first tells every holder and waits for it to end its exchange.
 */
#include "base/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/http_guard.h"
#include "base/http_internal.h"
#include "base/mem.h"

enum {
    WATCH_MS = 100,
    IDLE_TIMEOUT_MS = 75000,
    SEND_TIMEOUT_S = 120,
    IDLE_LOOK_TICKS = 10,
    TLS_REFRESH_TICKS = 50,
    DISCARD_FACTOR = 8, /* how far over its limit a body is still read, and discarded */
};

static uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

void http_server_set_state(struct http_server *s, struct http_conn *c, enum http_conn_state state)
{
    unsigned ms = state == CONN_IDLE      ? IDLE_TIMEOUT_MS
                  : state == CONN_HEADERS ? s->o.header_timeout_ms
                  : state == CONN_BODY    ? s->o.body_timeout_ms
                                          : 0;

    (void)pthread_mutex_lock(&s->lock);
    c->state = state;
    c->deadline_ns = ms ? now_ns() + (uint64_t)ms * 1000000 : 0;
    (void)pthread_mutex_unlock(&s->lock);
}

void http_server_count_kept(struct http_server *s, int delta)
{
    (void)pthread_mutex_lock(&s->lock);
    s->n_kept = (unsigned)((int)s->n_kept + delta);
    (void)pthread_cond_broadcast(&s->ended);
    (void)pthread_mutex_unlock(&s->lock);
}

void http_server_watch(struct http_server *s, struct http_exchange *x)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->id};

    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, x->conn->fd, &ev);
}

void http_server_unwatch(struct http_server *s, struct http_exchange *x)
{
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, x->conn->fd, NULL);
}

static struct http_exchange *find_exchange(struct http_server *s, uint64_t id)
{
    struct http_exchange *x;

    (void)pthread_mutex_lock(&s->lock);
    for (x = s->exchanges; x && x->id != id; x = x->next)
        ;
    if (x)
        atomic_fetch_add(&x->refs, 1);
    (void)pthread_mutex_unlock(&s->lock);
    return x;
}

/* An idle connection whose client sent its end together with the last request: libmicrohttpd's edge
 * of it has passed, and it would stay until the idle timeout. */
static bool has_left(const struct http_conn *c)
{
    char byte;

    return c->state == CONN_IDLE && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void shut_late_connections(struct http_server *s, bool idle_too)
{
    uint64_t now = now_ns();

    (void)pthread_mutex_lock(&s->lock);
    for (struct http_conn *c = s->conns; c; c = c->next) {
        if ((c->deadline_ns && now > c->deadline_ns) || (idle_too && has_left(c))) {
            c->deadline_ns = 0;
            (void)shutdown(c->fd, SHUT_RDWR);
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static void *watch(void *userdata)
{
    struct http_server *s = userdata;
    uint64_t next_look = 0;

    for (unsigned tick = 0; !atomic_load(&s->stopping);) {
        struct epoll_event events[64];
        int n = epoll_wait(s->epoll_fd, events, 64, WATCH_MS);

        for (int i = 0; i < n; i++) {
            struct http_exchange *x = find_exchange(s, events[i].data.u64);

            if (x) {
                http_exchange_set_gone(x, false);
                http_exchange_unref(x);
            }
        }
        if (now_ns() < next_look)
            continue;
        next_look = now_ns() + WATCH_MS * 1000000ull;
        tick++;
        shut_late_connections(s, tick % IDLE_LOOK_TICKS == 0);
        if (s->tls && tick % TLS_REFRESH_TICKS == 0)
            http_tls_refresh(s->tls);
    }
    return NULL;
}

static void link_exchange(struct http_server *s, struct http_exchange *x)
{
    (void)pthread_mutex_lock(&s->lock);
    x->id = ++s->next_id;
    x->next = s->exchanges;
    if (x->next)
        x->next->prev = x;
    s->exchanges = x;
    (void)pthread_mutex_unlock(&s->lock);
}

static void unlink_exchange(struct http_server *s, struct http_exchange *x)
{
    (void)pthread_mutex_lock(&s->lock);
    if (x->prev)
        x->prev->next = x->next;
    else
        s->exchanges = x->next;
    if (x->next)
        x->next->prev = x->prev;
    (void)pthread_mutex_unlock(&s->lock);
}

/* libmicrohttpd callbacks, in the order of a request's life */

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = cls;
    struct http_conn *c = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = mem_calloc(1, sizeof(*c));
        if (!c)
            return;
        c->server = s;
        c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        http_server_set_state(s, c, CONN_HEADERS);
        *socket_context = c;
        (void)pthread_mutex_lock(&s->lock);
        c->next = s->conns;
        if (c->next)
            c->next->prev = c;
        s->conns = c;
        (void)pthread_mutex_unlock(&s->lock);
    } else if (c) {
        (void)pthread_mutex_lock(&s->lock);
        if (c->prev)
            c->prev->next = c->next;
        else
            s->conns = c->next;
        if (c->next)
            c->next->prev = c->prev;
        (void)pthread_mutex_unlock(&s->lock);
        mem_free(c);
    }
}

/* The request line was read.  What this returns is the request's context. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
    struct http_server *s = cls;
    struct http_conn *c =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct http_exchange *x;

    if (!c || http_exchange_new(s, target, &x) != 0)
        return NULL;
    x->mhd = mhd;
    x->conn = c;
    http_server_set_state(s, c, CONN_HEADERS);
    link_exchange(s, x);
    return x;
}

/* libmicrohttpd ends a value at the first NUL and drops a header without a name, so neither is to
 * be seen in what it hands out.  But it parses lines where they lie, putting a NUL on CR and LF:
 * the next name comes exactly two bytes after a value's end, and the empty line after the last.
 * Anything else is what was hidden, a folded line, or a line that ends in a bare LF. */
struct walk {
    struct http_guard *guard;
    const char *end; /* of the header before, its NUL; NULL at the first */
};

static enum MHD_Result guard_one(void *cls, enum MHD_ValueKind kind, const char *name,
                                 size_t name_len, const char *value, size_t value_len)
{
    struct walk *w = cls;

    (void)kind;
    if (w->end && name != w->end + 2)
        http_guard_header(w->guard, "", 0, "", 0);
    http_guard_header(w->guard, name, name_len, value ? value : "", value_len);
    w->end = value ? value + value_len : name + name_len;
    return MHD_YES;
}

static const char *guard_request(struct http_exchange *x, const char *version)
{
    struct http_guard guard = {0};
    struct walk walk = {&guard, NULL};

    http_guard_line(&guard, x->method, x->target, version);
    (void)MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, guard_one, &walk);
    if (walk.end && (walk.end[1] || walk.end[2] || walk.end[3]))
        http_guard_header(&guard, "", 0, "", 0);
    return http_guard_finish(&guard);
}

static void cut_query(struct http_exchange *x)
{
    char *query = strchr(x->target, '?');

    if (!query)
        return;
    *query = '\0';
    x->query = query + 1;
}

static void set_peer(struct http_exchange *x)
{
    const struct sockaddr *sa =
            MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;

    if (sa->sa_family == AF_INET)
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, x->peer,
                        sizeof(x->peer));
    else if (sa->sa_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr,
                        x->peer, sizeof(x->peer));
}

static void set_peer_cert(struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    const gnutls_datum_t *chain;
    unsigned n = 0;

    if (!info || !info->tls_session)
        return;
    chain = gnutls_certificate_get_peers(info->tls_session, &n);
    if (!chain || n == 0)
        return;
    x->peer_cert = mem_calloc(1, chain[0].size);
    if (!x->peer_cert)
        return;
    memcpy(x->peer_cert, chain[0].data, chain[0].size);
    x->peer_cert_len = chain[0].size;
}

/* The headers are complete: sound, small enough, and may we take it at all? */
static enum MHD_Result begin(struct http_exchange *x, const char *method, const char *version)
{
    struct http_server *s = x->server;
    const char *why, *length;
    struct err ignored;
    uint64_t n;

    (void)snprintf(x->method, sizeof(x->method), "%s", method);
    why = guard_request(x, version);
    if (why)
        return http_exchange_refuse(x, 400, why);
    cut_query(x);
    if (atomic_load(&s->stopping))
        return http_exchange_refuse(x, 503, "shutting down");
    length = http_exchange_header(x, "Content-Length");
    if (length && (parse_u64(length, 0, UINT64_MAX, &n, &ignored) != 0 ||
                   n / DISCARD_FACTOR > s->o.body_bytes_max))
        return http_exchange_refuse(x, 413, "the request body is too large");
    set_peer(x);
    if (s->o.want_client_cert)
        set_peer_cert(x);
    http_server_set_state(s, x->conn, CONN_BODY);
    return MHD_YES;
}

/* A body that is somewhat too large is read to its end and thrown away: a client that is still
 * sending when the connection closes never sees the 413.  A chunked one tells no length before, so
 * its bytes are counted. */
static enum MHD_Result take_body(struct http_exchange *x, const char *data, size_t *len)
{
    x->body_arrived += *len;
    if (x->body_arrived / DISCARD_FACTOR > x->server->o.body_bytes_max)
        return MHD_NO;
    str_add(&x->body, data, *len);
    x->body_too_large |= x->body.failed;
    *len = 0;
    return MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *len, void **context)
{
    struct http_exchange *x = *context;

    (void)cls;
    (void)mhd;
    (void)url;
    if (!x)
        return MHD_NO; /* no memory for it */
    if (x->method[0] == '\0')
        return begin(x, method, version);
    /* Before the dispatch 'ended' is this thread's alone, after it the holder's, under the lock. */
    if (!x->dispatched && x->ended)
        return MHD_NO; /* refused already; a daemon that stops drops the refusal and goes on */
    if (*len)
        return take_body(x, data, len);
    if (x->dispatched)
        return http_exchange_continue(x);
    if (x->body_too_large)
        return http_exchange_refuse(x, 413, "the request body is too large");
    return http_exchange_dispatch(x);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct http_server *s = cls;
    struct http_exchange *x = *context;

    (void)mhd;
    (void)code;
    if (!x)
        return;
    *context = NULL;
    http_server_set_state(s, x->conn, CONN_IDLE);
    unlink_exchange(s, x);
    http_exchange_completed(x);
}

/* Paths stay as they were sent: the target is routed raw. */
static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *s)
{
    (void)cls;
    (void)mhd;
    return strlen(s);
}

static void drop_log(void *cls, const char *fmt, va_list ap)
{
    (void)cls;
    (void)fmt;
    (void)ap;
}

/* A listening socket of our own, so that port 0, IPv6 and a port in use give plain errors. */
static int listen_on(const struct http_server_options *o, int *ret_fd, struct err *err)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(o->port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(o->port)};
    const char *address = o->address ? o->address : "127.0.0.1";
    bool is_v6 = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
    int fd, on = 1, off = 0;
    bool ok;

    if (!is_v6 && inet_pton(AF_INET, address, &v4.sin_addr) != 1)
        return err_set(err, ERR_INVALID, "'%s' is not an IP address to listen on", address);
    fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "cannot make a socket: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (is_v6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    ok = is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof(v6)) == 0
               : bind(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0;
    if (!ok || listen(fd, 1024) != 0) {
        int e = errno;

        (void)close(fd);
        return err_set(err, e == EACCES ? ERR_DENIED : ERR_UNAVAILABLE,
                       "cannot listen on %s port %u: %s", address, o->port, strerror(e));
    }
    *ret_fd = fd;
    return 0;
}

static void set_defaults(struct http_server_options *o)
{
    o->n_threads = o->n_threads ? o->n_threads : 1;
    o->connections_max = o->connections_max ? o->connections_max : 1024;
    o->header_bytes_max = o->header_bytes_max ? o->header_bytes_max : 32u << 10;
    o->body_bytes_max = o->body_bytes_max ? o->body_bytes_max : 8u << 20;
    o->header_timeout_ms = o->header_timeout_ms ? o->header_timeout_ms : 10000;
    o->body_timeout_ms = o->body_timeout_ms ? o->body_timeout_ms : 60000;
    o->stream_bytes_max = o->stream_bytes_max ? o->stream_bytes_max : 4u << 20;
}

static int start_daemon(struct http_server *s, int fd, struct err *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem items[3];
    size_t n = 0;

    if (s->o.n_threads > 1)
        items[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, s->o.n_threads, NULL};
    if (s->o.connections_per_address_max)
        items[n++] = (struct MHD_OptionItem){MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                             s->o.connections_per_address_max, NULL};
    if (s->tls)
        flags |= MHD_USE_TLS; /* without it, the certificate callback below is not looked at */
    items[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    s->daemon = MHD_start_daemon(
            flags, 0, NULL, NULL, on_access, s, MHD_OPTION_EXTERNAL_LOGGER, drop_log, NULL,
            MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
            s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_URI_LOG_CALLBACK, on_target,
            s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
            s->o.connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT, s->o.header_bytes_max,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SEND_TIMEOUT_S, MHD_OPTION_STRICT_FOR_CLIENT,
            1, MHD_OPTION_HTTPS_CERT_CALLBACK, http_tls_retrieve, MHD_OPTION_ARRAY, items,
            MHD_OPTION_END);
    if (!s->daemon)
        return err_set(err, ERR_UNAVAILABLE, "cannot start the HTTP server: %s", strerror(errno));
    return 0;
}

static int start(struct http_server *s, struct err *err)
{
    int fd = -1, r;

    if (s->o.cert_file || s->o.cert_pem) {
        r = http_tls_new(&s->o, &s->tls, err);
        if (r)
            return r;
    }
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, "epoll: %s", strerror(errno));
    r = listen_on(&s->o, &fd, err);
    if (r)
        return r;
    r = start_daemon(s, fd, err);
    if (r) {
        (void)close(fd);
        return r;
    }
    if (pthread_create(&s->watcher, NULL, watch, s) != 0) {
        MHD_stop_daemon(s->daemon);
        s->daemon = NULL;
        return err_set(err, ERR_UNAVAILABLE, "cannot start a thread");
    }
    return 0;
}

static void destroy(struct http_server *s)
{
    if (s->epoll_fd >= 0)
        (void)close(s->epoll_fd);
    http_tls_free(s->tls);
    (void)pthread_cond_destroy(&s->ended);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

int http_server_start(const struct http_server_options *o, struct http_server **ret,
                      struct err *err)
{
    struct http_server *s = mem_calloc(1, sizeof(*s));
    int r;

    ASSERT(o->handler);
    if (!s)
        return err_set(err, ERR_NO_MEMORY, "HTTP server");
    s->o = *o;
    s->epoll_fd = -1;
    set_defaults(&s->o);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->ended, NULL);
    r = start(s, err);
    if (r) {
        destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);

    if (!info || getsockname(info->listen_fd, (struct sockaddr *)&sa, &len) != 0)
        return 0;
    return ntohs(sa.ss_family == AF_INET6
                         ? ((const struct sockaddr_in6 *)(const void *)&sa)->sin6_port
                         : ((const struct sockaddr_in *)(const void *)&sa)->sin_port);
}

void http_server_drain(struct http_server *s)
{
    atomic_store(&s->draining, true);
}

int http_server_set_cert(struct http_server *s, const char *cert_pem, const char *key_pem,
                         struct err *err)
{
    ASSERT(s->tls);
    return http_tls_set(s->tls, cert_pem, key_pem, err);
}

/* The newest exchange that is older than 'id'; the list stands in that order. */
static struct http_exchange *find_older(struct http_server *s, uint64_t id)
{
    struct http_exchange *x;

    (void)pthread_mutex_lock(&s->lock);
    for (x = s->exchanges; x && x->id >= id; x = x->next)
        ;
    if (x)
        atomic_fetch_add(&x->refs, 1);
    (void)pthread_mutex_unlock(&s->lock);
    return x;
}

/* Tell the holder of every exchange that its client is gone, and let libmicrohttpd see it. */
static void give_up_exchanges(struct http_server *s)
{
    uint64_t id = UINT64_MAX;
    struct http_exchange *x;

    while ((x = find_older(s, id))) {
        id = x->id;
        http_exchange_set_gone(x, true);
        http_exchange_unref(x);
    }
}

static void wait_for_holders(struct http_server *s)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->n_kept)
        (void)pthread_cond_wait(&s->ended, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    atomic_store(&s->draining, true);
    atomic_store(&s->stopping, true);
    (void)pthread_join(s->watcher, NULL);
    give_up_exchanges(s);
    wait_for_holders(s);
    MHD_stop_daemon(s->daemon);
    wait_for_holders(s); /* a handler that was running may have kept one meanwhile */
    destroy(s);
}
