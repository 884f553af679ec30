/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c - snapshot, plan, apply; again and again.
 *
 * A worker holds one key at a time and the queue gives a key to one worker only, so two reconciles
 * of a service never overlap.  What it knows comes from the snapshot; the only memory between two
 * looks is the barrier (what we wrote and the cache must show before we plan again) and the queue's
 * back-off.  Errors end here: policy.c says whether the key comes back and who is told.
 *
 * Memory: an arena a reconcile, reset after it.
 */
#include "operator/reconcile/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "operator/api/names.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/policy.h"
#include "operator/reconcile/snapshot.h"

enum { WORKERS_MAX = 32, ARENA_MAX = 16 << 20, BARRIER_POLL_MS = 50, REPLANS_MAX = 2 };

struct worker {
    struct workers *all;
    pthread_t thread;
    struct kube_client *client;
    struct arena *mem;
};

struct workers {
    struct workers_options opt;
    struct barrier *barrier;
    struct worker each[WORKERS_MAX];
    unsigned n_running;
};

/* One look at one service. */
struct look {
    struct worker *worker;
    const char *key;
    struct snapshot snap;
    struct inference_service spec;
    struct err refused;
    bool is_refused;
};

static void fill_signals(struct look *l)
{
    const struct workers_options *o = &l->worker->all->opt;
    struct observed *seen = &l->snap.seen;

    for (size_t i = 0; i < seen->n_pods; i++)
        o->hooks->signal(o->hooks->userdata, json_path_str(seen->pods[i].pod, "metadata.uid", ""),
                         &l->snap.observed_pods[i].signal);
    if (!l->is_refused)
        o->hooks->decide(o->hooks->userdata, &l->spec, seen->pods, seen->n_pods, &seen->decision);
    o->hooks->metrics_api(o->hooks->userdata, seen);
    seen->defaults = o->defaults;
    seen->now_wall_ms = clock_wall_ms(o->clock);
}

static void emit_events(struct look *l, const struct status *status)
{
    const struct workers_options *o = &l->worker->all->opt;

    if (status->scaled)
        o->hooks->on_scaled(o->hooks->userdata, status->scaled > 0);
    for (size_t i = 0; i < status->n_events; i++) {
        const struct status_event *e = &status->events[i];
        struct event ev = {.kind = API_KIND,
                           .api_version = API_GROUP_VERSION,
                           .namespace = l->spec.namespace,
                           .name = l->spec.name,
                           .uid = l->spec.uid,
                           .warning = e->warning,
                           .reason = e->reason,
                           .action = e->action,
                           .note = e->note};
        struct err err = {0};

        if (events_emit(o->events, l->worker->client, &ev, &err))
            log_info(o->lg, "event was not written", F_STR("object", l->key), F_ERR(&err));
    }
}

static int write_status(struct look *l, const struct apply *a, const struct plan *p,
                        struct err *err)
{
    int r;

    if (!p->status.body)
        return 0;
    r = apply_status(a, l->spec.name, p->status.body, err);
    if (r == 0)
        emit_events(l, &p->status);
    return r;
}

/* Plan and apply; a stranger's object found on the way makes another plan.  What the user can act
 * on is told in the status even when the steps fail. */
static int plan_and_apply(struct look *l, uint64_t *ret_again_ms, struct err *err)
{
    struct observed *seen = &l->snap.seen;
    struct apply a = {.client = l->worker->client,
                      .barrier = l->worker->all->barrier,
                      .key = l->key,
                      .namespace = l->spec.namespace,
                      .service_uid = l->spec.uid};
    struct plan plan;
    int r = 0, failed = 0;

    for (int i = 0; i < REPLANS_MAX; i++) {
        unsigned foreign = 0;
        struct err why = {0};

        r = plan_make(&l->spec, l->is_refused ? &l->refused : NULL, seen, l->worker->mem, &plan,
                      err);
        if (r)
            return r;
        failed = failed ? failed : apply_steps(&a, &plan, &foreign, &why);
        if ((failed == 0 && foreign == 0) || i + 1 == REPLANS_MAX)
            break;
        if (failed) {
            *err = why;
            if (!policy_of(why.code, 0, workqueue_failures(l->worker->all->opt.queue, l->key)).tell)
                break;
            (void)snprintf(seen->trouble_reason, sizeof(seen->trouble_reason), "ApplyFailed");
            (void)snprintf(seen->trouble, sizeof(seen->trouble), "%.390s", why.msg);
        }
        seen->foreign |= foreign;
        plan_release(&plan);
    }
    *ret_again_ms = plan.again_ms;
    if (failed == 0 || seen->trouble[0]) {
        struct err status_err = {0};

        r = write_status(l, &a, &plan, &status_err);
        if (r && failed == 0)
            *err = status_err;
    }
    plan_release(&plan);
    return failed ? failed : r;
}

