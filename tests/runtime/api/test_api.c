/* SPDX-License-Identifier: Apache-2.0 */

/* The whole server but its options: HTTP, text workers, engine and a tiny model, in one process, so
 * that the sanitizers see all of its threads. */
#include "runtime/api/api.h"

#include <stdio.h>
#include <unistd.h>

#include "base/http_client.h"
#include "base/json.h"
#include "runtime/engine/engine.h"
#include "tests/runtime/model/tiny_model.h"
#include "tests/runtime/text/tiny_vocab.h"
#include "tests/support.h"

enum { SEQS_MAX = 4, TOKENS_MAX = 64, BLOCKS = 30, CALLS = 40 };

struct rig {
    struct tiny tiny;
    struct gguf_builder vocab_file;
    struct gguf *vocab;
    struct tokenizer *tokenizer;
    struct model *model;
    struct health health;
    struct runtime_metrics *metrics;
    struct inbox *inbox;
    struct engine *engine;
    struct api *api;
};

static void start_model(struct rig *rig)
{
    struct model_options mo = {.device = "cpu",
                               .n_threads = 2,
                               .slots_max = SEQS_MAX,
                               .tokens_max = TOKENS_MAX,
                               .context_max = TINY_CONTEXT};
    struct inbox_options io = {.requests_max = 64, .tokens_max = 1 << 20};
    struct engine_options eo = {.sequences_max = SEQS_MAX, .tokens_max = TOKENS_MAX};
    struct err err;

    tiny_init(&rig->tiny, "llama");
    tiny_vocab_byte_level(&rig->vocab_file, "gpt-2");
    assert_ok(gguf_parse(rig->vocab_file.file.data, rig->vocab_file.file.len, &rig->vocab, &err),
              &err);
    assert_ok(tokenizer_new(rig->vocab, &rig->tokenizer, &err), &err);
    assert_ok(model_new(rig->tiny.gguf, &mo, &rig->model, &err), &err);
    assert_ok(runtime_metrics_serving(rig->metrics, MODEL_BLOCK_SIZE, BLOCKS, &err), &err);
    assert_ok(inbox_new(&io, &rig->inbox, &err), &err);
    eo.model = rig->model;
    eo.inbox = rig->inbox;
    eo.health = &rig->health;
    eo.metrics = rig->metrics;
    eo.n_blocks[0] = BLOCKS;
    assert_ok(engine_start(&eo, &rig->engine, &err), &err);
}

static int setup(void **state)
{
    static struct rig rig;
    struct api_options o = {.n_threads = 2,
                            .n_text_workers = 2,
                            .connections_max = 100,
                            .body_bytes_max = 1 << 16,
                            .model_name = "tiny"};
    struct err err;

    memset(&rig, 0, sizeof(rig));
    health_init(&rig.health, 1000000000000);
    assert_ok(runtime_metrics_new("tiny", true, &rig.metrics, &err), &err);
    o.health = &rig.health;
    o.metrics = rig.metrics;
    assert_ok(api_start(&o, &rig.api, &err), &err);
    *state = &rig;
    return 0;
}

static void serve(struct rig *rig)
{
    start_model(rig);
    api_set_model(rig->api, &(struct api_model){.tokenizer = rig->tokenizer,
                                                .inbox = rig->inbox,
                                                .context_max = TINY_CONTEXT});
    health_set_phase(&rig->health, HEALTH_READY);
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    api_free(rig->api);
    if (rig->inbox)
        inbox_close(rig->inbox);
    engine_free(rig->engine);
    inbox_free(rig->inbox);
    model_free(rig->model);
    tokenizer_free(rig->tokenizer);
    gguf_free(rig->vocab);
    if (rig->tokenizer) {
        gguf_builder_release(&rig->vocab_file);
        tiny_release(&rig->tiny);
    }
    runtime_metrics_free(rig->metrics);
    return 0;
}

static int call(const struct rig *rig, const char *path, const char *body, struct str *out)
{
    struct http_client_options o = {0};
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    struct http_call call = {.headers = {"Content-Type: application/json"},
                             .body = body,
                             .body_len = body ? strlen(body) : 0};
    struct http_reply reply;
    struct err err;
    char url[128];
    int status;

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", api_port(rig->api), path);
    call.url = url;
    assert_ok(http_client_new(&o, &c, &err), &err);
    assert_ok(http_client_do(c, &call, &reply, &err), &err);
    str_clear(out);
    str_add(out, str_text(&reply.body), reply.body.len);
    status = reply.status;
    http_reply_release(&reply);
    return status;
}

static void before_the_model_is_there(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    struct rig *rig = *state;

    health_set_phase(&rig->health, HEALTH_LOADING);
    health_set_progress(&rig->health, 30, 120);
    assert_int_equal(call(rig, "/readyz", NULL, &out), 503);
    assert_int_equal(call(rig, "/livez", NULL, &out), 200);
    assert_int_equal(call(rig, "/startupz", NULL, &out), 503);
    assert_string_equal(str_text(&out),
                        "{\"phase\":\"loading\",\"bytes_done\":30,\"bytes_total\":120,"
                        "\"percent\":25}");
    assert_int_equal(call(rig, "/metrics", NULL, &out), 200);
    assert_null(strstr(str_text(&out), "penstock_queue_length{")); /* loading is not idle */
    assert_int_equal(call(rig, "/v1/completions", "{\"prompt\":[5]}", &out), 503);
    assert_int_equal(call(rig, "/v1/models", NULL, &out), 503);
    health_set_phase(&rig->health, HEALTH_FAILED);
    assert_int_equal(call(rig, "/livez", NULL, &out), 503);
}

