/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - puts the operator together and takes it apart.
 *
 *   loop thread (this one)  watches, lease, signals; the only writer of the store
 *   workers                 reconcile, while we hold the lease
 *   scraper                 asks the pods
 *   registrar               certificate and registration of the metrics API
 *   two server threads      metrics API (TLS), health and metrics
 *
 * Losing the lease ends the process at once, without clean-up writes: the new leader may be at
 * work already.  SIGTERM ends it in order and gives the lease back, so that the next replica need
 * not wait for it to run out.
 */
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/http_client.h"
#include "base/mem.h"
#include "operator/api/names.h"
#include "operator/health.h"
#include "operator/options.h"
#include "operator/reconcile/worker.h"
#include "operator/scaling/decide.h"
#include "operator/scaling/registrar.h"
#include "operator/scaling/scrape.h"
#include "operator/telemetry.h"
#include "operator/watches.h"

enum {
    TURN_MS = 250,
    RESYNC_MS = 600000,
    TRIM_MS = 20000, /* give back what a burst of reconciles left free in the heap */
    STALE_INTERVALS = 3,
    PODS_DECIDED_MAX = 1024,
    ARENAS_MAX = 2, /* of malloc: our threads allocate little, each arena holds pages */
};

extern char **environ;

struct app {
    struct options options;
    const struct clock *clock;
    struct logger *lg;
    struct kube_auth *auth;
    const char *namespace;
    char identity[160];
    struct store *store;
    struct workqueue *queue;
    struct events *events;
    struct telemetry *telemetry;
    struct signals *signals;
    struct front_proxy *front_proxy;
    struct kube_loop *loop;
    struct lease *lease;
    struct lease_options lease_options;
    struct watches *watches;
    struct health *health;
    struct scraper *scraper;
    struct registrar *registrar;
    struct template_defaults defaults;
    struct reconcile_hooks hooks;
    struct workers *workers;
    uint64_t resync_ms, trim_ms;
    atomic_bool stopping; /* ends calls that workers are in */
};

static bool may_write(void *userdata)
{
    const struct app *op = userdata;

    return !op->lease || lease_is_valid(op->lease);
}

static void on_answer(void *userdata, const char *method, int status)
{
    const struct app *op = userdata;

    telemetry_answer(op->telemetry, method, status);
}

static void on_key(void *userdata, const char *key)
{
    const struct app *op = userdata;

    if (!workqueue_add(op->queue, key))
        log_warn(op->lg, "work queue is full", F_STR("object", key));
}

static void enqueue_all(void *userdata)
{
    const struct app *op = userdata;
    struct object_list services;
    struct err err = {0};

    if (store_list(op->store, WATCHED_INFERENCE_SERVICE, NULL, &services, &err)) {
        log_warn(op->lg, "resync put off", F_ERR(&err));
        return;
    }
    for (size_t i = 0; i < services.n; i++)
        (void)workqueue_add(op->queue, services.items[i]->key);
    object_list_release(&services);
}

/* --- what reconciling asks the scaling side --- */

static void hook_signal(void *userdata, const char *uid, struct pod_signal *ret)
{
    const struct app *op = userdata;

    signals_get(op->signals, uid, ret);
}

static void hook_decide(void *userdata, const struct inference_service *s,
                        const struct observed_pod *pods, size_t n, struct scale_decision *ret)
{
    CLEANUP(mem_freep) struct decide_pod *seen = NULL;

    (void)userdata;
    if (n > PODS_DECIDED_MAX)
        n = PODS_DECIDED_MAX;
    seen = mem_calloc(n + 1, sizeof(*seen));
    if (!seen) { /* hold everything: the next look decides */
        *ret = (struct scale_decision){.desired = s->replicas, .hold_down = true};
        return;
    }
    for (size_t i = 0; i < n; i++) {
        seen[i].signal = pods[i].signal;
        seen[i].state = pod_state_of(pods[i].pod, &pods[i].signal, NULL);
    }
    decide(s, seen, n, ret);
}

