/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/scaling/signals.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "operator/scaling/exposition.h"

enum { PERCENT_STEP = 10, XID_MAX = 9999 };

static const struct json_limits STARTUP_LIMITS = {
        .bytes_max = 16 << 10, .depth_max = 8, .values_max = 64};

/* What a status would show of a signal. */
struct shown {
    enum load_phase phase;
    int step;
    bool fresh;
    char error[LOAD_ERROR_BYTES];
    int xid;
    char xid_gpu[GPU_UUID_BYTES];
};

struct entry {
    struct pod_signal signal;
    uint64_t sampled_ms; /* monotonic; 0: never */
    struct shown shown;
};

struct signals {
    const struct clock *clock;
    uint64_t stale_ms;
    pthread_mutex_t lock;
    struct map *pods; /* uid -> struct entry, owned */
};

int signals_new(const struct clock *clock, uint64_t stale_ms, struct signals **ret, struct err *err)
{
    struct signals *s = mem_calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "signals");
    r = map_new(&s->pods, err);
    if (r) {
        mem_free(s);
        return r;
    }
    s->clock = clock;
    s->stale_ms = stale_ms;
    (void)pthread_mutex_init(&s->lock, NULL);
    *ret = s;
    return 0;
}

void signals_free(struct signals *s)
{
    size_t iter = 0;
    void *entry;

    if (!s)
        return;
    while (map_next(s->pods, &iter, NULL, &entry))
        mem_free(entry);
    map_free(s->pods);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* Under the lock; NULL: no memory. */
static struct entry *entry_of(struct signals *s, const char *uid)
{
    struct entry *e = map_get(s->pods, uid);
    struct err err;

    if (e)
        return e;
    e = mem_calloc(1, sizeof(*e));
    if (e && map_put(s->pods, uid, e, &err)) {
        mem_free(e);
        return NULL;
    }
    return e;
}

static bool parse_phase(const char *name, enum load_phase *ret)
{
    static const struct {
        const char *name;
        enum load_phase phase;
    } table[] = {{"starting", LOAD_UNKNOWN}, {"downloading", LOAD_DOWNLOADING},
                 {"loading", LOAD_LOADING},  {"ready", LOAD_READY},
                 {"draining", LOAD_READY},   {"failed", LOAD_FAILED}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, name) == 0) {
            *ret = table[i].phase;
            return true;
        }
    }
    return false;
}

static int64_t at_least_0(int64_t v)
{
    return v > 0 ? v : 0;
}

int signals_startup(struct signals *s, const char *uid, const char *json, size_t len,
                    struct err *err)
{
    CLEANUP(json_freep) cJSON *doc = NULL;
    struct entry *e;
    enum load_phase phase;
    double percent;
    int r = json_parse(json, len, &STARTUP_LIMITS, &doc, err);

    if (r)
        return err_wrap(err, "/startupz");
    if (!parse_phase(json_str(doc, "phase", ""), &phase))
        return err_set(err, ERR_INVALID, "/startupz: no known phase");
    percent = json_num(doc, "percent", 0);
    (void)pthread_mutex_lock(&s->lock);
    e = entry_of(s, uid);
    if (e) {
        e->signal.phase = phase;
        e->signal.percent = percent > 0 ? (int)(percent < 100 ? percent : 100) : 0;
        e->signal.bytes_done = at_least_0(json_int(doc, "bytes_done", 0));
        e->signal.bytes_total = at_least_0(json_int(doc, "bytes_total", 0));
        (void)snprintf(e->signal.error, sizeof(e->signal.error), "%s", json_str(doc, "error", ""));
        if (phase != LOAD_READY)
            e->signal.xid = 0; /* another process */
    }
    (void)pthread_mutex_unlock(&s->lock);
    return e ? 0 : err_set(err, ERR_NO_MEMORY, "signal");
}

static struct gpu_figure percent_of(double part, double whole, bool known)
{
    double percent = known && whole > 0 ? 100 * part / whole : -1;

    if (!(percent >= 0 && percent <= 100))
        return (struct gpu_figure){0};
    return (struct gpu_figure){.known = true, .percent = percent};
}

