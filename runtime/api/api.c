/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c - the listeners, the text workers, and the way from a path to its handler.
 *
 * HTTP threads parse, check who calls and refuse; text workers tokenise and detokenise; neither
 * ever waits for the engine.  The health listener has a thread of its own, so probes and scrapes
 * are answered however busy the others are.
 */
#include "runtime/api/api.h"

#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/api/api_internal.h"

enum route { ROUTE_NONE, ROUTE_CHAT, ROUTE_COMPLETIONS, ROUTE_MODELS, ROUTE_HEALTH };

static enum route route_of(const char *path)
{
    static const char *const health[] = {"/livez",  "/healthz",  "/health",
                                         "/readyz", "/startupz", "/metrics"};

    if (strcmp(path, "/v1/chat/completions") == 0)
        return ROUTE_CHAT;
    if (strcmp(path, "/v1/completions") == 0)
        return ROUTE_COMPLETIONS;
    if (strcmp(path, "/v1/models") == 0 || strncmp(path, "/v1/models/", 11) == 0)
        return ROUTE_MODELS;
    for (size_t i = 0; i < sizeof(health) / sizeof(health[0]); i++)
        if (strcmp(path, health[i]) == 0)
            return ROUTE_HEALTH;
    return ROUTE_NONE;
}

static const char *const endpoint_names[] = {
        [ROUTE_NONE] = "other",
        [ROUTE_CHAT] = "/v1/chat/completions",
        [ROUTE_COMPLETIONS] = "/v1/completions",
        [ROUTE_MODELS] = "/v1/models",
        [ROUTE_HEALTH] = "health",
};

static void refuse(struct api *a, struct http_exchange *x, enum route route,
                   const struct api_error *e)
{
    runtime_metrics_answer(a->o.metrics, endpoint_names[route], e->status);
    api_error_answer(e, x, NULL);
}

/* Compares in a time that does not depend on where the texts differ. */
static bool key_matches(const char *given, const char *key)
{
    size_t n = strlen(key);

    return strlen(given) == n && CRYPTO_memcmp(given, key, n) == 0;
}

static bool is_authorised(const struct api *a, const struct http_exchange *x)
{
    const char *given = http_exchange_header(x, "Authorization");
    bool match = false;

    if (a->o.n_api_keys == 0)
        return true;
    if (!given || strncmp(given, "Bearer ", 7) != 0)
        return false;
    for (size_t i = 0; i < a->o.n_api_keys; i++)
        match |= key_matches(given + 7, a->o.api_keys[i]);
    return match;
}

static bool is_json(const struct http_exchange *x)
{
    const char *type = http_exchange_header(x, "Content-Type");
    size_t n = strlen("application/json");

    return !type || (strncasecmp(type, "application/json", n) == 0 &&
                     (type[n] == '\0' || type[n] == ';' || type[n] == ' '));
}

static bool is_plain_coding(const struct http_exchange *x)
{
    const char *coding = http_exchange_header(x, "Content-Encoding");

    return !coding || strcasecmp(coding, "identity") == 0;
}

static void answer_wrong_method(struct api *a, struct http_exchange *x, enum route route)
{
    const char *allow =
            route == ROUTE_CHAT || route == ROUTE_COMPLETIONS ? "Allow: POST" : "Allow: GET, HEAD";
    const char *headers[] = {allow, "Content-Type: application/json", NULL};
    CLEANUP(str_release) struct str body = STR_INIT(2048);
    struct api_error e;

    (void)api_error_set(&e, 405, "method_not_allowed", NULL, "%s does not take %s",
                        endpoint_names[route], http_exchange_method(x));
    api_error_write(&e, &body);
    runtime_metrics_answer(a->o.metrics, endpoint_names[route], 405);
    http_exchange_answer(x, 405, headers, str_text(&body), body.len);
}

static void handle_generation(struct api *a, struct http_exchange *x, enum route route)
{
    struct api_error e;

    if (strcmp(http_exchange_method(x), "POST") != 0) {
        answer_wrong_method(a, x, route);
    } else if (!is_json(x) || !is_plain_coding(x)) {
        (void)api_error_set(&e, 415, "unsupported_media_type", NULL,
                            "send Content-Type: application/json without Content-Encoding");
        refuse(a, x, route, &e);
    } else {
        job_start(a, x, route == ROUTE_CHAT);
    }
}