static void a_hung_step_is_not_alive(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    struct rig *rig = *state;

    atomic_store(&rig->health.hang_limit_ns, 1000000);
    health_step_begin(&rig->health, 1);
    assert_int_equal(call(rig, "/livez", NULL, &out), 503);
    assert_non_null(strstr(str_text(&out), "hangs"));
    health_step_end(&rig->health);
    assert_int_equal(call(rig, "/livez", NULL, &out), 200);
}

static void a_completion_is_answered(void **state)
{
    static const char body[] = "{\"prompt\":[5,6,7],\"max_tokens\":9,\"temperature\":0,"
                               "\"ignore_eos\":true}";
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    CLEANUP(json_freep) cJSON *t = NULL;
    struct rig *rig = *state;
    struct err err;

    serve(rig);
    assert_int_equal(call(rig, "/v1/completions", body, &out), 200);
    assert_ok(json_parse(str_text(&out), out.len, &JSON_LIMITS_DEFAULT, &t, &err), &err);
    assert_int_equal(json_int(json_get(t, "usage"), "completion_tokens", 0), 9);
    assert_int_equal(call(rig, "/v1/chat/completions",
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &out),
                     400);
    assert_non_null(strstr(str_text(&out), "no_chat_template"));
}

/* Many streams at once: some run to the end, some are dropped at a random moment. */

struct stream {
    struct http_call call;
    struct http_task *task;
    char body[128];
    bool done, whole;
    struct str text;
};

static int on_body(void *userdata, const char *data, size_t len)
{
    struct stream *s = userdata;

    str_add(&s->text, data, len);
    return 0;
}

static void on_done(void *userdata, int r, const struct http_reply *reply, const struct err *err)
{
    struct stream *s = userdata;
    struct err copy = *err;

    assert_ok(r, &copy);
    s->done = true;
    s->whole = reply->status == 200 && (str_ends(str_text(&s->text), "data: [DONE]\n\n") ||
                                        strstr(str_text(&s->text), "\"usage\":{"));
    assert_true(s->whole || reply->status == 503);
}

static void start(struct stream *s, int i, struct http_loop *loop, struct http_client *c,
                  const char *url)
{
    struct err err;

    (void)snprintf(s->body, sizeof(s->body),
                   "{\"prompt\":[%d,6,7,8],\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":%s}",
                   4 + i, 20 + 3 * i, i % 4 == 3 ? "false" : "true");
    s->text.max = 1 << 20;
    s->call = (struct http_call){.url = url,
                                 .headers = {"Content-Type: application/json"},
                                 .body = s->body,
                                 .body_len = strlen(s->body),
                                 .on_body = on_body,
                                 .userdata = s};
    assert_ok(http_loop_start(loop, c, &s->call, on_done, &s->task, &err), &err);
}

static void wait_idle(const struct rig *rig)
{
    for (int i = 0; i < 10000 && (api_in_progress(rig->api) || engine_in_progress(rig->engine) ||
                                  metric_get(rig->metrics->kv_blocks_used) > 0);
         i++)
        (void)usleep(1000);
    assert_int_equal(api_in_progress(rig->api), 0);
    assert_int_equal(inbox_waiting(rig->inbox), 0);
    assert_true(metric_get(rig->metrics->kv_blocks_used) == 0);
    assert_true(metric_get(rig->metrics->queue_length) == 0);
}

static void streams_end_or_are_dropped(void **state)
{
    static struct stream streams[CALLS];
    struct http_client_options o = {0};
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    CLEANUP(http_loop_freep) struct http_loop *loop = NULL;
    struct rig *rig = *state;
    struct err err;
    char url[64];
    int n_done = 0;

    serve(rig);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/completions", api_port(rig->api));
    assert_ok(http_client_new(&o, &c, &err), &err);
    assert_ok(http_loop_new(&loop, &err), &err);
    for (int i = 0; i < CALLS; i++)
        start(&streams[i], i, loop, c, url);
    for (int round = 0; round < 20000 && n_done < CALLS; round++) {
        struct stream *drop = &streams[(round * 7) % CALLS];

        http_loop_run(loop, 1);
        if (round % 5 == 0 && !drop->done && (round * 7) % CALLS % 3 == 0) {
            http_loop_cancel(loop, drop->task);
            drop->done = true;
        }
        n_done = 0;
        for (int i = 0; i < CALLS; i++)
            n_done += streams[i].done;
    }
    assert_int_equal(n_done, CALLS);
    wait_idle(rig);
    for (int i = 0; i < CALLS; i++) {
        assert_true(streams[i].whole || i % 3 == 0); /* who was not dropped got an answer */
        str_release(&streams[i].text);
    }
}

static void leaving_tells_every_client(void **state)
{
    static struct stream streams[8];
    struct http_client_options o = {0};
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    CLEANUP(http_loop_freep) struct http_loop *loop = NULL;
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    struct rig *rig = *state;
    struct err err;
    char url[64];

    serve(rig);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/completions", api_port(rig->api));
    assert_ok(http_client_new(&o, &c, &err), &err);
    assert_ok(http_loop_new(&loop, &err), &err);
    for (int i = 0; i < 8; i++)
        start(&streams[i], i, loop, c, url);
    for (int i = 0; i < 20; i++)
        http_loop_run(loop, 1);
    api_refuse(rig->api);
    assert_int_equal(call(rig, "/v1/completions", "{\"prompt\":[5]}", &out), 503);
    engine_abort(rig->engine); /* the drain timeout */
    for (int i = 0; i < 8; i++) {
        if (!streams[i].done)
            http_loop_cancel(loop, streams[i].task);
        str_release(&streams[i].text);
    }
    wait_idle(rig);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            T(before_the_model_is_there),  T(a_hung_step_is_not_alive),
            T(a_completion_is_answered),   T(streams_end_or_are_dropped),
            T(leaving_tells_every_client),
    };

    http_client_global_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
