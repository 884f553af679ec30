/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.c - the server's life: options, listeners, model, engine, and leaving in order.
 *
 * The listeners come first, so that probes and progress are answered while the model is fetched
 * and loaded.  Signals are taken by a thread of their own with sigwait(); the main thread builds
 * everything, waits, and takes it down again.
 *
 * Leaving (SIGTERM): /readyz turns 503 at once; requests are still taken for the drain grace, with
 * Connection: close, because endpoints change a second or two late; then new ones get 503; streams
 * end by themselves up to the drain timeout; what is left gets an error.  A second SIGTERM or
 * SIGINT ends the process at once.
 *
 * A failed start also leaves its one-line reason in /dev/termination-log, where Kubernetes looks.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/api/api.h"
#include "runtime/commands.h"
#include "runtime/device/memory_limit.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/kv_budget.h"
#include "runtime/formats/gguf.h"
#include "runtime/options.h"
#include "runtime/source/source.h"
#include "runtime/telemetry/gpu.h"

enum {
    KEYS_MAX = 1024,
    TEMPLATE_FILE_MAX = 1 << 20,
    NAME_BYTES = 256,
    POLL_MS = 20,
    XID_WAIT_MS = 1000
};

extern char **environ;

/* Everything a serving process has, in the order it is built. */
struct server {
    struct serve_options o;
    struct logger *logger;
    struct health health;
    char model_name[NAME_BYTES];
    const char **keys;
    size_t n_keys;
    char *key_text; /* what the file's keys point into */
    struct runtime_metrics *metrics;
    struct api *api;
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct inbox *inbox;
    struct model *model;
    struct gpu *gpu; /* NULL: computes on none, or it cannot be watched */
    struct engine *engine;
    pthread_t signal_thread;
    atomic_bool leaving; /* SIGTERM or SIGINT came */
    atomic_bool closing; /* tells the signal thread to end */
};

/* signals */

static void *wait_for_signals(void *userdata)
{
    struct server *s = userdata;
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR1);
    for (;;) {
        int sig = 0;

        if (sigwait(&set, &sig) != 0 || atomic_load(&s->closing))
            return NULL;
        if (sig == SIGUSR1)
            continue;
        if (atomic_exchange(&s->leaving, true)) {
            log_warn(s->logger, "second signal, leaving at once");
            _exit(1);
        }
    }
}

static int start_signal_thread(struct server *s, struct err *err)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL); /* every later thread inherits it */
    (void)signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&s->signal_thread, NULL, wait_for_signals, s) != 0)
        return err_set(err, ERR_UNAVAILABLE, "cannot start a thread");
    return 0;
}

/* building, in order */

static int make_logger(struct server *s, struct err *err)
{
    enum log_format format = LOG_JSON;
    enum log_level level = LOG_INFO;

    (void)log_format_parse(s->o.log_format, &format);
    (void)log_level_parse(s->o.log_level, &level);
    return logger_new(STDERR_FILENO, format, level, &s->logger, err);
}

static int add_key(struct server *s, const char *key, struct err *err)
{
    if (s->n_keys == KEYS_MAX)
        return err_set(err, ERR_INVALID, "more than %d API keys", KEYS_MAX);
    if (*key == '\0')
        return err_set(err, ERR_INVALID, "--api-key is empty: no client could send it");
    s->keys[s->n_keys++] = key;
    return 0;
}

static int load_keys(struct server *s, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(1u << 20);
    char *save = NULL;
    int r = 0;

    s->keys = mem_calloc(KEYS_MAX, sizeof(*s->keys));
    if (!s->keys)
        return err_set(err, ERR_NO_MEMORY, "API keys");
    for (size_t i = 0; i < s->o.api_keys.n && r == 0; i++)
        r = add_key(s, s->o.api_keys.items[i], err);
    if (r || !s->o.api_key_file)
        return r;
    r = file_read(s->o.api_key_file, &text, err);
    if (r)
        return err_wrap(err, "--api-key-file");
    s->key_text = str_take(&text);
    for (char *line = s->key_text ? strtok_r(s->key_text, "\r\n", &save) : NULL; line && r == 0;
         line = strtok_r(NULL, "\r\n", &save))
        r = add_key(s, line, err);
    if (r == 0 && s->n_keys == 0)
        return err_set(err, ERR_INVALID, "--api-key-file: '%s' holds no key", s->o.api_key_file);
    return r;
}

