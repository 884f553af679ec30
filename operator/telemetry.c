/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/telemetry.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "operator/api/condition.h"
#include "operator/api/kinds.h"

static const double SECONDS[] = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30};

#define SECONDS_BUCKETS .buckets = SECONDS, .n_buckets = sizeof(SECONDS) / sizeof(SECONDS[0])

const struct metric_desc TELEMETRY[] = {
        {.name = "controller_runtime_reconcile_total",
         .type = METRIC_COUNTER,
         .help = "Reconciles by result.",
         .labels = {"controller", "result"}},
        {.name = "controller_runtime_reconcile_errors_total",
         .type = METRIC_COUNTER,
         .help = "Reconciles that failed.",
         .labels = {"controller"}},
        {.name = "controller_runtime_reconcile_time_seconds",
         .type = METRIC_HISTOGRAM,
         .unit = "seconds",
         .help = "Time of one reconcile.",
         .labels = {"controller"},
         SECONDS_BUCKETS},
        {.name = "workqueue_depth",
         .type = METRIC_GAUGE,
         .help = "Keys that wait for a worker.",
         .labels = {"name"}},
        {.name = "workqueue_adds_total",
         .type = METRIC_COUNTER,
         .help = "Keys added.",
         .labels = {"name"}},
        {.name = "workqueue_retries_total",
         .type = METRIC_COUNTER,
         .help = "Keys added after an error.",
         .labels = {"name"}},
        {.name = "workqueue_queue_duration_seconds_sum",
         .type = METRIC_COUNTER,
         .unit = "seconds",
         .help = "Time keys waited for a worker, in all.",
         .labels = {"name"}},
        {.name = "workqueue_queue_duration_seconds_count",
         .type = METRIC_COUNTER,
         .help = "Keys that were taken by a worker.",
         .labels = {"name"}},
        {.name = "workqueue_work_duration_seconds_sum",
         .type = METRIC_COUNTER,
         .unit = "seconds",
         .help = "Time workers held keys, in all.",
         .labels = {"name"}},
        {.name = "workqueue_work_duration_seconds_count",
         .type = METRIC_COUNTER,
         .help = "Keys that were done.",
         .labels = {"name"}},
        {.name = "rest_client_requests_total",
         .type = METRIC_COUNTER,
         .help = "Requests to the API server by method and class of answer (none: no answer).",
         .labels = {"method", "code"}},
        {.name = "leader_election_master_status",
         .type = METRIC_GAUGE,
         .help = "1 while this replica holds the lease.",
         .labels = {"name"}},
        {.name = "penstock_operator_scale_decisions_total",
         .type = METRIC_COUNTER,
         .help = "Changes of the wanted replicas of a service with spec.scaling or /scale.",
         .labels = {"direction"}},
        {.name = "penstock_operator_services",
         .type = METRIC_GAUGE,
         .help = "InferenceServices known."},
        {.name = "penstock_operator_pods", .type = METRIC_GAUGE, .help = "Model pods known."},
};
const size_t TELEMETRY_COUNT = sizeof(TELEMETRY) / sizeof(TELEMETRY[0]);

const struct metric_desc TELEMETRY_OF_SERVICE[] = {
        {.name = "penstock_service_replicas_desired",
         .type = METRIC_GAUGE,
         .help = "Replicas wanted, by the autoscaler or /scale.",
         .labels = {"namespace", "name"}},
        {.name = "penstock_service_replicas_ready",
         .type = METRIC_GAUGE,
         .help = "Replicas that answer requests.",
         .labels = {"namespace", "name"}},
        {.name = "penstock_service_replicas_loading",
         .type = METRIC_GAUGE,
         .help = "Replicas on their way.",
         .labels = {"namespace", "name"}},
        {.name = "penstock_service_ready",
         .type = METRIC_GAUGE,
         .help = "1 while the condition Ready is True.",
         .labels = {"namespace", "name"}},
};
const size_t TELEMETRY_OF_SERVICE_COUNT =
        sizeof(TELEMETRY_OF_SERVICE) / sizeof(TELEMETRY_OF_SERVICE[0]);

