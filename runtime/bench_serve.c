/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_serve.c - 'penstock-runtime bench serve': load on an OpenAI server, and what it felt like.
 *
 * All streams run on one thread (http_loop), so the tool itself takes little of a small machine.
 * Closed loop: --concurrency requests at once, a new one when one ends.  Open loop: --request-rate
 * arrivals a second with exponential gaps (a Poisson process), whatever the server manages; only
 * that shows what a queue does.  Time to first token counts from the request's due time, so a late
 * start in open loop is not forgiven.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/http_client.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "runtime/bench_report.h"
#include "runtime/commands.h"

enum { IN_FLIGHT_MAX = 4096, LINE_MAX_BYTES = 1 << 20 };

struct bench_options {
    char *url, *model, *endpoint, *api_key, *output;
    int64_t num_prompts, concurrency, input_len, output_len, seed, timeout_ms;
    double request_rate;
    bool ignore_eos, quiet;
};

#define AT(f) .offset = offsetof(struct bench_options, f)
static const struct option options[] = {
        {"url",
         OPTION_STR,
         AT(url),
         "http://127.0.0.1:8000",
         0,
         0,
         NULL,
         "Target",
         "URL",
         "Server to measure.",
         {"base-url"},
         false},
        {"model",
         OPTION_STR,
         AT(model),
         NULL,
         0,
         0,
         NULL,
         "Target",
         "NAME",
         "Model to ask for; the first of /v1/models if not given.",
         {NULL},
         false},
        {"endpoint",
         OPTION_CHOICE,
         AT(endpoint),
         "chat",
         0,
         0,
         "chat completions",
         "Target",
         "NAME",
         "Which API.",
         {NULL},
         false},
        {"api-key",
         OPTION_STR,
         AT(api_key),
         NULL,
         0,
         0,
         NULL,
         "Target",
         "KEY",
         "API key.",
         {NULL},
         true},
        {"num-prompts",
         OPTION_I64,
         AT(num_prompts),
         "100",
         1,
         1e7,
         NULL,
         "Load",
         "N",
         "Requests in all.",
         {NULL},
         false},
        {"concurrency",
         OPTION_I64,
         AT(concurrency),
         "8",
         1,
         IN_FLIGHT_MAX,
         NULL,
         "Load",
         "N",
         "Requests at once (closed loop).",
         {"max-concurrency"},
         false},
        {"request-rate",
         OPTION_F64,
         AT(request_rate),
         "0",
         0,
         1e6,
         NULL,
         "Load",
         "R",
         "Arrivals a second with exponential gaps (open loop); 0: closed loop.",
         {NULL},
         false},
        {"input-len",
         OPTION_I64,
         AT(input_len),
         "64",
         1,
         1e6,
         NULL,
         "Load",
         "N",
         "Words a prompt, about a token each.",
         {"random-input-len"},
         false},
        {"output-len",
         OPTION_I64,
         AT(output_len),
         "64",
         1,
         1e6,
         NULL,
         "Load",
         "N",
         "Tokens to generate.",
         {"random-output-len"},
         false},
        {"ignore-eos",
         OPTION_BOOL,
         AT(ignore_eos),
         "true",
         0,
         0,
         NULL,
         "Load",
         NULL,
         "Always generate output-len tokens.",
         {NULL},
         false},
        {"seed",
         OPTION_I64,
         AT(seed),
         "1",
         0,
         1e15,
         NULL,
         "Load",
         "N",
         "Same seed, same prompts and arrivals.",
         {NULL},
         false},
        {"timeout",
         OPTION_MS,
         AT(timeout_ms),
         "10m",
         100,
         86400000,
         NULL,
         "Load",
         "TIME",
         "Of one request.",
         {NULL},
         false},
        {"output",
         OPTION_CHOICE,
         AT(output),
         "table",
         0,
         0,
         "table json",
         "Report",
         "FORMAT",
         "A table for people, JSON for programs; also -o.",
         {"o"},
         false},
        {"quiet",
         OPTION_BOOL,
         AT(quiet),
         "false",
         0,
         0,
         NULL,
         "Report",
         NULL,
         "No progress.",
         {NULL},
         false},
};
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

