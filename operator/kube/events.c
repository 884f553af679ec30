/* SPDX-License-Identifier: Apache-2.0
 *
 * events.c - tell once, count the rest.
 *
 * Equal events (same object, type, reason and note) are one entry of a map.  The first is created;
 * the second turns it into a series by a patch, later ones only count and are written every half
 * hour.  A token bucket an object bounds what a flapping one can cost the API server.
 */
#include "operator/kube/events.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/map.h"
#include "base/mem.h"

enum { NOTE_MAX = 1000, BODY_MAX = 16 << 10, KEY_MAX = 4096, NAME_MAX_BYTES = 320 };

struct known {
    char name[NAME_MAX_BYTES]; /* of the Event */
    uint64_t first_ms, last_ms, written_ms;
    int64_t count;
};

struct bucket {
    uint64_t since_ms;
    unsigned spent;
};

struct events {
    const struct clock *clock;
    char controller[128], instance[129];
    pthread_mutex_t lock;
    struct map *known;   /* text of the event -> struct known, owned */
    struct map *buckets; /* uid -> struct bucket, owned */
};

int events_new(const struct clock *clock, const char *controller, const char *instance,
               struct events **ret, struct err *err)
{
    CLEANUP(events_freep) struct events *e = mem_calloc(1, sizeof(*e));
    int r;

    if (!e)
        return err_set(err, ERR_NO_MEMORY, "events");
    (void)pthread_mutex_init(&e->lock, NULL);
    e->clock = clock;
    (void)snprintf(e->controller, sizeof(e->controller), "%s", controller);
    (void)snprintf(e->instance, sizeof(e->instance), "%s", instance);
    r = map_new(&e->known, err);
    if (r == 0)
        r = map_new(&e->buckets, err);
    if (r)
        return r;
    *ret = TAKE_PTR(e);
    return 0;
}

static void free_values(struct map *m)
{
    size_t iter = 0;
    void *value;

    while (m && map_next(m, &iter, NULL, &value))
        mem_free(value);
    map_free(m);
}

