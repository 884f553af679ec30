/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/health.h"

#include <stdatomic.h>
#include <string.h>

#include "base/http_server.h"
#include "base/mem.h"

enum {
    STALLED_MS = 90000, /* longer than the longest call a worker or the loop can make */
    METRICS_MAX = 8 << 20,
    CONNECTIONS_MAX = 64,
};

struct health {
    struct health_options opt;
    struct http_server *server;
    _Atomic uint64_t beat_ms;
};

void health_beat(struct health *h)
{
    atomic_store(&h->beat_ms, clock_ms(h->opt.clock));
}

/* Workers that hold keys and have not moved are stuck; idle ones beat each second. */
static bool is_alive(struct health *h)
{
    uint64_t now = clock_ms(h->opt.clock);
    struct workqueue_stats stats;

    workqueue_stats(h->opt.queue, &stats);
    return now - atomic_load(&h->beat_ms) < STALLED_MS &&
           (stats.n_processing == 0 || now - stats.heartbeat_ns / 1000000 < STALLED_MS);
}

static void answer(struct http_exchange *x, int status, const char *text)
{
    static const char *const headers[] = {"Content-Type: text/plain; charset=utf-8", NULL};

    http_exchange_answer(x, status, headers, text, strlen(text));
}

static void answer_metrics(struct health *h, struct http_exchange *x)
{
    static const char *const headers[] = {"Content-Type: text/plain; version=0.0.4; charset=utf-8",
                                          NULL};
    CLEANUP(str_release) struct str body = STR_INIT(METRICS_MAX);

    telemetry_render(h->opt.telemetry, h->opt.queue, h->opt.store, &body);
    if (body.failed)
        answer(x, 503, "no memory\n");
    else
        http_exchange_answer(x, 200, headers, str_text(&body), body.len);
}

static void handle(void *userdata, struct http_exchange *x)
{
    struct health *h = userdata;
    const char *path = http_exchange_path(x);

    if (strcmp(http_exchange_method(x), "GET") != 0)
        answer(x, 405, "only GET\n");
    else if (strcmp(path, "/healthz") == 0 || strcmp(path, "/livez") == 0)
        answer(x, is_alive(h) ? 200 : 503, is_alive(h) ? "ok\n" : "stalled\n");
    else if (strcmp(path, "/readyz") == 0)
        answer(x, store_is_synced(h->opt.store) ? 200 : 503,
               store_is_synced(h->opt.store) ? "ok\n" : "watches are not synced yet\n");
    else if (strcmp(path, "/metrics") == 0)
        answer_metrics(h, x);
    else
        answer(x, 404, "there are /healthz, /readyz and /metrics\n");
}

int health_start(const struct health_options *o, struct health **ret, struct err *err)
{
    struct health *h = mem_calloc(1, sizeof(*h));
    struct http_server_options so = {.address = o->address,
                                     .port = o->port,
                                     .n_threads = 1,
                                     .connections_max = CONNECTIONS_MAX,
                                     .body_bytes_max = 1024,
                                     .handler = handle,
                                     .userdata = h};
    int r;

    if (!h)
        return err_set(err, ERR_NO_MEMORY, "health server");
    h->opt = *o;
    health_beat(h);
    r = http_server_start(&so, &h->server, err);
    if (r) {
        mem_free(h);
        return err_wrap(err, "health server");
    }
    *ret = h;
    return 0;
}

void health_stop(struct health *h)
{
    if (!h)
        return;
    http_server_free(h->server);
    mem_free(h);
}
