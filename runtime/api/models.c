/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json_writer.h"
#include "runtime/api/api_internal.h"

static void write_model(struct json_writer *w, const struct api *a)
{
    json_obj(w);
    json_kv_text(w, "id", a->o.model_name);
    json_kv_text(w, "object", "model");
    json_kv_i64(w, "created", (int64_t)a->model.created_s);
    json_kv_text(w, "owned_by", "penstock");
    json_kv_i64(w, "max_model_len", a->model.context_max);
    json_end(w);
}

static int answer(struct http_exchange *x, const struct str *body)
{
    http_exchange_answer(x, 200, NULL, str_text(body), body->len);
    return 200;
}

static int refuse(struct http_exchange *x, const struct api_error *e)
{
    api_error_answer(e, x, NULL);
    return e->status;
}

int models_handle(struct api *a, struct http_exchange *x)
{
    CLEANUP(str_release) struct str body = STR_INIT(16384);
    const char *id = http_exchange_path(x) + strlen("/v1/models");
    struct json_writer w = json_writer_start(&body);
    struct api_error e;

    if (!atomic_load(&a->has_model)) {
        (void)api_error_set(&e, 503, "loading", NULL, "the model is still loading");
        e.retry_after_ms = 2000;
        return refuse(x, &e);
    }
    if (*id == '\0') {
        json_obj(&w);
        json_kv_text(&w, "object", "list");
        json_key(&w, "data");
        json_arr(&w);
        write_model(&w, a);
        json_end(&w);
        json_end(&w);
        return answer(x, &body);
    }
    if (strcmp(id + 1, a->o.model_name) == 0) {
        write_model(&w, a);
        return answer(x, &body);
    }
    (void)api_error_set(&e, 404, "model_not_found", "model", "no such model here");
    return refuse(x, &e);
}
