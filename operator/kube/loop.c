/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c - the hands of the state machines in watch.c and lease.c.
 *
 * A runner is one machine with its connection settings, its URL and token buffers, and at most one
 * call under way.  Each turn asks the idle ones what they want.
 */
#include "operator/kube/loop.h"

#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "base/str.h"

enum {
    RUNNERS_MAX = 16,
    PAGE_MAX = 64 << 20,
    LIST_TIMEOUT_MS = 60000,
    LEASE_TIMEOUT_MS = 5000, /* half the renew deadline: one call may hang, two renewals fit */
    URL_MAX = 80 << 10,
};

struct runner {
    struct kube_loop *loop;
    struct watch *watch; /* one of the two */
    struct lease *lease;
    struct lease_options lease_opt;
    struct http_client *http;
    uint64_t auth_version;
    struct http_task *task; /* NULL: idle */
    struct http_call call;
    struct str path, url, token, body;
};

struct kube_loop {
    struct kube_auth *auth;
    const struct clock *clock;
    struct logger *lg;
    struct http_loop *http;
    struct runner *runners[RUNNERS_MAX];
    size_t n;
};

int kube_loop_new(struct kube_auth *auth, const struct clock *clock, struct logger *lg,
                  struct kube_loop **ret, struct err *err)
{
    CLEANUP(kube_loop_freep) struct kube_loop *l = mem_calloc(1, sizeof(*l));
    int r;

    if (!l)
        return err_set(err, ERR_NO_MEMORY, "API loop");
    l->auth = auth;
    l->clock = clock;
    l->lg = lg;
    r = http_loop_new(&l->http, err);
    if (r)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

static void runner_free(struct runner *run)
{
    watch_free(run->watch);
    http_client_free(run->http);
    str_release(&run->path);
    str_release(&run->url);
    str_release(&run->token);
    str_release(&run->body);
    mem_free(run);
}

void kube_loop_free(struct kube_loop *l)
{
    if (!l)
        return;
    http_loop_free(l->http); /* first: calls borrow from the runners */
    for (size_t i = 0; i < l->n; i++)
        runner_free(l->runners[i]);
    mem_free(l);
}

/* NULL: no memory */
static struct runner *add_runner(struct kube_loop *l, struct err *err)
{
    struct runner *run;

    ASSERT(l->n < RUNNERS_MAX);
    run = mem_calloc(1, sizeof(*run));
    if (!run) {
        (void)err_set(err, ERR_NO_MEMORY, "API loop");
        return NULL;
    }
    run->loop = l;
    run->path.max = run->url.max = URL_MAX;
    run->token.max = KUBE_TOKEN_MAX;
    run->body.max = 64 << 10;
    l->runners[l->n++] = run;
    return run;
}

int kube_loop_watch(struct kube_loop *l, const struct watch_options *o, struct err *err)
{
    struct runner *run = add_runner(l, err);

    return run ? watch_new(o, &run->watch, err) : -ERR_NO_MEMORY;
}

int kube_loop_lease(struct kube_loop *l, struct lease *lease, const struct lease_options *o,
                    struct err *err)
{
    struct runner *run = add_runner(l, err);

    if (!run)
        return -ERR_NO_MEMORY;
    run->lease = lease;
    run->lease_opt = *o;
    return 0;
}

static void on_watch_done(void *userdata, int r, const struct http_reply *reply,
                          const struct err *err)
{
    struct runner *run = userdata;

    run->task = NULL;
    if (reply->status == 401)
        kube_auth_refused(run->loop->auth);
    watch_end(run->watch, r, reply->status, reply->body.data, reply->body.len,
              reply->retry_after_ms, err);
}

static void on_lease_done(void *userdata, int r, const struct http_reply *reply,
                          const struct err *err)
{
    struct runner *run = userdata;

    run->task = NULL;
    if (reply->status == 401)
        kube_auth_refused(run->loop->auth);
    if (r)
        log_warn(run->loop->lg, "lease request failed", F_ERR(err));
    lease_answer(run->lease, r, reply->status, reply->body.data, reply->body.len);
}

static int on_stream_body(void *userdata, const char *data, size_t len)
{
    struct runner *run = userdata;

    return watch_data(run->watch, data, len);
}

static int connect_http(struct runner *run, struct err *err)
{
    struct http_client_options o = {.connect_timeout_ms = 5000, .idle_timeout_ms = WATCH_IDLE_MS};
    uint64_t version = kube_auth_version(run->loop->auth);

    if (run->http && version == run->auth_version)
        return 0;
    http_client_free(run->http);
    run->http = NULL;
    kube_auth_fill(run->loop->auth, &o);
    run->auth_version = version;
    return http_client_new(&o, &run->http, err);
}

/* run->call is ready but for what is the same in every call. */
static int start(struct runner *run,
                 void (*on_done)(void *, int, const struct http_reply *, const struct err *),
                 struct err *err)
{
    int r = connect_http(run, err);