static void hook_metrics_api(void *userdata, struct observed *seen)
{
    const struct app *op = userdata;
    char owner[API_SERVICE_OWNER_BYTES];

    switch (registrar_state(op->registrar, owner)) {
    case REGISTRAR_STARTING:
        seen->metrics_api = METRICS_API_STARTING;
        break;
    case REGISTRAR_SERVING:
        seen->metrics_api = METRICS_API_SERVING;
        break;
    case REGISTRAR_TAKEN:
        seen->metrics_api = METRICS_API_CONFLICT;
        break;
    }
    (void)snprintf(seen->metrics_api_owner, sizeof(seen->metrics_api_owner), "%s", owner);
}

static void hook_result(void *userdata, const char *key, const char *result, double seconds)
{
    const struct app *op = userdata;

    (void)key;
    telemetry_reconciled(op->telemetry, result, seconds);
}

static void hook_scaled(void *userdata, bool up)
{
    const struct app *op = userdata;

    telemetry_scaled(op->telemetry, up);
}

/* --- putting together --- */

static int start_log(struct app *op, struct err *err)
{
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_JSON;

    if (log_level_parse(op->options.log_level, &level) ||
        log_format_parse(op->options.log_format, &format))
        return err_set(err, ERR_INVALID, "log options");
    return logger_new(STDERR_FILENO, format, level, &op->lg, err);
}

static int make_identity(struct app *op, struct err *err)
{
    char host[64] = "";
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_set(err, ERR_INTERNAL, "no randomness");
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(op->identity, sizeof(op->identity), "%s_%016llx", host,
                   (unsigned long long)random);
    return 0;
}

static int make_parts(struct app *op, struct err *err)
{
    struct workqueue_options queue = {.clock = op->clock};
    uint64_t stale_ms = (uint64_t)op->options.scrape_interval_ms * STALE_INTERVALS + 2000;

    if (kube_auth_load(op->options.kubeconfig, op->clock, &op->auth, err))
        return err_wrap(err, "credentials");
    op->namespace = op->options.namespace ? op->options.namespace : kube_auth_namespace(op->auth);
    if (store_new(WATCHED_COUNT, &op->store, err) || workqueue_new(&queue, &op->queue, err) ||
        events_new(op->clock, CONTROLLER_NAME, op->identity, &op->events, err) ||
        telemetry_new(&op->telemetry, err) || signals_new(op->clock, stale_ms, &op->signals, err) ||
        front_proxy_new(&op->front_proxy, err) ||
        kube_loop_new(op->auth, op->clock, op->lg, &op->loop, err))
        return -(int)err->code;
    return 0;
}

static int start_watching(struct app *op, struct err *err)
{
    struct watches_options w = {.loop = op->loop,
                                .store = op->store,
                                .front_proxy = op->front_proxy,
                                .clock = op->clock,
                                .seed = clock_ns(op->clock) ^ (uint64_t)getpid(),
                                .lg = op->lg,
                                .on_key = on_key,
                                .userdata = op};
    int r = watches_new(&w, &op->watches, err);

    if (r || !op->options.leader_elect)
        return r;
    op->lease_options = (struct lease_options){.namespace = op->namespace,
                                               .name = op->options.lease_name,
                                               .identity = op->identity,
                                               .clock = op->clock};
    r = lease_new(&op->lease_options, &op->lease, err);
    return r ? r : kube_loop_lease(op->loop, op->lease, &op->lease_options, err);
}

