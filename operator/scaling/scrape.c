/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape.c - asks the pods.
 *
 * Each turn compares the pods of the store with the targets at hand, starts what is due and runs
 * the loop.  No target waits for another: a pod that accepts and says nothing costs its own two
 * seconds only.  A pod that stops answering /metrics is asked /startupz next, so that a container
 * that was restarted shows its progress again; its last sample ages meanwhile (signals.h).
 */
#include "operator/scaling/scrape.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/http_client.h"
#include "base/map.h"
#include "base/mem.h"
#include "operator/api/kinds.h"
#include "operator/api/names.h"

enum {
    TIMEOUT_MS = 2000,
    REPLY_MAX = 1 << 20,
    TURN_MS = 100,
    STARTUP_INTERVAL_MS = 500,
    TARGETS_MAX = 4096,
};

struct target {
    struct scraper *scraper;
    char *uid, *group;
    char url[128];
    struct http_call call;
    struct http_task *task; /* NULL: idle */
    uint64_t due_ms;
    bool serves;     /* the next question is /metrics */
    bool known;      /* it was asked, and what it said is all we can have now */
    unsigned marked; /* turn in which its pod was seen */
};

struct scraper {
    struct scraper_options opt;
    pthread_t thread;
    atomic_bool stop;
    struct http_loop *loop;
    struct http_client *http;
    struct map *targets; /* uid -> struct target, owned */
    unsigned turn;
    atomic_bool warm;
};

static void target_free(struct target *t)
{
    if (t->task)
        http_loop_cancel(t->scraper->loop, t->task);
    mem_free(t->uid);
    mem_free(t->group);
    mem_free(t);
}

/* The pod's metrics port has the same number in every template; a user may move it by name. */
static int metrics_port(const cJSON *pod)
{
    const cJSON *c, *p;

    cJSON_ArrayForEach(c, json_path(pod, "spec.containers"))
    {
        if (strcmp(json_str(c, "name", ""), RUNTIME_CONTAINER) != 0)
            continue;
        cJSON_ArrayForEach(p, json_get(c, "ports"))
        {
            int64_t port = json_int(p, "containerPort", 0);

            if (strcmp(json_str(p, "name", ""), PORT_METRICS_NAME) == 0 && port > 0 && port < 65536)
                return (int)port;
        }
    }
    return PORT_METRICS;
}

/* The address of a pod that can be asked; false: it has none, or is done. */
static bool address_of(const struct object *o, char *out, size_t size)
{
    const char *ip = json_path_str(o->json, "status.podIP", "");
    const char *phase = json_path_str(o->json, "status.phase", "");
    int n;

    if (ip[0] == '\0' || !o->group || strcmp(phase, "Failed") == 0 ||
        strcmp(phase, "Succeeded") == 0 || strspn(ip, "0123456789abcdefABCDEF.:") != strlen(ip))
        return false;
    n = snprintf(out, size, strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, metrics_port(o->json));
    return n > 0 && (size_t)n < size;
}

static void tell_change(struct target *t)
{
    const struct scraper_options *o = &t->scraper->opt;

    if (signals_changed(o->signals, t->uid))
        o->on_change(o->userdata, t->group);
}

static void on_done(void *userdata, int r, const struct http_reply *reply, const struct err *err)
{
    struct target *t = userdata;
    const struct scraper_options *o = &t->scraper->opt;
    struct pod_signal now;
    struct err why = {0};

    t->task = NULL;
    if (r)
        why = *err;
    else if (t->serves && reply->status != 200)
        r = err_set(&why, ERR_UNAVAILABLE, "HTTP %d", reply->status);
    else if (t->serves)
        r = signals_sample(o->signals, t->uid, str_text(&reply->body), reply->body.len, &why);
    else
        r = signals_startup(o->signals, t->uid, str_text(&reply->body), reply->body.len, &why);
    signals_get(o->signals, t->uid, &now);
    t->serves = r == 0 && now.phase == LOAD_READY;
    t->due_ms = clock_ms(o->clock) + (t->serves ? o->interval_ms : STARTUP_INTERVAL_MS);
    if (r)
        log_debug(o->lg, "pod did not answer", F_STR("object", t->group), F_STR("url", t->url),
                  F_ERR(&why));
    /* Just turned ready: the first sample need not wait. */
    if (t->serves && !now.fresh)
        t->due_ms = 0;
    else
        t->known = true;
    tell_change(t);
}