static int reconcile(struct look *l, const char **ret_result, uint64_t *ret_again_ms,
                     struct err *err)
{
    struct workers *all = l->worker->all;
    int r;

    if (!barrier_is_open(all->barrier, l->key, all->opt.store)) {
        *ret_result = "requeue";
        *ret_again_ms = BARRIER_POLL_MS;
        return 0;
    }
    r = snapshot_take(all->opt.store, l->key, l->worker->mem, &l->snap, err);
    if (r)
        return r;
    if (!l->snap.service) {
        barrier_forget(all->barrier, l->key);
        *ret_result = "gone";
        return 0;
    }
    r = inference_service_decode(l->snap.service->json, l->worker->mem, &l->spec, &l->refused);
    if (r == -ERR_NO_MEMORY) {
        *err = l->refused;
        return r;
    }
    l->is_refused = r != 0;
    fill_signals(l);
    return plan_and_apply(l, ret_again_ms, err);
}

static void settle(struct worker *w, const char *key, int r, uint64_t again_ms,
                   const struct err *err)
{
    struct workqueue *q = w->all->opt.queue;
    struct retry_policy p =
            policy_of(r ? err->code : ERR_NONE, kube_client_retry_after_ms(w->client), 0);

    if (p.retry)
        (void)workqueue_retry(q, key, p.min_ms);
    else
        workqueue_forget(q, key);
    if (r == 0 && again_ms)
        (void)workqueue_add_after(q, key, again_ms);
    if (r && p.loud)
        log_warn(w->all->opt.lg, "reconcile failed", F_STR("object", key), F_ERR(err));
    else if (r)
        log_info(w->all->opt.lg,
                 p.retry ? "reconcile comes again" : "nothing to reconcile any more",
                 F_STR("object", key), F_ERR(err));
}

static void work_on(struct worker *w, const char *key)
{
    const struct workers_options *o = &w->all->opt;
    struct look *l = arena_alloc(w->mem, sizeof(*l));
    uint64_t start = clock_ns(o->clock), again_ms = 0;
    const char *result = "success";
    struct err err = {0};
    int r;

    if (!l) {
        r = err_set(&err, ERR_NO_MEMORY, "reconcile");
    } else {
        l->worker = w;
        l->key = key;
        r = reconcile(l, &result, &again_ms, &err);
        snapshot_release(&l->snap);
    }
    /* Waiting for the cache is neither success nor failure: the back-off stays what it is. */
    if (r == 0 && strcmp(result, "requeue") == 0)
        (void)workqueue_add_after(o->queue, key, again_ms);
    else
        settle(w, key, r, again_ms, &err);
    o->hooks->on_result(o->hooks->userdata, key, r ? "error" : result,
                        (double)(clock_ns(o->clock) - start) / 1e9);
    arena_reset(w->mem);
}

static void *run(void *arg)
{
    struct worker *w = arg;
    char key[WORKQUEUE_KEY_BYTES];

    while (workqueue_get(w->all->opt.queue, key)) {
        work_on(w, key);
        workqueue_done(w->all->opt.queue, key);
    }
    return NULL;
}

static int start_one(struct worker *w, struct workers *all, struct err *err)
{
    int r;

    w->all = all;
    r = arena_new(ARENA_MAX, &w->mem, err);
    if (r == 0)
        r = kube_client_new(&all->opt.client, &w->client, err);
    if (r == 0 && pthread_create(&w->thread, NULL, run, w))
        r = err_set(err, ERR_NO_MEMORY, "worker thread");
    if (r == 0)
        all->n_running++;
    return r;
}

int workers_start(const struct workers_options *o, struct workers **ret, struct err *err)
{
    struct workers *all = mem_calloc(1, sizeof(*all));
    int r;

    if (!all)
        return err_set(err, ERR_NO_MEMORY, "workers");
    ASSERT(o->n > 0 && o->n <= WORKERS_MAX);
    all->opt = *o;
    r = barrier_new(o->clock, &all->barrier, err);
    for (unsigned i = 0; i < o->n && r == 0; i++)
        r = start_one(&all->each[i], all, err);
    if (r) {
        workers_stop(all);
        return r;
    }
    *ret = all;
    return 0;
}

void workers_stop(struct workers *all)
{
    if (!all)
        return;
    workqueue_shut_down(all->opt.queue);
    for (unsigned i = 0; i < all->n_running; i++)
        (void)pthread_join(all->each[i].thread, NULL);
    for (unsigned i = 0; i < all->opt.n; i++) {
        kube_client_free(all->each[i].client);
        arena_free(all->each[i].mem);
    }
    barrier_free(all->barrier);
    mem_free(all);
}
