/* SPDX-License-Identifier: Apache-2.0
 *
 * http_loop.c - many calls on one thread, over curl's multi interface.
 */
#include "base/assertion.h"
#include "base/http_call.h"
#include "base/mem.h"

struct http_task {
    struct http_task *next;
    struct call_state state;
    struct http_reply reply;
    void (*on_done)(void *userdata, int r, const struct http_reply *reply, const struct err *err);
};

struct http_loop {
    CURLM *multi;
    struct http_task *tasks;
};

int http_loop_new(struct http_loop **ret, struct err *err)
{
    struct http_loop *l = mem_calloc(1, sizeof(*l));

    if (!l)
        return err_set(err, ERR_NO_MEMORY, "HTTP loop");
    l->multi = curl_multi_init();
    if (!l->multi) {
        mem_free(l);
        return err_set(err, ERR_NO_MEMORY, "HTTP loop");
    }
    *ret = l;
    return 0;
}

/* Off the list and off curl; the memory is still good. */
static void detach(struct http_loop *l, struct http_task *t)
{
    for (struct http_task **at = &l->tasks; *at; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    (void)curl_multi_remove_handle(l->multi, t->state.curl);
}

static void task_free(struct http_task *t)
{
    call_cleanup(&t->state);
    if (t->state.curl)
        curl_easy_cleanup(t->state.curl);
    http_reply_release(&t->reply);
    mem_free(t);
}

void http_loop_free(struct http_loop *l)
{
    if (!l)
        return;
    while (l->tasks)
        http_loop_cancel(l, l->tasks);
    (void)curl_multi_cleanup(l->multi);
    mem_free(l);
}

int http_loop_start(struct http_loop *l, struct http_client *c, const struct http_call *call,
                    void (*on_done)(void *userdata, int r, const struct http_reply *reply,
                                    const struct err *err),
                    struct http_task **ret, struct err *err)
{
    struct http_task *t = mem_calloc(1, sizeof(*t));
    int r;

    if (!t)
        return err_set(err, ERR_NO_MEMORY, "HTTP call");
    t->on_done = on_done;
    t->state = (struct call_state){.client = c, .call = call, .reply = &t->reply};
    t->state.curl = curl_easy_init();
    r = t->state.curl ? call_setup(&t->state, err) : err_set(err, ERR_NO_MEMORY, "HTTP call");
    if (r) {
        task_free(t);
        return r;
    }
    (void)curl_easy_setopt(t->state.curl, CURLOPT_PRIVATE, t);
    if (curl_multi_add_handle(l->multi, t->state.curl) != CURLM_OK) {
        task_free(t);
        return err_set(err, ERR_NO_MEMORY, "HTTP call");
    }
    t->next = l->tasks;
    l->tasks = t;
    if (ret)
        *ret = t;
    return 0;
}

void http_loop_cancel(struct http_loop *l, struct http_task *t)
{
    detach(l, t);
    task_free(t);
}

static void finish(struct http_loop *l, struct http_task *t, CURLcode rc)
{
    struct err err = {0};
    int r = call_finish(&t->state, rc, &err);

    detach(l, t);
    t->on_done(t->state.call->userdata, r, &t->reply, &err);
    task_free(t);
}

void http_loop_run(struct http_loop *l, int timeout_ms)
{
    CURLMsg *msg;
    int running, n;

    (void)curl_multi_perform(l->multi, &running);
    (void)curl_multi_poll(l->multi, NULL, 0, timeout_ms, NULL);
    (void)curl_multi_perform(l->multi, &running);
    while ((msg = curl_multi_info_read(l->multi, &n))) {
        struct http_task *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        ASSERT(t);
        finish(l, t, msg->data.result);
    }
}

void http_loop_wake(struct http_loop *l)
{
    (void)curl_multi_wakeup(l->multi);
}