struct bench {
    struct bench_options o;
    struct http_client *client;
    struct http_loop *loop;
    char *url; /* of the endpoint */
    char *model;
    struct bench_report report;
    uint64_t random;
    uint32_t n_started, n_in_flight;
    uint64_t next_arrival_ns;
    uint64_t last_print_ns;
};

/* One request under way. */
struct exchange {
    struct bench *bench;
    struct http_call call;
    struct str body, line;
    uint64_t due_ns, last_token_ns;
    uint32_t prompt_tokens, output_tokens;
    bool got_done;
    char error[256];
};

static uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static uint64_t next_random(struct bench *b)
{
    uint64_t z = b->random += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void add_prompt(struct bench *b, struct str *out)
{
    static const char *const words[] = {
            "the",  "river", "stone", "gate", "water", "power", "over",  "under",  "day",  "light",
            "mill", "wheel", "turn",  "high", "low",   "old",   "new",   "people", "town", "work",
            "good", "great", "small", "long", "first", "last",  "house", "road",   "hand", "time"};

    for (int64_t i = 0; i < b->o.input_len; i++) {
        str_adds(out, i ? " " : "");
        str_adds(out, words[next_random(b) % (sizeof(words) / sizeof(words[0]))]);
    }
}

static void write_body(struct bench *b, struct str *out)
{
    CLEANUP(str_release) struct str prompt = STR_INIT(1u << 24);
    struct json_writer w = json_writer_start(out);

    add_prompt(b, &prompt);
    json_obj(&w);
    json_kv_text(&w, "model", b->model);
    if (strcmp(b->o.endpoint, "chat") == 0) {
        json_key(&w, "messages");
        json_arr(&w);
        json_obj(&w);
        json_kv_text(&w, "role", "user");
        json_kv_text(&w, "content", str_text(&prompt));
        json_end(&w);
        json_end(&w);
    } else {
        json_kv_text(&w, "prompt", str_text(&prompt));
    }
    json_kv_i64(&w, "max_tokens", b->o.output_len);
    json_kv_f64(&w, "temperature", 0);
    json_kv_bool(&w, "ignore_eos", b->o.ignore_eos);
    json_kv_bool(&w, "stream", true);
    json_key(&w, "stream_options");
    json_obj(&w);
    json_kv_bool(&w, "include_usage", true);
    json_end(&w);
    json_end(&w);
}

/* answers */

static void note_token(struct exchange *x)
{
    uint64_t now = now_ns();

    if (x->last_token_ns == 0)
        samples_add(&x->bench->report.ttft, (double)(now - x->due_ns) * 1e-9);
    else
        samples_add(&x->bench->report.itl, (double)(now - x->last_token_ns) * 1e-9);
    x->last_token_ns = now;
}

static void read_event(struct exchange *x, const char *data, size_t len)
{
    CLEANUP(json_freep) cJSON *root = NULL;
    const cJSON *usage, *error;
    struct err err;

    if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
        x->got_done = true;
        return;
    }
    if (json_parse(data, len, &JSON_LIMITS_DEFAULT, &root, &err) != 0) {
        (void)snprintf(x->error, sizeof(x->error), "event is no JSON: %.200s", err.msg);
        return;
    }
    error = json_get(root, "error");
    if (cJSON_IsObject(error))
        (void)snprintf(x->error, sizeof(x->error), "%s", json_str(error, "message", "error"));
    if (cJSON_GetArraySize(json_get(root, "choices")) > 0)
        note_token(x);
    usage = json_get(root, "usage");
    if (cJSON_IsObject(usage)) {
        x->prompt_tokens = (uint32_t)json_int(usage, "prompt_tokens", 0);
        x->output_tokens = (uint32_t)json_int(usage, "completion_tokens", 0);
    }
}

static int on_body(void *userdata, const char *data, size_t len)
{
    struct exchange *x = userdata;

    str_add(&x->line, data, len);
    for (;;) {
        char *end = x->line.len ? memchr(x->line.data, '\n', x->line.len) : NULL;
        size_t n;

        if (!end)
            return x->line.failed ? -1 : 0;
        n = (size_t)(end - x->line.data);
        if (n > 6 && memcmp(x->line.data, "data: ", 6) == 0)
            read_event(x, x->line.data + 6, n - 6);
        str_consume(&x->line, n + 1);
    }
}