static void ask(struct target *t, const char *address)
{
    struct scraper *s = t->scraper;
    struct err err = {0};

    (void)snprintf(t->url, sizeof(t->url), "http://%s%s", address,
                   t->serves ? "/metrics" : "/startupz");
    t->call = (struct http_call){
            .url = t->url, .timeout_ms = TIMEOUT_MS, .reply_max = REPLY_MAX, .userdata = t};
    if (http_loop_start(s->loop, s->http, &t->call, on_done, &t->task, &err)) {
        t->task = NULL;
        t->known = true; /* that it cannot be asked */
        t->due_ms = clock_ms(s->opt.clock) + s->opt.interval_ms;
        log_warn(s->opt.lg, "pod cannot be asked", F_STR("url", t->url), F_ERR(&err));
    }
}

static struct target *target_of(struct scraper *s, const struct object *o)
{
    struct target *t = map_get(s->targets, o->uid);
    struct err err;

    if (t || map_count(s->targets) >= TARGETS_MAX)
        return t;
    t = mem_calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->scraper = s;
    t->uid = mem_strdup(o->uid);
    t->group = mem_strdup(o->group);
    if (!t->uid || !t->group || map_put(s->targets, o->uid, t, &err)) {
        target_free(t);
        return NULL;
    }
    return t;
}

static void drop_gone(struct scraper *s)
{
    size_t iter = 0;
    void *value;

    while (map_next(s->targets, &iter, NULL, &value)) {
        struct target *t = value;

        if (t->marked == s->turn)
            continue;
        (void)map_remove(s->targets, t->uid);
        signals_forget(s->opt.signals, t->uid);
        target_free(t);
        iter = 0; /* removal moves entries */
    }
}

static void turn(struct scraper *s)
{
    struct object_list pods;
    struct err err = {0};
    uint64_t now = clock_ms(s->opt.clock);
    bool all_known = store_is_synced(s->opt.store);

    if (store_list(s->opt.store, WATCHED_POD, NULL, &pods, &err))
        return;
    s->turn++;
    for (size_t i = 0; i < pods.n; i++) {
        char address[96];
        struct target *t;

        if (!address_of(pods.items[i], address, sizeof(address)))
            continue;
        t = target_of(s, pods.items[i]);
        if (!t)
            continue;
        t->marked = s->turn;
        all_known = all_known && t->known;
        tell_change(t); /* a sample may have grown old */
        if (!t->task && now >= t->due_ms)
            ask(t, address);
    }
    object_list_release(&pods);
    drop_gone(s);
    if (all_known)
        atomic_store(&s->warm, true);
}

bool scraper_is_warm(const struct scraper *s)
{
    return atomic_load(&s->warm);
}

static void *run(void *arg)
{
    struct scraper *s = arg;

    while (!atomic_load(&s->stop)) {
        turn(s);
        http_loop_run(s->loop, TURN_MS);
    }
    return NULL;
}

static void scraper_free(struct scraper *s)
{
    size_t iter = 0;
    void *t;

    while (s->targets && map_next(s->targets, &iter, NULL, &t))
        target_free(t);
    map_free(s->targets);
    http_loop_free(s->loop);
    http_client_free(s->http);
    mem_free(s);
}

int scraper_start(const struct scraper_options *o, struct scraper **ret, struct err *err)
{
    struct http_client_options ho = {.connect_timeout_ms = TIMEOUT_MS,
                                     .idle_timeout_ms = TIMEOUT_MS};
    struct scraper *s = mem_calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "scraper");
    s->opt = *o;
    r = http_loop_new(&s->loop, err);
    if (r == 0)
        r = http_client_new(&ho, &s->http, err);
    if (r == 0)
        r = map_new(&s->targets, err);
    if (r == 0 && pthread_create(&s->thread, NULL, run, s))
        r = err_set(err, ERR_NO_MEMORY, "scraper thread");
    if (r) {
        scraper_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

void scraper_stop(struct scraper *s)
{
    if (!s)
        return;
    atomic_store(&s->stop, true);
    http_loop_wake(s->loop);
    (void)pthread_join(s->thread, NULL);
    scraper_free(s);
}