static void handle_api(void *userdata, struct http_exchange *x)
{
    enum route route = route_of(http_exchange_path(x));
    const char *method = http_exchange_method(x);
    struct api *a = userdata;
    struct api_error e;

    if (route == ROUTE_HEALTH) {
        if (!health_handle(a, x))
            answer_wrong_method(a, x, route);
    } else if (!is_authorised(a, x)) {
        (void)api_error_set(&e, 401, "invalid_api_key", NULL,
                            "wrong or missing API key; send 'Authorization: Bearer KEY'");
        refuse(a, x, route, &e);
    } else if (route == ROUTE_NONE) {
        (void)api_error_set(&e, 404, "not_found", NULL,
                            "no such path; this server has /v1/chat/completions, /v1/completions "
                            "and /v1/models");
        refuse(a, x, route, &e);
    } else if (route != ROUTE_MODELS) {
        handle_generation(a, x, route);
    } else if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) {
        runtime_metrics_answer(a->o.metrics, endpoint_names[route], models_handle(a, x));
    } else {
        answer_wrong_method(a, x, route);
    }
}

static void handle_health(void *userdata, struct http_exchange *x)
{
    struct api *a = userdata;
    struct api_error e;

    if (health_handle(a, x))
        return;
    (void)api_error_set(&e, 404, "not_found", NULL,
                        "this port has /livez, /readyz, /startupz and /metrics");
    api_error_answer(&e, x, NULL);
}

static void *text_worker(void *userdata)
{
    struct api *a = userdata;

    for (;;) {
        struct job *j = mailbox_get(a->work, -1);

        if (j)
            job_work(j);
        else if (mailbox_closed(a->work))
            return NULL;
    }
}

static int start_workers(struct api *a, struct err *err)
{
    int r;

    a->jobs_max = 2 * a->o.connections_max;
    r = mailbox_new(a->jobs_max, &a->work, err);
    if (r)
        return r;
    for (unsigned i = 0; i < a->o.n_text_workers && i < API_WORKERS_MAX; i++) {
        if (pthread_create(&a->workers[i], NULL, text_worker, a) != 0)
            return err_set(err, ERR_UNAVAILABLE, "cannot start a text worker");
        a->n_workers++;
    }
    return 0;
}

static int start_servers(struct api *a, struct err *err)
{
    struct http_server_options api = {
            .address = a->o.host,
            .port = a->o.port,
            .n_threads = a->o.n_threads,
            .connections_max = a->o.connections_max,
            .connections_per_address_max = a->o.connections_per_address_max,
            .body_bytes_max = a->o.body_bytes_max,
            .handler = handle_api,
            .error_body = api_error_body,
            .userdata = a,
    };
    struct http_server_options health = {
            .address = a->o.metrics_host,
            .port = a->o.metrics_port,
            .connections_max = 128,
            .body_bytes_max = 1024,
            .handler = handle_health,
            .error_body = api_error_body,
            .userdata = a,
    };
    int r = http_server_start(&health, &a->health_server, err);

    return r ? r : http_server_start(&api, &a->server, err);
}

int api_start(const struct api_options *o, struct api **ret, struct err *err)
{
    CLEANUP(api_freep) struct api *a = mem_calloc(1, sizeof(*a));
    int r;

    ASSERT(o->n_text_workers > 0 && o->connections_max > 0);
    if (!a)
        return err_set(err, ERR_NO_MEMORY, "API");
    a->o = *o;
    r = start_workers(a, err);
    if (r == 0)
        r = start_servers(a, err);
    if (r)
        return r;
    *ret = TAKE_PTR(a);
    return 0;
}

uint16_t api_port(const struct api *a)
{
    return http_server_port(a->server);
}

uint16_t api_metrics_port(const struct api *a)
{
    return http_server_port(a->health_server);
}

void api_set_model(struct api *a, const struct api_model *m)
{
    uint32_t n = tokenizer_n_vocab(m->tokenizer);

    for (uint32_t id = 0; id < n && a->n_end_ids < REQUEST_END_IDS_MAX; id++)
        if (tokenizer_is_end(m->tokenizer, (int32_t)id))
            a->end_ids[a->n_end_ids++] = (int32_t)id;
    a->model = *m;
    atomic_store(&a->has_model, true); /* releases what was written above */
}

void api_drain(struct api *a)
{
    http_server_drain(a->server);
}

void api_refuse(struct api *a)
{
    atomic_store(&a->refusing, true);
}

unsigned api_in_progress(const struct api *a)
{
    return atomic_load(&a->n_jobs);
}

void api_free(struct api *a)
{
    if (!a)
        return;
    http_server_free(a->server); /* every kept exchange is told and must end: workers still run */
    if (a->work)
        mailbox_close(a->work);
    for (unsigned i = 0; i < a->n_workers; i++)
        (void)pthread_join(a->workers[i], NULL);
    /* The last answers are out, but the engine's last call to a job comes after the finish that
     * made them: a moment. */
    while (atomic_load(&a->n_jobs))
        (void)usleep(100);
    http_server_free(a->health_server);
    mailbox_free(a->work);
    mem_free(a);
}