static void note_failure(struct bench *b, const char *why)
{
    if (b->report.n_failed++ == 0)
        (void)snprintf(b->report.first_error, sizeof(b->report.first_error), "%s", why);
}

static void exchange_free(struct exchange *x)
{
    str_release(&x->body);
    str_release(&x->line);
    mem_free(x);
}

static void on_done(void *userdata, int r, const struct http_reply *reply, const struct err *err)
{
    struct exchange *x = userdata;
    struct bench *b = x->bench;
    char why[256];

    b->n_in_flight--;
    if (r != 0)
        note_failure(b, err->msg);
    else if (reply->status != 200) {
        (void)snprintf(why, sizeof(why), "status %d: %.200s", reply->status,
                       str_text(&reply->body));
        note_failure(b, why);
    } else if (x->error[0] || !x->got_done) {
        note_failure(b, x->error[0] ? x->error : "the stream ended without [DONE]");
    } else {
        b->report.n_ok++;
        b->report.prompt_tokens += x->prompt_tokens;
        b->report.output_tokens += x->output_tokens;
        samples_add(&b->report.e2e, (double)(now_ns() - x->due_ns) * 1e-9);
    }
    exchange_free(x);
}

/* load */

static int start_one(struct bench *b, uint64_t due_ns, struct err *err)
{
    struct exchange *x = mem_calloc(1, sizeof(*x));
    int r;

    if (!x)
        return err_set(err, ERR_NO_MEMORY, "request");
    x->bench = b;
    x->due_ns = due_ns;
    x->body.max = 1u << 24;
    x->line.max = LINE_MAX_BYTES;
    write_body(b, &x->body);
    x->call = (struct http_call){.url = b->url,
                                 .headers = {"Content-Type: application/json"},
                                 .body = str_text(&x->body),
                                 .body_len = x->body.len,
                                 .bearer = b->o.api_key,
                                 .timeout_ms = (unsigned)b->o.timeout_ms,
                                 .on_body = on_body,
                                 .userdata = x};
    r = http_loop_start(b->loop, b->client, &x->call, on_done, NULL, err);
    if (r) {
        exchange_free(x);
        return r;
    }
    b->n_started++;
    b->n_in_flight++;
    return 0;
}

static void plan_arrival(struct bench *b)
{
    double uniform = ((double)(next_random(b) >> 11) + 1) * 0x1p-53;

    b->next_arrival_ns += (uint64_t)(-log(uniform) / b->o.request_rate * 1e9);
}

/* Start what is due. */
static int start_due(struct bench *b, struct err *err)
{
    int r = 0;

    while (r == 0 && b->n_started < (uint32_t)b->o.num_prompts && b->n_in_flight < IN_FLIGHT_MAX) {
        uint64_t now = now_ns();

        if (b->o.request_rate > 0) {
            if (now < b->next_arrival_ns)
                break;
            r = start_one(b, b->next_arrival_ns, err);
            plan_arrival(b);
        } else {
            if (b->n_in_flight >= (uint32_t)b->o.concurrency)
                break;
            r = start_one(b, now, err);
        }
    }
    return r;
}

static void print_progress(struct bench *b, uint64_t start_ns)
{
    uint64_t now = now_ns();

    if (b->o.quiet || now - b->last_print_ns < 2000000000u)
        return;
    b->last_print_ns = now;
    (void)fprintf(stderr, "%4.0f s: %u answered, %u under way, %u failed, of %lld\n",
                  (double)(now - start_ns) * 1e-9, b->report.n_ok, b->n_in_flight,
                  b->report.n_failed, (long long)b->o.num_prompts);
}

static int run_load(struct bench *b, struct err *err)
{
    uint64_t start = now_ns();
    int r = 0;

    b->next_arrival_ns = b->last_print_ns = start;
    while (r == 0 && (b->n_in_flight || b->n_started < (uint32_t)b->o.num_prompts)) {
        r = start_due(b, err);
        http_loop_run(b->loop, b->o.request_rate > 0 ? 1 : 100);
        print_progress(b, start);
    }
    b->report.seconds = (double)(now_ns() - start) * 1e-9;
    return r;
}

