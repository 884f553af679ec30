/* SPDX-License-Identifier: Apache-2.0
 *
 * answer.c - what a generation looks like on the wire: chat and completion objects, whole or as
 * server-sent events.
 *
 * The clients' rules that matter here: one "data: {json}\n\n" an event and nothing else; the role
 * once, in the first chunk, and no chunk before there is a token; finish_reason once; the usage in
 * the last chunk; [DONE] always, after an error too.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/log.h"
#include "runtime/api/job.h"

static void begin_object(struct json_writer *w, const struct job *j, bool chunk)
{
    json_obj(w);
    json_kv_text(w, "id", j->id);
    json_kv_text(w, "object",
                 !j->chat ? "text_completion"
                 : chunk  ? "chat.completion.chunk"
                          : "chat.completion");
    json_kv_i64(w, "created", (int64_t)j->created_s);
    json_kv_text(w, "model", j->api->o.model_name);
}

static void write_usage(struct json_writer *w, const struct job *j)
{
    json_key(w, "usage");
    json_obj(w);
    json_kv_i64(w, "prompt_tokens", j->request->n_prompt);
    json_kv_i64(w, "completion_tokens", j->n_counted);
    json_kv_i64(w, "total_tokens", (int64_t)j->request->n_prompt + j->n_counted);
    json_end(w);
}

/* choices: [{index 0, delta or text, finish_reason}] */
static void write_chunk_choice(struct json_writer *w, const struct job *j, const char *text,
                               size_t len, bool role, const char *finish)
{
    json_key(w, "choices");
    json_arr(w);
    json_obj(w);
    json_kv_i64(w, "index", 0);
    if (j->chat) {
        json_key(w, "delta");
        json_obj(w);
        if (role)
            json_kv_text(w, "role", "assistant");
        if (len || role) {
            json_key(w, "content");
            json_textn(w, text, len);
        }
        json_end(w);
    } else {
        json_key(w, "text");
        json_textn(w, text, len);
    }
    json_kv_null(w, "logprobs");
    json_kv_text(w, "finish_reason", finish);
    json_end(w);
    json_end(w);
}

static void send_event(struct job *j, const struct str *json)
{
    CLEANUP(str_release) struct str event = STR_INIT(json->max + 16);
    struct err err;

    str_adds(&event, "data: ");
    str_add(&event, str_text(json), json->len);
    str_adds(&event, "\n\n");
    if (json->failed || event.failed ||
        http_exchange_write(j->x, event.data, event.len, &err) != 0) {
        atomic_store(&j->gone, true); /* left, or reads too slowly */
        request_end(j->request, FINISH_CANCELED);
    }
}

static void send_chunk(struct job *j, const char *text, size_t len, bool role, const char *finish)
{
    CLEANUP(str_release) struct str json = STR_INIT(JOB_TEXT_MAX);
    struct json_writer w = json_writer_start(&json);

    begin_object(&w, j, true);
    write_chunk_choice(&w, j, text, len, role, finish);
    if (j->params.include_usage)
        json_kv_null(&w, "usage");
    json_end(&w);
    send_event(j, &json);
}

static void send_usage(struct job *j)
{
    CLEANUP(str_release) struct str json = STR_INIT(8192);
    struct json_writer w = json_writer_start(&json);

    begin_object(&w, j, true);
    json_key(&w, "choices");
    json_arr(&w);
    json_end(&w);
    write_usage(&w, j);
    json_end(&w);
    send_event(j, &json);
}

static void start_stream(struct job *j)
{
    char id[JOB_ID_BYTES + 16];
    const char *headers[] = {"Content-Type: text/event-stream", "Cache-Control: no-cache",
                             "X-Accel-Buffering: no", id, NULL};

    (void)snprintf(id, sizeof(id), "X-Request-Id: %s", j->id);
    http_exchange_stream(j->x, 200, headers);
    j->streaming = true;
}

void answer_chunk(struct job *j)
{
    bool first = !j->streaming;

    if (!j->params.stream || (j->text.len == 0 && !first))
        return;
    if (first)
        start_stream(j);
    send_chunk(j, str_text(&j->text), j->text.len, first, NULL);
    str_clear(&j->text);
}

static void send_done(struct job *j)
{
    struct err err;

    (void)!http_exchange_write(j->x, "data: [DONE]\n\n", 14, &err);
    http_exchange_end(j->x);
}

static void finish_stream(struct job *j, const char *finish)
{
    answer_chunk(j); /* what is left; the first chunk, when all of it came in one step */
    send_chunk(j, "", 0, false, finish);
    if (j->params.include_usage)
        send_usage(j);
    send_done(j);
}

static void write_message(struct json_writer *w, const struct job *j)
{
    json_key(w, "message");
    json_obj(w);
    json_kv_text(w, "role", "assistant");
    json_key(w, "content");
    json_textn(w, str_text(&j->text), j->text.len);
    json_kv_null(w, "refusal");
    json_end(w);
}

static void finish_whole(struct job *j, const char *finish)
{
    CLEANUP(str_release) struct str json = STR_INIT(6 * JOB_TEXT_MAX + 8192); /* all escaped */
    struct json_writer w = json_writer_start(&json);
    char id[JOB_ID_BYTES + 16];
    const char *headers[] = {"Content-Type: application/json", id, NULL};

    begin_object(&w, j, false);
    json_key(&w, "choices");
    json_arr(&w);
    json_obj(&w);
    json_kv_i64(&w, "index", 0);
    if (j->chat) {
        write_message(&w, j);
    } else {
        json_key(&w, "text");
        json_textn(&w, str_text(&j->text), j->text.len);
    }
    json_kv_null(&w, "logprobs");
    json_kv_text(&w, "finish_reason", finish);
    json_end(&w);
    json_end(&w);
    write_usage(&w, j);
    json_end(&w);
    if (json.failed) {
        struct api_error e;

        (void)api_error_from(&e, &(struct err){ERR_NO_MEMORY, "out of memory"});
        api_error_answer(&e, j->x, j->id);
        return;
    }
    (void)snprintf(id, sizeof(id), "X-Request-Id: %s", j->id);
    http_exchange_answer(j->x, 200, headers, str_text(&json), json.len);
}

void answer_finish(struct job *j, const char *finish)
{
    if (j->params.stream)
        finish_stream(j, finish);
    else
        finish_whole(j, finish);
}

void answer_error(struct job *j, const struct api_error *e)
{
    CLEANUP(str_release) struct str json = STR_INIT(8192);

    if (!j->streaming) {
        api_error_answer(e, j->x, j->id);
        return;
    }
    api_error_write(e, &json);
    send_event(j, &json);
    send_done(j);
}