void events_free(struct events *e)
{
    if (!e)
        return;
    free_values(e->known);
    free_values(e->buckets);
    (void)pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

/* Throw out what has been idle; all of it when the table is still full. */
static void make_room(struct map *m, uint64_t (*last_ms)(const void *value), uint64_t now)
{
    bool full = map_count(m) >= EVENTS_KNOWN_MAX;
    size_t iter = 0;
    const char *key;
    void *value;

    while (full && map_next(m, &iter, &key, &value)) {
        if (now - last_ms(value) < EVENTS_FORGET_MS && map_count(m) < EVENTS_KNOWN_MAX)
            continue;
        mem_free(map_remove(m, key));
        iter = 0; /* removal moves entries */
    }
}

static uint64_t known_last(const void *value)
{
    return ((const struct known *)value)->last_ms;
}

static uint64_t bucket_last(const void *value)
{
    return ((const struct bucket *)value)->since_ms;
}

static bool may_spend(struct events *e, const char *uid, uint64_t now)
{
    struct bucket *b = map_get(e->buckets, uid);
    struct err err;

    if (!b) {
        make_room(e->buckets, bucket_last, now);
        b = mem_calloc(1, sizeof(*b));
        if (!b || map_put(e->buckets, uid, b, &err)) {
            mem_free(b);
            return false;
        }
        b->since_ms = now;
    }
    while (b->spent && now - b->since_ms >= EVENTS_REFILL_MS) {
        b->spent--;
        b->since_ms += EVENTS_REFILL_MS;
    }
    if (b->spent == 0)
        b->since_ms = now;
    if (b->spent >= EVENTS_BURST)
        return false;
    b->spent++;
    return true;
}

static void write_regarding(struct json_writer *w, const struct event *ev)
{
    json_key(w, "regarding");
    json_obj(w);
    json_kv_text(w, "apiVersion", ev->api_version);
    json_kv_text(w, "kind", ev->kind);
    json_kv_text(w, "namespace", ev->namespace);
    json_kv_text(w, "name", ev->name);
    json_kv_text(w, "uid", ev->uid);
    json_end(w);
}

/* Up to n bytes, not cutting a UTF-8 character. */
static size_t cut(const char *s, size_t n)
{
    size_t len = strlen(s);

    if (len <= n)
        return len;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void write_new(struct events *e, const struct event *ev, const char *name, const char *now,
                      struct str *body)
{
    struct json_writer w = json_writer_start(body);

    json_obj(&w);
    json_kv_text(&w, "apiVersion", "events.k8s.io/v1");
    json_kv_text(&w, "kind", "Event");
    json_key(&w, "metadata");
    json_obj(&w);
    json_kv_text(&w, "name", name);
    json_kv_text(&w, "namespace", ev->namespace);
    json_end(&w);
    json_kv_text(&w, "eventTime", now);
    json_kv_text(&w, "reportingController", e->controller);
    json_kv_text(&w, "reportingInstance", e->instance);
    json_kv_text(&w, "action", ev->action);
    json_kv_text(&w, "reason", ev->reason);
    write_regarding(&w, ev);
    json_key(&w, "note");
    json_textn(&w, ev->note, cut(ev->note, NOTE_MAX));
    json_kv_text(&w, "type", ev->warning ? "Warning" : "Normal");
    json_end(&w);
}

static void write_series(int64_t count, const char *now, struct str *body)
{
    struct json_writer w = json_writer_start(body);

    json_obj(&w);
    json_key(&w, "series");
    json_obj(&w);
    json_kv_i64(&w, "count", count);
    json_kv_text(&w, "lastObservedTime", now);
    json_end(&w);
    json_end(&w);
}

static enum event_verb decide_new(struct events *e, const struct event *ev, const char *key,
                                  uint64_t now_ms, struct str *name, struct str *body)
{
    uint64_t wall_ms = clock_wall_ms(e->clock);
    char now[CLOCK_TEXT_BYTES];
    struct known *k;
    struct err err;

    if (!may_spend(e, ev->uid, now_ms))
        return EVENT_DROP;
    mem_free(map_remove(e->known, key));
    make_room(e->known, known_last, now_ms);
    k = mem_calloc(1, sizeof(*k));
    if (!k || map_put(e->known, key, k, &err)) {
        mem_free(k);
        return EVENT_DROP;
    }
    k->first_ms = k->last_ms = k->written_ms = now_ms;
    k->count = 1;
    (void)snprintf(k->name, sizeof(k->name), "%.253s.%llx", ev->name,
                   (unsigned long long)(wall_ms * 1000000 + clock_ns(e->clock) % 1000000));
    clock_rfc3339_micro(wall_ms, now);
    str_adds(name, k->name);
    write_new(e, ev, k->name, now, body);
    return EVENT_CREATE;
}

static enum event_verb decide_repeat(struct events *e, struct known *k, const char *uid,
                                     uint64_t now_ms, struct str *name, struct str *body)
{
    char now[CLOCK_TEXT_BYTES];

    k->count++;
    k->last_ms = now_ms;
    if (k->count > 2 && now_ms - k->written_ms < EVENTS_REFRESH_MS)
        return EVENT_DROP;
    if (!may_spend(e, uid, now_ms))
        return EVENT_DROP;
    k->written_ms = now_ms;
    clock_rfc3339_micro(clock_wall_ms(e->clock), now);
    str_adds(name, k->name);
    write_series(k->count, now, body);
    return EVENT_PATCH;
}

enum event_verb events_decide(struct events *e, const struct event *ev, struct str *name,
                              struct str *body)
{
    CLEANUP(str_release) struct str key = STR_INIT(KEY_MAX);
    uint64_t now_ms = clock_ms(e->clock);
    enum event_verb verb = EVENT_DROP;
    struct known *k;

    str_clear(name);
    str_clear(body);
    str_addf(&key, "%s\n%d\n%s\n%s\n%s", ev->uid, ev->warning, ev->reason, ev->action, ev->note);
    if (key.failed)
        return EVENT_DROP;
    (void)pthread_mutex_lock(&e->lock);
    k = map_get(e->known, str_text(&key));
    if (k && now_ms - k->last_ms < EVENTS_FORGET_MS)
        verb = decide_repeat(e, k, ev->uid, now_ms, name, body);
    else
        verb = decide_new(e, ev, str_text(&key), now_ms, name, body);
    (void)pthread_mutex_unlock(&e->lock);
    return body->failed || name->failed ? EVENT_DROP : verb;
}

int events_emit(struct events *e, struct kube_client *c, const struct event *ev, struct err *err)
{
    CLEANUP(str_release) struct str name = STR_INIT(1024);
    CLEANUP(str_release) struct str body = STR_INIT(BODY_MAX);
    struct kube_request patch = {.method = "PATCH",
                                 .resource = &KUBE_EVENT,
                                 .namespace = ev->namespace,
                                 .content_type = "application/merge-patch+json"};

    switch (events_decide(e, ev, &name, &body)) {
    case EVENT_DROP:
        return 0;
    case EVENT_CREATE:
        return kube_create(c, &KUBE_EVENT, ev->namespace, str_text(&body), NULL, err);
    case EVENT_PATCH:
        break;
    }
    patch.name = str_text(&name);
    patch.body = str_text(&body);
    return kube_do(c, &patch, NULL, err);
}