static const char *const RESULTS[] = {"success", "error", "requeue", "gone"};
static const char *const METHODS[] = {"GET", "POST", "PATCH", "PUT", "DELETE"};
static const char *const CODES[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

enum { N_RESULTS = 4, N_METHODS = 5, N_CODES = 6 };
enum {
    Q_DEPTH,
    Q_ADDS,
    Q_RETRIES,
    Q_WAIT_SUM,
    Q_WAIT_COUNT,
    Q_WORK_SUM,
    Q_WORK_COUNT,
    Q_COUNT,
};

struct telemetry {
    struct metrics *metrics;
    struct metric_desc *descs; /* ours and the process's */
    struct metric *results[N_RESULTS], *errors, *seconds;
    struct metric *answers[N_METHODS][N_CODES];
    struct metric *queue[Q_COUNT];
    struct metric *leader, *services, *pods, *scaled_up, *scaled_down;
};

static int join_tables(struct telemetry *t, size_t *ret_n, struct err *err)
{
    *ret_n = TELEMETRY_COUNT + METRICS_PROCESS_COUNT;
    t->descs = mem_calloc(*ret_n, sizeof(*t->descs));
    if (!t->descs)
        return err_set(err, ERR_NO_MEMORY, "metrics");
    memcpy(t->descs, TELEMETRY, TELEMETRY_COUNT * sizeof(*t->descs));
    memcpy(t->descs + TELEMETRY_COUNT, METRICS_PROCESS, METRICS_PROCESS_COUNT * sizeof(*t->descs));
    return 0;
}

static int make_queue_series(struct telemetry *t, struct err *err)
{
    static const char *const names[Q_COUNT] = {
            [Q_DEPTH] = "workqueue_depth",
            [Q_ADDS] = "workqueue_adds_total",
            [Q_RETRIES] = "workqueue_retries_total",
            [Q_WAIT_SUM] = "workqueue_queue_duration_seconds_sum",
            [Q_WAIT_COUNT] = "workqueue_queue_duration_seconds_count",
            [Q_WORK_SUM] = "workqueue_work_duration_seconds_sum",
            [Q_WORK_COUNT] = "workqueue_work_duration_seconds_count",
    };
    const char *labels[] = {"inferenceservice"};
    int r = 0;

    for (size_t i = 0; i < Q_COUNT && r == 0; i++)
        r = metrics_series(t->metrics, names[i], labels, &t->queue[i], err);
    return r;
}

static int make_series(struct telemetry *t, struct err *err)
{
    const char *controller[] = {"inferenceservice", NULL};
    const char *lease[] = {"penstock-operator"}, *up[] = {"up"}, *down[] = {"down"};
    struct metric *unused; /* base sets the process's own */
    int r = 0;

    for (size_t i = 0; i < N_RESULTS && r == 0; i++) {
        controller[1] = RESULTS[i];
        r = metrics_series(t->metrics, "controller_runtime_reconcile_total", controller,
                           &t->results[i], err);
    }
    for (size_t i = 0; i < N_METHODS * N_CODES && r == 0; i++) {
        const char *labels[] = {METHODS[i / N_CODES], CODES[i % N_CODES]};

        r = metrics_series(t->metrics, "rest_client_requests_total", labels,
                           &t->answers[i / N_CODES][i % N_CODES], err);
    }
    for (size_t i = 0; i < METRICS_PROCESS_COUNT && r == 0; i++)
        r = metrics_series(t->metrics, METRICS_PROCESS[i].name, NULL, &unused, err);
    if (r ||
        metrics_series(t->metrics, "controller_runtime_reconcile_errors_total", controller,
                       &t->errors, err) ||
        metrics_series(t->metrics, "controller_runtime_reconcile_time_seconds", controller,
                       &t->seconds, err) ||
        metrics_series(t->metrics, "leader_election_master_status", lease, &t->leader, err) ||
        metrics_series(t->metrics, "penstock_operator_scale_decisions_total", up, &t->scaled_up,
                       err) ||
        metrics_series(t->metrics, "penstock_operator_scale_decisions_total", down, &t->scaled_down,
                       err) ||
        metrics_series(t->metrics, "penstock_operator_services", NULL, &t->services, err) ||
        metrics_series(t->metrics, "penstock_operator_pods", NULL, &t->pods, err))
        return -(int)err->code;
    return make_queue_series(t, err);
}

int telemetry_new(struct telemetry **ret, struct err *err)
{
    CLEANUP(telemetry_freep) struct telemetry *t = mem_calloc(1, sizeof(*t));
    size_t n;
    int r;

    if (!t)
        return err_set(err, ERR_NO_MEMORY, "metrics");
    r = join_tables(t, &n, err);
    if (r == 0)
        r = metrics_new(t->descs, n, true, &t->metrics, err);
    if (r == 0)
        r = make_series(t, err);
    if (r)
        return r;
    *ret = TAKE_PTR(t);
    return 0;
}

void telemetry_free(struct telemetry *t)
{
    if (!t)
        return;
    metrics_free(t->metrics);
    mem_free(t->descs);
    mem_free(t);
}

void telemetry_reconciled(struct telemetry *t, const char *result, double seconds)
{
    for (size_t i = 0; i < N_RESULTS; i++) {
        if (strcmp(RESULTS[i], result) == 0)
            metric_add(t->results[i], 1);
    }
    if (strcmp(result, "error") == 0)
        metric_add(t->errors, 1);
    metric_observe(t->seconds, seconds);
}

void telemetry_answer(struct telemetry *t, const char *method, int status)
{
    size_t code = status >= 100 && status < 600 ? (size_t)status / 100 : 0;

    for (size_t i = 0; i < N_METHODS; i++) {
        if (strcmp(METHODS[i], method) == 0)
            metric_add(t->answers[i][code], 1);
    }
}

void telemetry_scaled(struct telemetry *t, bool up)
{
    metric_add(up ? t->scaled_up : t->scaled_down, 1);
}

void telemetry_leader(struct telemetry *t, bool leads)
{
    metric_set(t->leader, leads);
}

static double service_value(size_t row, const cJSON *status)
{
    const cJSON *ready = condition_find(json_get(status, "conditions"), "Ready");

    switch (row) {
    case 0:
        return json_num(json_get(status, "scaling"), "desiredReplicas", 0);
    case 1:
        return json_num(status, "readyReplicas", 0);
    case 2:
        return json_num(status, "loadingReplicas", 0);
    default:
        return strcmp(json_str(ready, "status", ""), "True") == 0;
    }
}

/* Names of namespaces and services are DNS labels: nothing in them needs an escape. */
static void render_services(struct store *s, struct str *out)
{
    struct object_list l;
    struct err err;

    if (store_list(s, WATCHED_INFERENCE_SERVICE, NULL, &l, &err)) {
        out->failed = true;
        return;
    }
    for (size_t row = 0; row < TELEMETRY_OF_SERVICE_COUNT && l.n; row++) {
        const struct metric_desc *d = &TELEMETRY_OF_SERVICE[row];

        str_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", d->name, d->help, d->name);
        for (size_t i = 0; i < l.n; i++)
            str_addf(out, "%s{namespace=\"%s\",name=\"%s\"} %g\n", d->name, l.items[i]->namespace,
                     l.items[i]->name, service_value(row, json_get(l.items[i]->json, "status")));
    }
    object_list_release(&l);
}

void telemetry_render(struct telemetry *t, struct workqueue *q, struct store *s, struct str *out)
{
    struct workqueue_stats stats;

    workqueue_stats(q, &stats);
    metric_set(t->queue[Q_DEPTH], (double)stats.depth);
    metric_set(t->queue[Q_ADDS], (double)stats.n_added);
    metric_set(t->queue[Q_RETRIES], (double)stats.n_retried);
    metric_set(t->queue[Q_WAIT_SUM], (double)stats.wait_ns / 1e9);
    metric_set(t->queue[Q_WAIT_COUNT], (double)stats.n_taken);
    metric_set(t->queue[Q_WORK_SUM], (double)stats.work_ns / 1e9);
    metric_set(t->queue[Q_WORK_COUNT], (double)stats.n_done);
    metric_set(t->services, (double)store_count(s, WATCHED_INFERENCE_SERVICE));
    metric_set(t->pods, (double)store_count(s, WATCHED_POD));
    metrics_render(t->metrics, out);
    render_services(s, out);
}