/* The error of a GPU that the pod tells, if it names one. */
static void read_xid(const char *text, size_t len, struct pod_signal *ret)
{
    const char *end = text + len;
    struct exposition_series s;

    ret->xid = 0;
    while (exposition_next(&text, end, "penstock_gpu_last_xid", &s) > 0) {
        if (!(s.value >= 1 && s.value <= XID_MAX) ||
            !exposition_label(&s, "uuid", ret->xid_gpu, sizeof(ret->xid_gpu)))
            continue;
        for (char *p = ret->xid_gpu; *p; p++)
            *p = (char)(isalnum((unsigned char)*p) || strchr("-/._", *p) ? *p : '?');
        ret->xid = (int)s.value;
        return;
    }
}

static void read_gpus(const char *text, size_t len, struct pod_signal *ret)
{
    double busy, used, total = 0;
    bool known = exposition_mean(text, len, "penstock_gpu_utilization_ratio", &busy);

    ret->gpu_utilization = percent_of(busy, 1, known);
    known = exposition_sum(text, len, "penstock_gpu_memory_used_bytes", &used) &&
            exposition_sum(text, len, "penstock_gpu_memory_total_bytes", &total);
    ret->gpu_memory = percent_of(used, total, known);
    read_xid(text, len, ret);
}

int signals_sample(struct signals *s, const char *uid, const char *text, size_t len,
                   struct err *err)
{
    double waiting, running, kv = 0;
    struct entry *e;

    if (!exposition_sum(text, len, "penstock_queue_length", &waiting) ||
        !exposition_sum(text, len, "penstock_requests_running", &running))
        return err_set(err, ERR_INVALID, "/metrics: queue figures are missing or unreadable");
    if (!exposition_sum(text, len, "penstock_kv_cache_usage_ratio", &kv))
        kv = 0;
    (void)pthread_mutex_lock(&s->lock);
    e = entry_of(s, uid);
    if (e) {
        e->signal.phase = LOAD_READY;
        e->signal.waiting = waiting;
        e->signal.running = running;
        e->signal.kv_usage = kv;
        read_gpus(text, len, &e->signal);
        e->signal.sampled_wall_ms = clock_wall_ms(s->clock);
        e->sampled_ms = clock_ms(s->clock) + 1;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return e ? 0 : err_set(err, ERR_NO_MEMORY, "signal");
}

void signals_forget(struct signals *s, const char *uid)
{
    (void)pthread_mutex_lock(&s->lock);
    mem_free(map_remove(s->pods, uid));
    (void)pthread_mutex_unlock(&s->lock);
}

static bool is_fresh(const struct signals *s, const struct entry *e)
{
    return e->signal.phase == LOAD_READY && e->sampled_ms &&
           clock_ms(s->clock) + 1 - e->sampled_ms <= s->stale_ms;
}

void signals_get(struct signals *s, const char *uid, struct pod_signal *ret)
{
    const struct entry *e;

    *ret = (struct pod_signal){0};
    (void)pthread_mutex_lock(&s->lock);
    e = map_get(s->pods, uid);
    if (e) {
        *ret = e->signal;
        ret->fresh = is_fresh(s, e);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

bool signals_changed(struct signals *s, const char *uid)
{
    struct entry *e;
    bool changed = false;

    (void)pthread_mutex_lock(&s->lock);
    e = map_get(s->pods, uid);
    if (e) {
        struct shown now = {.phase = e->signal.phase,
                            .step = e->signal.percent / PERCENT_STEP,
                            .fresh = is_fresh(s, e)};

        now.xid = e->signal.xid;
        memcpy(now.xid_gpu, e->signal.xid_gpu, sizeof(now.xid_gpu));
        memcpy(now.error, e->signal.error, sizeof(now.error));
        changed = now.phase != e->shown.phase || now.step != e->shown.step ||
                  now.fresh != e->shown.fresh || strcmp(now.error, e->shown.error) != 0 ||
                  now.xid != e->shown.xid || strcmp(now.xid_gpu, e->shown.xid_gpu) != 0;
        e->shown = now;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return changed;
}