/* the first model the server lists */
static int ask_model(struct bench *b, struct err *err)
{
    CLEANUP(str_release) struct str url = STR_INIT(4096);
    CLEANUP(json_freep) cJSON *root = NULL;
    struct http_call call = {.bearer = b->o.api_key, .timeout_ms = 10000};
    struct http_reply reply;
    const char *id;
    int r;

    str_addf(&url, "%s/v1/models", b->o.url);
    call.url = str_text(&url);
    r = http_client_do(b->client, &call, &reply, err);
    if (r == 0 && reply.status != 200)
        r = err_set(err, ERR_UNAVAILABLE, "%s answered %d", call.url, reply.status);
    if (r == 0)
        r = json_parse(str_text(&reply.body), reply.body.len, &JSON_LIMITS_DEFAULT, &root, err);
    http_reply_release(&reply);
    if (r)
        return r;
    id = json_str(cJSON_GetArrayItem(json_get(root, "data"), 0), "id", NULL);
    if (!id)
        return err_set(err, ERR_INVALID, "%s lists no model", call.url);
    b->model = mem_strdup(id);
    return b->model ? 0 : err_set(err, ERR_NO_MEMORY, "model name");
}

static int prepare(struct bench *b, struct err *err)
{
    struct http_client_options co = {.idle_timeout_ms = 600000};
    CLEANUP(str_release) struct str url = STR_INIT(4096);
    int r = http_client_new(&co, &b->client, err);

    if (r == 0)
        r = http_loop_new(&b->loop, err);
    if (r)
        return r;
    str_addf(&url, "%s/v1/%s", b->o.url,
             strcmp(b->o.endpoint, "chat") == 0 ? "chat/completions" : "completions");
    b->url = str_take(&url);
    b->random = (uint64_t)b->o.seed;
    if (!b->url)
        return err_set(err, ERR_NO_MEMORY, "URL");
    if (!b->o.model)
        return ask_model(b, err);
    b->model = mem_strdup(b->o.model);
    return b->model ? 0 : err_set(err, ERR_NO_MEMORY, "model name");
}

static void print_report(struct bench *b)
{
    CLEANUP(str_release) struct str out = STR_INIT(1u << 16);

    b->report.url = b->o.url;
    b->report.model = b->model;
    b->report.n_prompts = (uint32_t)b->o.num_prompts;
    if (strcmp(b->o.output, "json") == 0)
        bench_report_json(&b->report, &out);
    else
        bench_report_table(&b->report, &out);
    (void)fputs(str_text(&out), stdout);
}

static void release(struct bench *b)
{
    http_loop_free(b->loop);
    http_client_free(b->client);
    mem_free(b->url);
    mem_free(b->model);
    samples_release(&b->report.ttft);
    samples_release(&b->report.itl);
    samples_release(&b->report.e2e);
    config_release(options, N_OPTIONS, &b->o);
}

static int print_help(void)
{
    CLEANUP(str_release) struct str out = STR_INIT(1u << 16);

    config_help(options, N_OPTIONS, "usage: penstock-runtime bench serve [options]\n", &out);
    (void)fputs(str_text(&out), stdout);
    return 0;
}

int command_bench(int argc, char **argv)
{
    struct config_source src = {.argc = argc - 1, .argv = argv + 1};
    char long_output[] = "--output";
    struct bench b = {0};
    struct err err = {0};
    int code = 1;

    if (argc < 1 || strcmp(argv[0], "serve") != 0) {
        (void)fprintf(stderr, "usage: penstock-runtime bench serve [options]; see --help\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return print_help();
        if (strcmp(argv[i], "-o") == 0)
            argv[i] = long_output;
    }
    if (config_load(options, N_OPTIONS, &src, &b.o, &err) != 0)
        code = 2;
    else if (prepare(&b, &err) == 0 && run_load(&b, &err) == 0) {
        print_report(&b);
        code = b.report.n_failed ? 1 : 0;
    }
    if (err.code != ERR_NONE)
        (void)fprintf(stderr, "penstock-runtime bench serve: %s\n", err.msg);
    release(&b);
    return code;
}
