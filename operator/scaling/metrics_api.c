/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_api.c - the aggregated API.
 *
 * The API server forwards /apis/custom.metrics.k8s.io/... here, with its own client certificate
 * and the caller's name in headers.  Only the certificate counts (front_proxy.h); a request
 * without it is answered 401, whatever its headers say.  Discovery is three small documents; the
 * one question that matters is "METRIC of the pods of namespace N that match a selector".
 *
 * Every replica serves, from its own scrapes: the aggregator may ask any of them.
 */
#include "operator/scaling/metrics_api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/http_server.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "operator/api/inference_service.h"
#include "operator/api/kinds.h"
#include "operator/api/pod.h"
#include "operator/scaling/api_service.h"
#include "operator/scaling/selector.h"

#define GROUP_VERSION API_SERVICE_GROUP "/" API_SERVICE_VERSION
#define ROOT "/apis/" GROUP_VERSION

enum { SEGMENTS_MAX = 12, ANSWER_MAX = 8 << 20, ARENA_MAX = 1 << 20, CONNECTIONS_MAX = 256 };

struct metrics_api {
    struct metrics_api_options opt;
    struct http_server *server;
};

static void answer_status(struct http_exchange *x, int code, const char *reason,
                          const char *message)
{
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    struct json_writer w = json_writer_start(&body);

    json_obj(&w);
    json_kv_text(&w, "kind", "Status");
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "status", "Failure");
    json_kv_text(&w, "reason", reason);
    json_kv_text(&w, "message", message);
    json_kv_i64(&w, "code", code);
    json_end(&w);
    http_exchange_answer(x, code, NULL, str_text(&body), body.len);
}

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Percent-decode n bytes; NULL: malformed, or a NUL in it. */
static char *decode(struct arena *mem, const char *s, size_t n, bool plus_is_space)
{
    char *out = arena_alloc(mem, n + 1);
    size_t len = 0;

    for (size_t i = 0; out && i < n; i++) {
        char c = s[i];

        if (c == '%') {
            int high = i + 2 < n ? hex(s[i + 1]) : -1;
            int low = high >= 0 ? hex(s[i + 2]) : -1;

            if (low < 0 || (high | low) == 0)
                return NULL;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        out[len++] = c;
    }
    return out;
}

/* The value of a query parameter, decoded; "" if it is not there; NULL: malformed. */
static const char *parameter(struct arena *mem, const char *query, const char *name)
{
    size_t n = strlen(name);

    while (*query) {
        size_t len = strcspn(query, "&");

        if (len > n && strncmp(query, name, n) == 0 && query[n] == '=')
            return decode(mem, query + n + 1, len - n - 1, true);
        query += len + (query[len] == '&');
    }
    return "";
}

/* --- discovery --- */

static const char GROUP[] =
        "{\"name\":\"" API_SERVICE_GROUP "\",\"versions\":[{\"groupVersion\":\"" GROUP_VERSION
        "\",\"version\":\"" API_SERVICE_VERSION
        "\"}],\"preferredVersion\":{\"groupVersion\":\"" GROUP_VERSION
        "\",\"version\":\"" API_SERVICE_VERSION "\"}}";

static void answer_groups(struct http_exchange *x)
{
    CLEANUP(str_release) struct str body = STR_INIT(4096);

    str_addf(&body, "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[%s]}", GROUP);
    http_exchange_answer(x, 200, NULL, str_text(&body), body.len);
}

static void answer_group(struct http_exchange *x)
{
    CLEANUP(str_release) struct str body = STR_INIT(4096);

    str_addf(&body, "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",%s", GROUP + 1);
    http_exchange_answer(x, 200, NULL, str_text(&body), body.len);
}

static void answer_resources(struct http_exchange *x)
{
    CLEANUP(str_release) struct str body = STR_INIT(4096);
    struct json_writer w = json_writer_start(&body);

    json_obj(&w);
    json_kv_text(&w, "kind", "APIResourceList");
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "groupVersion", GROUP_VERSION);
    json_key(&w, "resources");
    json_arr(&w);
    for (unsigned i = 0; i < SCALE_METRIC_COUNT; i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "pods/%s", scale_metric_name((enum scale_metric)i));
        json_obj(&w);
        json_kv_text(&w, "name", name);
        json_kv_text(&w, "singularName", "");
        json_kv_bool(&w, "namespaced", true);
        json_kv_text(&w, "kind", "MetricValueList");
        json_key(&w, "verbs");
        json_raw(&w, "[\"get\"]");
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    http_exchange_answer(x, 200, NULL, str_text(&body), body.len);
}

/* --- values --- */

struct question {
    const char *namespace, *pod; /* pod "*": all that match */
    enum scale_metric metric;
    const struct selector *selector;
};

/* A pod has a value when it serves, was heard of lately, and told it. */
static bool value_of(const struct metrics_api *m, const struct object *o, enum scale_metric metric,
                     double *ret, uint64_t *ret_wall_ms)
{
    struct pod_signal s;

    signals_get(m->opt.signals, o->uid, &s);
    if (!s.fresh || pod_state_of(o->json, &s, NULL) != POD_SERVING)
        return false;
    *ret_wall_ms = s.sampled_wall_ms;
    return scale_metric_value(metric, &s, ret);
}

static void write_item(struct json_writer *w, const struct object *o, enum scale_metric metric,
                       double value, uint64_t wall_ms)
{
    char text[48], when[CLOCK_TEXT_BYTES];

    clock_rfc3339(wall_ms, when);
    (void)snprintf(text, sizeof(text), "%lldm", (long long)llround(value * 1000));
    json_obj(w);
    json_key(w, "describedObject");
    json_obj(w);
    json_kv_text(w, "kind", "Pod");
    json_kv_text(w, "namespace", o->namespace);
    json_kv_text(w, "name", o->name);
    json_kv_text(w, "apiVersion", "/v1");
    json_end(w);
    json_key(w, "metric");
    json_obj(w);
    json_kv_text(w, "name", scale_metric_name(metric));
    json_kv_null(w, "selector");
    json_end(w);
    json_kv_text(w, "timestamp", when);
    json_kv_text(w, "value", text);
    json_end(w);
}

static bool is_asked_for(const struct question *q, const struct object *o)
{
    if (strcmp(o->namespace, q->namespace) != 0)
        return false;
    if (strcmp(q->pod, "*") != 0)
        return strcmp(q->pod, o->name) == 0;
    return selector_matches(q->selector, json_path(o->json, "metadata.labels"));
}

static size_t write_values(const struct metrics_api *m, const struct question *q,
                           const struct object_list *pods, struct str *body)
{
    struct json_writer w = json_writer_start(body);
    size_t n = 0;

    json_obj(&w);
    json_kv_text(&w, "kind", "MetricValueList");
    json_kv_text(&w, "apiVersion", GROUP_VERSION);
    json_key(&w, "metadata");
    json_raw(&w, "{}");
    json_key(&w, "items");
    json_arr(&w);
    for (size_t i = 0; i < pods->n; i++) {
        double value;
        uint64_t wall_ms;

        if (!is_asked_for(q, pods->items[i]) ||
            !value_of(m, pods->items[i], q->metric, &value, &wall_ms))
            continue;
        write_item(&w, pods->items[i], q->metric, value, wall_ms);
        n++;
    }
    json_end(&w);
    json_end(&w);
    return n;
}

static void answer_values(const struct metrics_api *m, struct http_exchange *x,
                          const struct question *q)
{
    CLEANUP(str_release) struct str body = STR_INIT(ANSWER_MAX);
    struct object_list pods;
    struct err err = {0};
    size_t n;

    if (store_list(m->opt.store, WATCHED_POD, NULL, &pods, &err)) {
        answer_status(x, 503, "ServiceUnavailable", err.msg);
        return;
    }
    n = write_values(m, q, &pods, &body);
    object_list_release(&pods);
    if (str_check(&body, "metric values", &err))
        answer_status(x, 503, "ServiceUnavailable", err.msg);
    else if (n == 0 && strcmp(q->pod, "*") != 0)
        answer_status(x, 404, "NotFound", "the pod has no sample");
    else
        http_exchange_answer(x, 200, NULL, str_text(&body), body.len);
}

/* rest: "namespaces/N/pods/P/METRIC" after the group's root, raw */
static void answer_metric(const struct metrics_api *m, struct http_exchange *x, const char *rest,
                          struct arena *mem)
{
    struct question q = {0};
    const char *segment[SEGMENTS_MAX], *text;
    struct err err = {0};
    size_t n = 0;

    for (; *rest && n < SEGMENTS_MAX; n++) {
        size_t len = strcspn(rest, "/");

        segment[n] = decode(mem, rest, len, false);
        if (!segment[n])
            break;
        rest += len + (rest[len] == '/');
    }
    if (*rest || n != 5 || strcmp(segment[0], "namespaces") != 0 ||
        strcmp(segment[2], "pods") != 0 || scale_metric_parse(segment[4], &q.metric)) {
        answer_status(x, 404, "NotFound",
                      "no such metric; there are pods/*/queueLength, requests, gpuUtilization "
                      "and gpuMemory");
        return;
    }
    q.namespace = segment[1];
    q.pod = segment[3];
    text = parameter(mem, http_exchange_query(x), "labelSelector");
    if (!text || selector_parse(text, mem, &q.selector, &err)) {
        answer_status(x, 400, "BadRequest", text ? err.msg : "labelSelector: malformed");
        return;
    }
    answer_values(m, x, &q);
}

static void route(const struct metrics_api *m, struct http_exchange *x, struct arena *mem)
{
    const char *path = http_exchange_path(x);

    if (strcmp(path, "/apis") == 0)
        answer_groups(x);
    else if (strcmp(path, "/apis/" API_SERVICE_GROUP) == 0)
        answer_group(x);
    else if (strcmp(path, ROOT) == 0)
        answer_resources(x);
    else if (strncmp(path, ROOT "/", strlen(ROOT) + 1) == 0)
        answer_metric(m, x, path + strlen(ROOT) + 1, mem);
    else
        answer_status(x, 404, "NotFound", "no such path");
}

static bool is_health(const char *path)
{
    return strcmp(path, "/healthz") == 0 || strcmp(path, "/livez") == 0 ||
           strcmp(path, "/readyz") == 0;
}

static void handle(void *userdata, struct http_exchange *x)
{
    const struct metrics_api *m = userdata;
    static const char *const text_headers[] = {"Content-Type: text/plain", NULL};
    CLEANUP(arena_freep) struct arena *mem = NULL;
    struct err err = {0};
    const void *der;
    size_t len = 0;

    if (strcmp(http_exchange_method(x), "GET") != 0) {
        answer_status(x, 405, "MethodNotAllowed", "only GET");
        return;
    }
    if (is_health(http_exchange_path(x))) {
        http_exchange_answer(x, 200, text_headers, "ok", 2);
        return;
    }
    der = http_exchange_peer_cert(x, &len);
    if (front_proxy_check(m->opt.front_proxy, der, len, &err)) {
        log_info(m->opt.lg, "metrics request refused", F_STR("peer", http_exchange_peer(x)),
                 F_ERR(&err));
        answer_status(x, 401, "Unauthorized", "only the API server's front proxy may ask");
        return;
    }
    if (arena_new(ARENA_MAX, &mem, &err))
        answer_status(x, 503, "ServiceUnavailable", err.msg);
    else
        route(m, x, mem);
}

int metrics_api_start(const struct metrics_api_options *o, struct metrics_api **ret,
                      struct err *err)
{
    struct metrics_api *m = mem_calloc(1, sizeof(*m));
    struct http_server_options so = {.address = o->address,
                                     .port = o->port,
                                     .n_threads = 1,
                                     .connections_max = CONNECTIONS_MAX,
                                     .body_bytes_max = 1024,
                                     .cert_pem = o->cert_pem,
                                     .key_pem = o->key_pem,
                                     .want_client_cert = true,
                                     .handler = handle,
                                     .userdata = m};
    int r;

    if (!m)
        return err_set(err, ERR_NO_MEMORY, "metrics API");
    m->opt = *o;
    m->opt.cert_pem = m->opt.key_pem = NULL;
    r = http_server_start(&so, &m->server, err);
    if (r) {
        mem_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

int metrics_api_set_cert(struct metrics_api *m, const char *cert_pem, const char *key_pem,
                         struct err *err)
{
    return http_server_set_cert(m->server, cert_pem, key_pem, err);
}

uint16_t metrics_api_port(const struct metrics_api *m)
{
    return http_server_port(m->server);
}

void metrics_api_stop(struct metrics_api *m)
{
    if (!m)
        return;
    http_server_free(m->server);
    mem_free(m);
}