    if (r == 0)
        r = kube_auth_token(run->loop->auth, &run->token, err);
    str_clear(&run->url);
    str_adds(&run->url, kube_auth_server(run->loop->auth));
    str_add(&run->url, str_text(&run->path), run->path.len);
    if (r == 0)
        r = str_check(&run->url, "URL", err);
    if (r)
        return r;
    run->call.url = str_text(&run->url);
    run->call.bearer = run->token.len ? str_text(&run->token) : NULL;
    run->call.userdata = run;
    return http_loop_start(run->loop->http, run->http, &run->call, on_done, &run->task, err);
}

/* Returns ms until the runner wants to be asked again. */
static uint64_t turn_watch(struct runner *run)
{
    uint64_t wait_ms = UINT64_MAX;
    enum watch_want want = watch_next(run->watch, &run->path, &wait_ms);
    struct err err = {0};
    int r;

    if (want == WATCH_WAIT)
        return wait_ms;
    run->call = (struct http_call){.headers = {"Accept: application/json"}, .reply_max = PAGE_MAX};
    if (want == WATCH_STREAM)
        run->call.on_body = on_stream_body;
    else
        run->call.timeout_ms = LIST_TIMEOUT_MS;
    r = start(run, on_watch_done, &err);
    if (r)
        watch_end(run->watch, r, 0, NULL, 0, 0, &err);
    return r ? 0 : UINT64_MAX;
}

static uint64_t turn_lease(struct runner *run)
{
    static const char *const methods[] = {
            [LEASE_GET] = "GET", [LEASE_CREATE] = "POST", [LEASE_UPDATE] = "PUT"};
    uint64_t wait_ms = UINT64_MAX;
    enum lease_want want = lease_next(run->lease, &run->body, &wait_ms);
    struct err err = {0};
    int r;

    if (want == LEASE_WAIT)
        return wait_ms;
    str_clear(&run->path);
    kube_path(&KUBE_LEASE, run->lease_opt.namespace,
              want == LEASE_CREATE ? NULL : run->lease_opt.name, NULL, &run->path);
    run->call = (struct http_call){
            .method = methods[want],
            .headers = {"Accept: application/json", "Content-Type: application/json"},
            .timeout_ms = LEASE_TIMEOUT_MS};
    if (want != LEASE_GET) {
        run->call.body = str_text(&run->body);
        run->call.body_len = run->body.len;
    }
    r = start(run, on_lease_done, &err);
    if (r) {
        log_warn(run->loop->lg, "lease request failed", F_ERR(&err));
        lease_answer(run->lease, r, 0, NULL, 0);
    }
    return r ? 0 : UINT64_MAX;
}

void kube_loop_run(struct kube_loop *l, unsigned max_ms)
{
    uint64_t wait_ms = max_ms;

    for (size_t i = 0; i < l->n; i++) {
        struct runner *run = l->runners[i];
        uint64_t ms;

        if (run->task)
            continue;
        ms = run->watch ? turn_watch(run) : turn_lease(run);
        if (ms < wait_ms)
            wait_ms = ms;
    }
    http_loop_run(l->http, (int)wait_ms);
}

void kube_loop_wake(struct kube_loop *l)
{
    http_loop_wake(l->http);
}