static int start_api(struct server *s, struct err *err)
{
    struct api_options o = {
            .host = s->o.host,
            .metrics_host = s->o.metrics_host,
            .port = (uint16_t)s->o.port,
            .metrics_port = (uint16_t)s->o.metrics_port,
            .n_threads = (unsigned)s->o.http_threads,
            .n_text_workers = (unsigned)s->o.text_workers,
            .connections_max = (unsigned)s->o.max_connections,
            .connections_per_address_max = (unsigned)s->o.max_connections_per_address,
            .body_bytes_max = (size_t)s->o.max_body,
            .api_keys = s->keys,
            .n_api_keys = s->n_keys,
            .model_name = s->model_name,
            .health = &s->health,
            .metrics = s->metrics,
            .logger = s->logger,
    };
    int r = api_start(&o, &s->api, err);

    if (r)
        return r;
    log_info(s->logger, "listening", F_STR("host", s->o.host), F_U64("port", api_port(s->api)),
             F_U64("metrics_port", api_metrics_port(s->api)));
    return 0;
}

static void on_progress(void *userdata, uint64_t done, uint64_t total)
{
    struct server *s = userdata;

    health_set_progress(&s->health, done, total);
}

/* An empty variable counts as none. */
static const char *env_or_null(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

static int fetch_and_open(struct server *s, struct err *err)
{
    struct source_options o = {
            .source = s->o.model,
            .cache_dir = s->o.cache_dir,
            .sha256 = s->o.model_sha256,
            .hf_endpoint = env_or_null("HF_ENDPOINT"),
            .hf_token = env_or_null("HF_TOKEN"),
            .allow_private = s->o.allow_private_sources,
            .cancel = &s->leaving,
            .logger = s->logger,
            .on_progress = on_progress,
            .userdata = s,
    };
    char path[SOURCE_PATH_BYTES];
    int r;

    health_set_phase(&s->health, HEALTH_DOWNLOADING);
    r = source_fetch(&o, path, err);
    if (r)
        return r;
    health_set_phase(&s->health, HEALTH_LOADING);
    health_set_progress(&s->health, 0, 0);
    r = gguf_open(path, &s->file, err);
    return r ? err_wrap(err, "model '%s'", path) : 0;
}

static int load_template(struct server *s, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(TEMPLATE_FILE_MAX);
    struct gguf_str source = {0};
    int r;

    if (s->o.chat_template) {
        r = file_read(s->o.chat_template, &text, err);
        if (r)
            return err_wrap(err, "--chat-template");
        source = (struct gguf_str){str_text(&text), text.len};
    } else if (gguf_string(s->file, "tokenizer.chat_template", &source, err) != 0) {
        if (err->code == ERR_NOT_FOUND)
            return 0; /* a base model: completions only */
        return -(int)err->code;
    }
    r = chat_template_new(source.data, source.len, tokenizer_bos_text(s->tokenizer),
                          tokenizer_eos_text(s->tokenizer), &s->chat_template, err);
    return r ? err_wrap(err, "chat template (another can be given by --chat-template)") : 0;
}

static int load_model(struct server *s, struct err *err)
{
    struct model_options o = {
            .device = s->o.device,
            .n_threads = (unsigned)s->o.threads,
            .slots_max = (uint32_t)s->o.max_num_seqs,
            .tokens_max = (uint32_t)s->o.max_num_batched_tokens,
            .context_max = (uint32_t)s->o.max_model_len,
            .n_ranks = (unsigned)s->o.tensor_parallel_size,
            .no_graphs = s->o.no_cuda_graphs,
            .memory_fraction = s->o.gpu_memory_fraction,
            .step_timeout_ms = (uint64_t)s->o.hang_limit_ms,
            .on_progress = on_progress,
            .userdata = s,
    };
    int r = tokenizer_new(s->file, &s->tokenizer, err);

    if (r == 0)
        r = load_template(s, err);
    if (r == 0)
        r = model_new(s->file, &o, &s->model, err);
    if (r == 0 && tokenizer_n_vocab(s->tokenizer) > model_info(s->model)->n_vocab)
        r = err_set(err, ERR_INVALID, "the vocabulary has %u tokens, the embedding only %u rows",
                    tokenizer_n_vocab(s->tokenizer), model_info(s->model)->n_vocab);
    return r ? err_wrap(err, "model '%s'", s->model_name) : 0;
}

/* A GPU without NVML computes all the same. */
static void watch_gpus(struct server *s)
{
    struct gpu_options o = {.metrics = s->metrics->all, .logger = s->logger};
    struct err err;

    if (strncmp(model_info(s->model)->device, "cuda", 4) == 0 && gpu_start(&o, &s->gpu, &err) != 0)
        log_warn(s->logger, "there are no metrics of the GPU", F_ERR(&err));
}

static void on_queue(void *userdata, int requests, int64_t tokens)
{
    struct runtime_metrics *m = userdata;

    metric_add(m->queue_length, requests);
    metric_add(m->queue_tokens, (double)tokens);
}

static int plan_memory(struct server *s, struct kv_budget *budget, struct err *err)
{
    struct kv_budget_options o = {
            .bytes_max = (uint64_t)s->o.kv_cache_memory,
            .sequences_max = (uint32_t)s->o.max_num_seqs,
            .tokens_max = (uint32_t)s->o.max_num_batched_tokens,
    };
    const struct model_info *info = model_info(s->model);
    uint64_t left = model_memory_left(s->model);

    if (o.bytes_max == 0)
        o.bytes_max = left == UINT64_MAX ? memory_limit_bytes() / 4 : left;
    if (o.bytes_max > left)
        return err_set(
                err, ERR_INVALID,
                "--kv-cache-memory of %llu MiB, the GPU has %llu MiB left; lower it or raise "
                "--gpu-memory-fraction",
                (unsigned long long)(o.bytes_max >> 20), (unsigned long long)(left >> 20));
    if (kv_budget_make(info, &o, budget, err) != 0)
        return -(int)err->code;
    if (s->o.max_model_len && budget->sequence_tokens < info->context_max)
        return err_set(err, ERR_INVALID,
                       "--max-model-len %lld does not fit into the KV cache of %llu MiB, %u would; "
                       "lower it or raise --kv-cache-memory",
                       (long long)s->o.max_model_len, (unsigned long long)(o.bytes_max >> 20),
                       budget->sequence_tokens);
    return 0;
}

static int start_engine(struct server *s, struct kv_budget *budget, struct err *err)
{
    struct inbox_options inbox = {
            .requests_max = (uint32_t)s->o.max_queue_requests,
            .tokens_max = (uint64_t)s->o.max_queue_tokens,
            .on_change = on_queue,
            .userdata = s->metrics,
    };
    struct engine_options o = {
            .model = s->model,
            .health = &s->health,
            .metrics = s->metrics,
            .logger = s->logger,
            .sequences_max = (uint32_t)s->o.max_num_seqs,
            .tokens_max = (uint32_t)s->o.max_num_batched_tokens,
            .runs_ahead = model_info(s->model)->runs_ahead,
    };
    uint32_t n_blocks = 0;
    int r = plan_memory(s, budget, err);

    if (r)
        return r;
    memcpy(o.n_blocks, budget->n_blocks, sizeof(o.n_blocks));
    for (uint32_t g = 0; g < model_info(s->model)->n_groups; g++)
        n_blocks += budget->n_blocks[g];
    r = runtime_metrics_serving(s->metrics, MODEL_BLOCK_SIZE, n_blocks, err);
    if (r == 0)
        r = inbox_new(&inbox, &s->inbox, err);
    if (r)
        return r;
    o.inbox = s->inbox;
    return engine_start(&o, &s->engine, err);
}

static void announce(struct server *s, const struct kv_budget *budget, uint64_t start_ns)
{
    const struct model_info *info = model_info(s->model);
    double seconds = (double)(clock_ns(clock_system()) - start_ns) * 1e-9;

    log_info(s->logger, "ready", F_STR("model", s->model_name), F_STR("arch", info->arch),
             F_STR("device", info->device), F_U64("ranks", info->n_ranks),
             F_U64("parameters", info->n_params), F_U64("weight_bytes", info->weight_bytes),
             F_U64("kv_bytes", budget->bytes), F_U64("context", budget->sequence_tokens),
             F_F64("seconds", seconds));
}

/* Fetch, load, start the engine; ready at the end. */
static int bring_up(struct server *s, struct err *err)
{
    uint64_t start_ns = clock_ns(clock_system());
    struct kv_budget budget = {0};
    int r = fetch_and_open(s, err);

    if (r == 0)
        r = load_model(s, err);
    if (r == 0)
        watch_gpus(s);
    if (r == 0)
        r = start_engine(s, &budget, err);
    if (r)
        return r;
    api_set_model(s->api, &(struct api_model){.tokenizer = s->tokenizer,
                                              .chat_template = s->chat_template,
                                              .inbox = s->inbox,
                                              .context_max = budget.sequence_tokens,
                                              .created_s = clock_wall_ms(clock_system()) / 1000});
    health_set_phase(&s->health, HEALTH_READY);
    announce(s, &budget, start_ns);
    return 0;
}

/* leaving */

static void sleep_ms(int64_t ms)
{
    (void)usleep((useconds_t)(ms * 1000));
}

/* Until no generation is under way, or the time is over. */
static bool wait_idle(const struct server *s, int64_t timeout_ms)
{
    uint64_t until = clock_ms(clock_system()) + (uint64_t)timeout_ms;

    while (api_in_progress(s->api) && clock_ms(clock_system()) < until)
        sleep_ms(POLL_MS);
    return api_in_progress(s->api) == 0;
}

static void leave(struct server *s)
{
    log_info(s->logger, "leaving", F_U64("in_progress", api_in_progress(s->api)));
    health_set_phase(&s->health, HEALTH_DRAINING);
    api_drain(s->api);
    sleep_ms(s->o.drain_grace_ms);
    api_refuse(s->api);
    if (!wait_idle(s, s->o.drain_timeout_ms)) {
        log_warn(s->logger, "drain timeout, ending requests",
                 F_U64("in_progress", api_in_progress(s->api)));
        engine_abort(s->engine);
        (void)wait_idle(s, 5000);
    }
}

/* Tells every client; the engine must still run to end its requests. */
static void end_clients(struct server *s)
{
    api_free(s->api);
    s->api = NULL;
}

static void tear_down(struct server *s)
{
    end_clients(s);
    if (s->inbox)
        inbox_close(s->inbox);
    engine_free(s->engine);
    inbox_free(s->inbox);
    model_free(s->model);
    chat_template_free(s->chat_template);
    tokenizer_free(s->tokenizer);
    gguf_free(s->file);
    gpu_stop(s->gpu);
    runtime_metrics_free(s->metrics);
    mem_free(s->key_text);
    mem_free(s->keys);
    atomic_store(&s->closing, true);
    if (s->signal_thread) {
        (void)pthread_kill(s->signal_thread, SIGUSR1);
        (void)pthread_join(s->signal_thread, NULL);
    }
    logger_free(s->logger);
}

static void write_termination_log(const struct err *err)
{
    int fd = open("/dev/termination-log", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!write(fd, err->msg, strlen(err->msg));
    (void)close(fd);
}

/* With what the GPU itself says, which reaches the service's status. */
static int device_failed(struct server *s, struct err *err)
{
    const char *why = engine_failure(s->engine)->msg;
    char what[160];

    if (s->gpu && gpu_last_error(s->gpu, XID_WAIT_MS, what, sizeof(what)))
        return err_set(err, ERR_DEVICE, "the device failed: %s: %s", what, why);
    return err_set(err, ERR_DEVICE, "the device failed: %s", why);
}

static int serve(struct server *s, struct err *err)
{
    int r = make_logger(s, err);

    if (r == 0)
        r = start_signal_thread(s, err);
    if (r == 0)
        r = load_keys(s, err);
    if (r == 0)
        r = runtime_metrics_new(s->model_name, s->o.metric_aliases, &s->metrics, err);
    if (r == 0)
        r = start_api(s, err);
    if (r == 0)
        r = bring_up(s, err);
    if (r && atomic_load(&s->leaving))
        return 0; /* told to leave while still loading */
    if (r)
        return r;
    while (!atomic_load(&s->leaving) && health_phase(&s->health) != HEALTH_FAILED)
        sleep_ms(POLL_MS);
    if (health_phase(&s->health) == HEALTH_FAILED)
        return device_failed(s, err);
    leave(s);
    return 0;
}

static void choose_name(struct server *s)
{
    if (s->o.served_model_name)
        (void)snprintf(s->model_name, sizeof(s->model_name), "%s", s->o.served_model_name);
    else
        source_model_name(s->o.model, s->model_name, sizeof(s->model_name));
}

static int run(struct server *s)
{
    struct err err = {0};
    int r;

    choose_name(s);
    health_init(&s->health, (uint64_t)s->o.hang_limit_ms * 1000000);
    r = serve(s, &err);
    if (r) {
        health_set_phase(&s->health, HEALTH_FAILED);
        end_clients(s);
        log_error(s->logger, "cannot serve", F_ERR(&err));
        write_termination_log(&err);
    } else {
        log_info(s->logger, "bye");
    }
    tear_down(s);
    return r ? 1 : 0;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static void print_text(void (*write_text)(const struct server *s, struct str *out),
                       const struct server *s)
{
    CLEANUP(str_release) struct str out = STR_INIT(1u << 20);

    write_text(s, &out);
    (void)fputs(str_text(&out), stdout);
}

static void write_help(const struct server *s, struct str *out)
{
    (void)s;
    config_help(SERVE_OPTIONS, SERVE_OPTIONS_COUNT,
                "usage: penstock-runtime serve --model SOURCE [options]\n", out);
}

static void write_config(const struct server *s, struct str *out)
{
    config_print(SERVE_OPTIONS, SERVE_OPTIONS_COUNT, &s->o, out);
}

static int check_options(const struct serve_options *o, struct err *err)
{
    if (!o->model)
        return err_set(err, ERR_INVALID, "--model is missing: which model shall be served?");
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return err_set(err, ERR_INVALID,
                       "--max-num-batched-tokens %lld is below --max-num-seqs %lld; every running "
                       "request needs a token a step",
                       (long long)o->max_num_batched_tokens, (long long)o->max_num_seqs);
    return 0;
}

int command_serve(int argc, char **argv)
{
    struct config_source src = {
            .argc = argc, .argv = argv, .environ_vars = environ, .config_flag = "config"};
    struct server *s = mem_calloc(1, sizeof(*s));
    struct err err = {0};
    int code = 2;

    if (!s)
        return 1;
    if (wants_help(argc, argv)) {
        print_text(write_help, s);
        code = 0;
    } else if (config_load(SERVE_OPTIONS, SERVE_OPTIONS_COUNT, &src, &s->o, &err) != 0) {
        (void)fprintf(stderr, "penstock-runtime serve: %s\n", err.msg);
    } else if (s->o.print_config) {
        print_text(write_config, s);
        code = 0;
    } else if (check_options(&s->o, &err) != 0) {
        (void)fprintf(stderr, "penstock-runtime serve: %s\n", err.msg);
    } else {
        code = run(s);
    }
    if (code == 2)
        write_termination_log(&err);
    config_release(SERVE_OPTIONS, SERVE_OPTIONS_COUNT, &s->o);
    mem_free(s);
    return code;
}