static int start_servers(struct app *op, struct err *err)
{
    struct health_options h = {.address = op->options.health_address,
                               .port = (uint16_t)op->options.health_port,
                               .store = op->store,
                               .queue = op->queue,
                               .telemetry = op->telemetry,
                               .clock = op->clock};
    struct scraper_options s = {.store = op->store,
                                .signals = op->signals,
                                .clock = op->clock,
                                .lg = op->lg,
                                .interval_ms = (uint64_t)op->options.scrape_interval_ms,
                                .on_change = on_key,
                                .userdata = op};
    struct registrar_options r = {.client = {.auth = op->auth,
                                             .cancel = &op->stopping,
                                             .may_write = may_write,
                                             .on_answer = on_answer,
                                             .userdata = op},
                                  .api = {.address = op->options.metrics_api_address,
                                          .port = (uint16_t)op->options.metrics_api_port,
                                          .store = op->store,
                                          .signals = op->signals,
                                          .front_proxy = op->front_proxy,
                                          .clock = op->clock,
                                          .lg = op->lg},
                                  .namespace = op->namespace,
                                  .service = op->options.service_name,
                                  .is_leader = may_write,
                                  .on_change = enqueue_all,
                                  .userdata = op,
                                  .lg = op->lg};

    if (health_start(&h, &op->health, err) || scraper_start(&s, &op->scraper, err) ||
        registrar_start(&r, &op->registrar, err))
        return -(int)err->code;
    return 0;
}

static int start_workers(struct app *op, struct err *err)
{
    struct workers_options w = {.n = (unsigned)op->options.workers,
                                .store = op->store,
                                .queue = op->queue,
                                .events = op->events,
                                .client = {.auth = op->auth,
                                           .cancel = &op->stopping,
                                           .may_write = may_write,
                                           .on_answer = on_answer,
                                           .userdata = op},
                                .defaults = &op->defaults,
                                .hooks = &op->hooks,
                                .clock = op->clock,
                                .lg = op->lg};

    op->defaults = (struct template_defaults){.image = op->options.runtime_image,
                                              .cuda_image = op->options.runtime_cuda_image,
                                              .image_pull_policy = op->options.runtime_pull_policy,
                                              .gpu_runtime_class = op->options.gpu_runtime_class};
    op->hooks = (struct reconcile_hooks){.signal = hook_signal,
                                         .decide = hook_decide,
                                         .metrics_api = hook_metrics_api,
                                         .on_result = hook_result,
                                         .on_scaled = hook_scaled,
                                         .userdata = op};
    log_info(op->lg, "reconciling starts",
             F_U64("services", store_count(op->store, WATCHED_INFERENCE_SERVICE)));
    return workers_start(&w, &op->workers, err);
}

/* --- running --- */

/* Workers start once: when we lead, have seen everything and asked every pod. */
static int start_when_due(struct app *op, struct err *err)
{
    bool leads = may_write(op);

    telemetry_leader(op->telemetry, leads);
    if (op->workers || !leads || !store_is_synced(op->store) || !scraper_is_warm(op->scraper))
        return 0;
    return start_workers(op, err);
}

static void tidy_when_due(struct app *op)
{
    uint64_t now = clock_ms(op->clock);

    if (now >= op->trim_ms) {
        op->trim_ms = now + TRIM_MS;
        (void)malloc_trim(0);
    }
    if (now < op->resync_ms)
        return;
    op->resync_ms = now + RESYNC_MS;
    enqueue_all(op);
}

/* 0: told to end; -code: must end. */
static int run(struct app *op, const sigset_t *signals, struct err *err)
{
    static const struct timespec at_once = {0};

    for (;;) {
        int r;

        kube_loop_run(op->loop, TURN_MS);
        health_beat(op->health);
        if (sigtimedwait(signals, NULL, &at_once) > 0)
            return 0;
        if (op->lease && lease_state(op->lease) == LEASE_LOST) {
            log_error(op->lg, "lease lost", F_STR("holder", lease_holder(op->lease)));
            _exit(1);
        }
        r = start_when_due(op, err);
        if (r)
            return r;
        tidy_when_due(op);
    }
}

