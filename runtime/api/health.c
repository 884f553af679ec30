/* SPDX-License-Identifier: Apache-2.0
 *
 * health.c - health and metrics, from atomics alone.
 *
 *   /livez     the process works: 503 when it failed, or when a step runs longer than it may.  A
 *              full queue or a long prompt never makes it fail.
 *   /readyz    send requests here: loaded, and not leaving.
 *   /startupz  how far loading is, as JSON; 200 once it is done.
 *   /healthz, /health  as /livez, for those who know one path.
 *   /metrics   Prometheus.
 */
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "runtime/api/api_internal.h"

enum { METRICS_MAX_BYTES = 1 << 20 };

static const char *const text_headers[] = {"Content-Type: text/plain; charset=utf-8",
                                           "Cache-Control: no-store", NULL};

static void answer_text(struct http_exchange *x, int status, const char *text)
{
    http_exchange_answer(x, status, text_headers, text, strlen(text));
}

static void answer_live(struct api *a, struct http_exchange *x)
{
    bool alive = health_is_alive(a->o.health, clock_ns(clock_system()));

    if (alive)
        answer_text(x, 200, "ok\n");
    else if (health_phase(a->o.health) == HEALTH_FAILED)
        answer_text(x, 503, "failed\n");
    else
        answer_text(x, 503, "the engine hangs in a step\n");
}

static void answer_ready(struct api *a, struct http_exchange *x)
{
    enum health_phase p = health_phase(a->o.health);

    if (p == HEALTH_READY)
        answer_text(x, 200, "ready\n");
    else
        answer_text(x, 503, health_phase_name(p));
}

static void answer_startup(struct api *a, struct http_exchange *x)
{
    static const char *const headers[] = {"Content-Type: application/json",
                                          "Cache-Control: no-store", NULL};
    CLEANUP(str_release) struct str body = STR_INIT(2048);
    enum health_phase p = health_phase(a->o.health);
    uint64_t done = atomic_load(&a->o.health->bytes_done);
    uint64_t total = atomic_load(&a->o.health->bytes_total);
    struct json_writer w = json_writer_start(&body);

    json_obj(&w);
    json_kv_text(&w, "phase", health_phase_name(p));
    json_kv_i64(&w, "bytes_done", (int64_t)done);
    json_kv_i64(&w, "bytes_total", (int64_t)total);
    json_kv_i64(&w, "percent", total ? (int64_t)(100 * (double)done / (double)total) : 0);
    json_end(&w);
    http_exchange_answer(x, p == HEALTH_READY || p == HEALTH_DRAINING ? 200 : 503, headers,
                         str_text(&body), body.len);
}

static void answer_metrics(struct api *a, struct http_exchange *x)
{
    static const char *const headers[] = {"Content-Type: text/plain; version=0.0.4; charset=utf-8",
                                          "Cache-Control: no-store", NULL};
    CLEANUP(str_release) struct str body = STR_INIT(METRICS_MAX_BYTES);

    metric_set(a->o.metrics->loaded_bytes, (double)atomic_load(&a->o.health->bytes_done));
    metrics_render(a->o.metrics->all, &body);
    if (body.failed)
        answer_text(x, 503, "out of memory\n");
    else
        http_exchange_answer(x, 200, headers, str_text(&body), body.len);
}

bool health_handle(struct api *a, struct http_exchange *x)
{
    static const struct {
        const char *path;
        void (*answer)(struct api *a, struct http_exchange *x);
    } routes[] = {
            {"/livez", answer_live},   {"/healthz", answer_live},     {"/health", answer_live},
            {"/readyz", answer_ready}, {"/startupz", answer_startup}, {"/metrics", answer_metrics},
    };
    const char *path = http_exchange_path(x);
    const char *method = http_exchange_method(x);

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return false;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(path, routes[i].path) == 0) {
            routes[i].answer(a, x);
            return true;
        }
    }
    return false;
}
