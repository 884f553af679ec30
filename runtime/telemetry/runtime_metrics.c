/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_metrics.c - the runtime's metrics, as one table.
 *
 * The penstock_ rows are ours.  The vllm: and openllm_ rows show the same series under the names
 * that public routers, autoscalers and dashboards read (Gateway API inference extension's model
 * server protocol, KEDA and HPA samples, OpenLLM's alert rules); --no-metric-aliases drops them.
 */
#include "runtime/telemetry/runtime_metrics.h"

#include <string.h>

#include "base/mem.h"

/* vLLM's buckets, so that dashboards and quantiles compare. */
static const double ttft_buckets[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                      1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double itl_buckets[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                     .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request_buckets[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                         30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double size_buckets[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

#define ROW(n, t, u, h) .name = (n), .type = METRIC_##t, .unit = (u), .help = (h)
#define BUCKETS(b) .buckets = (b), .n_buckets = sizeof(b) / sizeof((b)[0])
#define COUNTER(n, u, h, ...)                            \
    {                                                    \
        ROW(n, COUNTER, u, h), .labels = { __VA_ARGS__ } \
    }
#define GAUGE(n, u, h, ...)                            \
    {                                                  \
        ROW(n, GAUGE, u, h), .labels = { __VA_ARGS__ } \
    }
#define HISTOGRAM(n, u, h, b)               \
    {                                       \
        ROW(n, HISTOGRAM, u, h), BUCKETS(b) \
    }
#define ALIAS(n, t, of, ...)                                                                       \
    {                                                                                              \
        .name = (n), .type = METRIC_##t, .unit = "", .help = "Alias of " of ".", .alias_of = (of), \
        .labels = {                                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct metric_desc table[] = {
        COUNTER("penstock_requests_total", "", "HTTP answers by endpoint and status.", "endpoint",
                "code"),
        COUNTER("penstock_requests_answered_total", "", "HTTP answers to generation requests."),
        COUNTER("penstock_requests_failed_total", "",
                "Generation requests answered 5xx or ended by an error of the server."),
        GAUGE("penstock_queue_length", "requests",
              "Requests that wait: being tokenised, or not yet scheduled. Absent while loading."),
        GAUGE("penstock_queue_tokens", "tokens", "Prompt tokens of the requests that wait."),
        GAUGE("penstock_requests_running", "requests", "Requests the engine is computing."),
        GAUGE("penstock_requests_in_progress", "requests", "Waiting and running requests."),
        COUNTER("penstock_requests_finished_total", "", "Ended generations by reason.", "reason"),
        COUNTER("penstock_admission_rejected_total", "", "Requests refused before any work.",
                "reason"),
        GAUGE("penstock_kv_cache_usage_ratio", "ratio",
              "Share of KV blocks in use, of the fullest group."),
        GAUGE("penstock_kv_blocks", "blocks", "KV blocks in all."),
        GAUGE("penstock_kv_blocks_used", "blocks", "KV blocks in use."),
        COUNTER("penstock_preemptions_total", "",
                "Times a running request gave its blocks back and was computed again later."),
        COUNTER("penstock_tokens_total", "tokens", "Tokens computed: prompt and generated."),
        COUNTER("penstock_prompt_tokens_total", "tokens", "Prompt tokens of scheduled requests."),
        COUNTER("penstock_generated_tokens_total", "tokens", "Tokens generated."),
        HISTOGRAM("penstock_time_to_first_token_seconds", "seconds",
                  "From the request's arrival to its first token.", ttft_buckets),
        HISTOGRAM("penstock_inter_token_latency_seconds", "seconds",
                  "Time between two tokens of one request.", itl_buckets),
        HISTOGRAM("penstock_request_duration_seconds", "seconds",
                  "From the request's arrival to the end of its answer.", request_buckets),
        HISTOGRAM("penstock_request_queue_seconds", "seconds",
                  "From the engine's queue to the first schedule.", request_buckets),
        HISTOGRAM("penstock_request_prefill_seconds", "seconds",
                  "From the first schedule to the first token.", request_buckets),
        HISTOGRAM("penstock_request_decode_seconds", "seconds", "From the first token to the last.",
                  request_buckets),
        HISTOGRAM("penstock_batch_sequences", "requests", "Sequences a step.", size_buckets),
        HISTOGRAM("penstock_batch_tokens", "tokens", "Tokens a step.", size_buckets),
        GAUGE("penstock_cache_config_info", "", "Constant 1; the KV cache's shape as labels.",
              "block_size", "num_gpu_blocks"),
        GAUGE("penstock_loaded_bytes", "bytes", "Bytes of the model downloaded or loaded so far."),
        GAUGE("penstock_ready", "", "1 when requests are served."),

        /* gpu.c makes these, on a GPU alone */
        GAUGE("penstock_gpu_utilization_ratio", "ratio",
              "Share of the last second in which a kernel ran on the GPU.", "gpu", "uuid"),
        GAUGE("penstock_gpu_memory_bandwidth_utilization_ratio", "ratio",
              "Share of the last second in which the GPU's memory was read or written.", "gpu",
              "uuid"),
        GAUGE("penstock_gpu_memory_used_bytes", "bytes", "Memory of the GPU in use, by anybody.",
              "gpu", "uuid"),
        GAUGE("penstock_gpu_memory_total_bytes", "bytes", "Memory of the GPU.", "gpu", "uuid"),
        GAUGE("penstock_gpu_power_watts", "watts", "Power the GPU draws.", "gpu", "uuid"),
        GAUGE("penstock_gpu_temperature_celsius", "celsius", "Temperature of the GPU.", "gpu",
              "uuid"),
        GAUGE("penstock_gpu_clock_hertz", "hertz", "Clocks: sm, memory.", "gpu", "uuid", "clock"),
        GAUGE("penstock_gpu_throttle_reason", "",
              "1 for each reason that holds the clocks down now, 0 for the others.", "gpu", "uuid",
              "reason"),
        COUNTER("penstock_gpu_ecc_errors_total", "",
                "Memory errors since the driver was loaded: corrected, uncorrected.", "gpu", "uuid",
                "kind"),
        COUNTER("penstock_gpu_xid_errors_total", "",
                "Errors (Xid) of the GPU since this process started.", "gpu", "uuid"),
        GAUGE("penstock_gpu_last_xid", "", "Number of the last Xid; absent until one came.", "gpu",
              "uuid"),

        ALIAS("vllm:num_requests_waiting", GAUGE, "penstock_queue_length"),
        ALIAS("vllm:num_requests_running", GAUGE, "penstock_requests_running"),
        ALIAS("vllm:kv_cache_usage_perc", GAUGE, "penstock_kv_cache_usage_ratio"),
        ALIAS("vllm:gpu_cache_usage_perc", GAUGE, "penstock_kv_cache_usage_ratio"),
        ALIAS("vllm:cache_config_info", GAUGE, "penstock_cache_config_info"),
        ALIAS("vllm:num_preemptions_total", COUNTER, "penstock_preemptions_total"),
        ALIAS("vllm:prompt_tokens_total", COUNTER, "penstock_prompt_tokens_total"),
        ALIAS("vllm:generation_tokens_total", COUNTER, "penstock_generated_tokens_total"),
        ALIAS("vllm:request_success_total", COUNTER, "penstock_requests_finished_total",
              "finished_reason"),
        ALIAS("vllm:time_to_first_token_seconds", HISTOGRAM,
              "penstock_time_to_first_token_seconds"),
        ALIAS("vllm:inter_token_latency_seconds", HISTOGRAM,
              "penstock_inter_token_latency_seconds"),
        ALIAS("vllm:time_per_output_token_seconds", HISTOGRAM,
              "penstock_inter_token_latency_seconds"),
        ALIAS("vllm:e2e_request_latency_seconds", HISTOGRAM, "penstock_request_duration_seconds"),
        ALIAS("vllm:request_queue_time_seconds", HISTOGRAM, "penstock_request_queue_seconds"),
        ALIAS("vllm:request_prefill_time_seconds", HISTOGRAM, "penstock_request_prefill_seconds"),
        ALIAS("vllm:request_decode_time_seconds", HISTOGRAM, "penstock_request_decode_seconds"),
        ALIAS("openllm_requests_total", COUNTER, "penstock_requests_answered_total"),
        ALIAS("openllm_num_requests_total", COUNTER, "penstock_requests_answered_total"),
        ALIAS("openllm_request_failures_total", COUNTER, "penstock_requests_failed_total"),
        ALIAS("openllm_num_requests_inprogress", GAUGE, "penstock_requests_in_progress"),
        ALIAS("openllm_num_requests_waiting", GAUGE, "penstock_queue_length"),
        ALIAS("openllm_num_requests_running", GAUGE, "penstock_requests_running"),
        ALIAS("openllm_request_duration_seconds", HISTOGRAM, "penstock_request_duration_seconds"),

        {ROW("process_cpu_seconds_total", COUNTER, "seconds", "User and system CPU time.")},
        {ROW("process_resident_memory_bytes", GAUGE, "bytes", "Resident memory.")},
        {ROW("process_max_fds", GAUGE, "", "Limit of open file descriptors.")},
};

static const char *const endpoints[RUNTIME_ENDPOINTS] = {"/v1/chat/completions", "/v1/completions",
                                                         "/v1/models", "health", "other"};
static const char *const codes[RUNTIME_CODES] = {"200", "400", "401", "403", "404", "405",
                                                 "413", "415", "429", "500", "503", "other"};

const struct metric_desc *runtime_metrics_table(size_t *ret_n)
{
    *ret_n = sizeof(table) / sizeof(table[0]);
    return table;
}

/* Series without labels: name to handle. */
static int make_plain(struct runtime_metrics *m, struct err *err)
{
    const struct {
        const char *name;
        struct metric **at;
    } rows[] = {
            {"penstock_requests_answered_total", &m->requests_all},
            {"penstock_requests_failed_total", &m->requests_failed},
            {"penstock_queue_length", &m->queue_length},
            {"penstock_queue_tokens", &m->queue_tokens},
            {"penstock_requests_running", &m->running},
            {"penstock_requests_in_progress", &m->in_progress},
            {"penstock_kv_cache_usage_ratio", &m->kv_usage},
            {"penstock_kv_blocks", &m->kv_blocks},
            {"penstock_kv_blocks_used", &m->kv_blocks_used},
            {"penstock_preemptions_total", &m->preemptions},
            {"penstock_tokens_total", &m->tokens},
            {"penstock_prompt_tokens_total", &m->prompt_tokens},
            {"penstock_generated_tokens_total", &m->generated_tokens},
            {"penstock_time_to_first_token_seconds", &m->ttft},
            {"penstock_inter_token_latency_seconds", &m->itl},
            {"penstock_request_duration_seconds", &m->request_seconds},
            {"penstock_request_queue_seconds", &m->queue_seconds},
            {"penstock_request_prefill_seconds", &m->prefill_seconds},
            {"penstock_request_decode_seconds", &m->decode_seconds},
            {"penstock_batch_sequences", &m->batch_sequences},
            {"penstock_batch_tokens", &m->batch_tokens},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int r = metrics_series(m->all, rows[i].name, NULL, rows[i].at, err);

        if (r)
            return r;
    }
    return 0;
}

static int make_early(struct runtime_metrics *m, struct err *err)
{
    const struct {
        const char *name;
        struct metric **at;
    } rows[] = {
            {"penstock_loaded_bytes", &m->loaded_bytes},
            {"penstock_ready", &m->ready},
            {"process_cpu_seconds_total", &m->process[0]},
            {"process_resident_memory_bytes", &m->process[1]},
            {"process_max_fds", &m->process[2]},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int r = metrics_series(m->all, rows[i].name, NULL, rows[i].at, err);

        if (r)
            return r;
    }
    return 0;
}

static int make_one_label(struct runtime_metrics *m, const char *name, const char *const *values,
                          size_t n, struct metric **at, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        int r = metrics_series(m->all, name, &values[i], &at[i], err);

        if (r)
            return r;
    }
    return 0;
}

static int make_labelled(struct runtime_metrics *m, struct err *err)
{
    static const char *const reasons[] = {"stop", "length", "abort", "error"};
    static const char *const rejects[] = {"queue_full", "loading", "draining", "too_long"};
    int r = make_one_label(m, "penstock_requests_finished_total", reasons, RUNTIME_FINISHES,
                           m->finished, err);

    if (r == 0)
        r = make_one_label(m, "penstock_admission_rejected_total", rejects, RUNTIME_REJECTS,
                           m->rejected, err);
    for (size_t e = 0; e < RUNTIME_ENDPOINTS && r == 0; e++) {
        for (size_t c = 0; c < RUNTIME_CODES && r == 0; c++) {
            const char *values[] = {endpoints[e], codes[c]};

            r = metrics_series(m->all, "penstock_requests_total", values, &m->requests[e][c], err);
        }
    }
    return r;
}

int runtime_metrics_new(const char *model_name, bool aliases, struct runtime_metrics **ret,
                        struct err *err)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = mem_calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_set(err, ERR_NO_MEMORY, "metrics");
    r = metrics_new(table, sizeof(table) / sizeof(table[0]), aliases, &m->all, err);
    if (r == 0)
        r = metrics_const_label(m->all, "model_name", model_name, err);
    if (r == 0)
        r = metrics_const_label(m->all, "engine", "0", err);
    if (r == 0)
        r = make_labelled(m, err);
    if (r == 0)
        r = make_early(m, err);
    if (r)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

int runtime_metrics_serving(struct runtime_metrics *m, uint32_t block_size, uint32_t n_blocks,
                            struct err *err)
{
    CLEANUP(str_release) struct str size = STR_INIT(16), blocks = STR_INIT(16);
    const char *values[2];
    struct metric *info;
    int r = make_plain(m, err);

    if (r)
        return r;
    str_addf(&size, "%u", block_size);
    str_addf(&blocks, "%u", n_blocks);
    values[0] = str_text(&size);
    values[1] = str_text(&blocks);
    r = metrics_series(m->all, "penstock_cache_config_info", values, &info, err);
    if (r)
        return r;
    metric_set(info, 1);
    metric_set(m->kv_blocks, n_blocks);
    metric_set(m->ready, 1);
    return 0;
}

void runtime_metrics_free(struct runtime_metrics *m)
{
    if (!m)
        return;
    metrics_free(m->all);
    mem_free(m);
}

static size_t code_index(int status)
{
    for (size_t i = 0; i + 1 < RUNTIME_CODES; i++) {
        const char *c = codes[i];

        if ((c[0] - '0') * 100 + (c[1] - '0') * 10 + (c[2] - '0') == status)
            return i;
    }
    return RUNTIME_CODES - 1;
}

void runtime_metrics_answer(struct runtime_metrics *m, const char *endpoint, int status)
{
    size_t e = 0;

    while (e + 1 < RUNTIME_ENDPOINTS && strcmp(endpoints[e], endpoint) != 0)
        e++;
    metric_add(m->requests[e][code_index(status)], 1);
}