static void release_lease(struct app *op)
{
    CLEANUP(str_release) struct str body = STR_INIT(64 << 10);
    CLEANUP(kube_client_freep) struct kube_client *client = NULL;
    struct kube_client_options o = {.auth = op->auth, .timeout_ms = 3000};
    struct kube_request q = {.method = "PUT",
                             .resource = &KUBE_LEASE,
                             .namespace = op->namespace,
                             .name = op->options.lease_name};
    struct err err = {0};

    if (!op->lease || !lease_release(op->lease, &body))
        return;
    q.body = str_text(&body);
    if (kube_client_new(&o, &client, &err) || kube_do(client, &q, NULL, &err))
        log_info(op->lg, "lease was not given back", F_ERR(&err));
}

static void stop(struct app *op)
{
    atomic_store(&op->stopping, true);
    workers_stop(op->workers);
    registrar_stop(op->registrar);
    scraper_stop(op->scraper);
    kube_loop_free(op->loop); /* the lease's last call must not cross its release */
    if (op->auth)
        release_lease(op);
    health_stop(op->health);
    watches_free(op->watches);
    lease_free(op->lease);
    front_proxy_free(op->front_proxy);
    signals_free(op->signals);
    telemetry_free(op->telemetry);
    events_free(op->events);
    workqueue_free(op->queue);
    store_free(op->store);
    kube_auth_free(op->auth);
    logger_free(op->lg);
    config_release(OPTIONS, OPTIONS_COUNT, &op->options);
}

static int start_and_run(struct app *op, const sigset_t *signals, struct err *err)
{
    if (start_log(op, err) || make_identity(op, err) || make_parts(op, err) ||
        start_watching(op, err) || start_servers(op, err))
        return -(int)err->code;
    op->resync_ms = clock_ms(op->clock) + RESYNC_MS;
    log_info(op->lg, "operator starts", F_STR("version", PENSTOCK_VERSION),
             F_STR("server", kube_auth_server(op->auth)), F_STR("namespace", op->namespace),
             F_STR("identity", op->identity));
    return run(op, signals, err);
}

static int print_text(void (*write)(const struct option *, size_t, struct str *))
{
    CLEANUP(str_release) struct str text = STR_INIT(1 << 20);

    write(OPTIONS, OPTIONS_COUNT, &text);
    (void)fputs(str_text(&text), stdout);
    return text.failed ? 1 : 0;
}

static void write_help(const struct option *table, size_t n, struct str *out)
{
    config_help(table, n, "penstock-operator [options] | reference options|metrics", out);
}

static void write_metrics(const struct option *table, size_t n, struct str *out)
{
    (void)table;
    (void)n;
    metrics_markdown(TELEMETRY, TELEMETRY_COUNT, out);
    str_addc(out, '\n');
    metrics_markdown(TELEMETRY_OF_SERVICE, TELEMETRY_OF_SERVICE_COUNT, out);
    str_addc(out, '\n');
    metrics_markdown(METRICS_PROCESS, METRICS_PROCESS_COUNT, out);
}

int main(int argc, char **argv)
{
    struct app op = {.clock = clock_system()};
    struct config_source source = {
            .argc = argc - 1, .argv = argv + 1, .environ_vars = environ, .config_flag = "config"};
    struct err err = {0};
    sigset_t signals;
    int r;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return print_text(write_help);
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return printf("penstock-operator " PENSTOCK_VERSION "\n") < 0;
    if (argc == 3 && strcmp(argv[1], "reference") == 0 && strcmp(argv[2], "options") == 0)
        return print_text(config_markdown);
    if (argc == 3 && strcmp(argv[1], "reference") == 0 && strcmp(argv[2], "metrics") == 0)
        return print_text(write_metrics);
    (void)mallopt(M_ARENA_MAX, ARENAS_MAX);
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    http_client_global_init();
    r = config_load(OPTIONS, OPTIONS_COUNT, &source, &op.options, &err);
    if (r == 0)
        r = start_and_run(&op, &signals, &err);
    if (r)
        (void)fprintf(stderr, "penstock-operator: %s\n", err.msg);
    else
        log_info(op.lg, "operator ends");
    stop(&op);
    return r ? 1 : 0;
}
