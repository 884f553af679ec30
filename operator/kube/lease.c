/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.c - one writer among several replicas.
 *
 * 15 / 10 / 2: others wait 15 s after the record's last change before they take it; the holder
 * renews every 2 s and, when it could not for 10, is lost for good and the process ends.  The 5 s
 * between are the margin for slow clocks and for writes under way.
 *
 * valid_until is what the writers ask: the start of the last successful renewal plus 10 s.  A
 * process that was stopped and continues finds it in the past before it finds anything else.
 */
#include "operator/kube/lease.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "operator/kube/answer.h"

enum { DURATION_S = 15, RENEW_DEADLINE_MS = 10000, RETRY_MS = 2000, VERSION_BYTES = 48 };

struct lease {
    struct lease_options opt;
    enum lease_state state;
    enum lease_want next, busy; /* busy: the call under way, LEASE_WAIT: none */
    uint64_t not_before_ms, sent_ms;
    _Atomic uint64_t valid_until_ms;
    /* the record as last seen */
    bool known;
    char version[VERSION_BYTES], holder[LEASE_HOLDER_BYTES];
    char acquired[CLOCK_TEXT_BYTES];
    int64_t duration_s, transitions;
    uint64_t changed_ms; /* our time when its version last changed */
};

int lease_new(const struct lease_options *o, struct lease **ret, struct err *err)
{
    struct lease *l = mem_calloc(1, sizeof(*l));

    if (!l)
        return err_set(err, ERR_NO_MEMORY, "lease");
    l->opt = *o;
    l->opt.duration_s = o->duration_s ? o->duration_s : DURATION_S;
    l->opt.renew_deadline_ms = o->renew_deadline_ms ? o->renew_deadline_ms : RENEW_DEADLINE_MS;
    l->opt.retry_ms = o->retry_ms ? o->retry_ms : RETRY_MS;
    l->next = LEASE_GET;
    *ret = l;
    return 0;
}

void lease_free(struct lease *l)
{
    mem_free(l);
}

enum lease_state lease_state(const struct lease *l)
{
    return l->state;
}

const char *lease_holder(const struct lease *l)
{
    return l->holder;
}

bool lease_is_valid(const struct lease *l)
{
    return clock_ms(l->opt.clock) < atomic_load(&l->valid_until_ms);
}

static void write_record(struct lease *l, struct str *body, const char *holder, unsigned duration_s,
                         int64_t transitions, const char *acquired, const char *renewed)
{
    struct json_writer w;

    str_clear(body);
    w = json_writer_start(body);
    json_obj(&w);
    json_kv_text(&w, "apiVersion", "coordination.k8s.io/v1");
    json_kv_text(&w, "kind", "Lease");
    json_key(&w, "metadata");
    json_obj(&w);
    json_kv_text(&w, "name", l->opt.name);
    json_kv_text(&w, "namespace", l->opt.namespace);
    if (l->known)
        json_kv_text(&w, "resourceVersion", l->version);
    json_end(&w);
    json_key(&w, "spec");
    json_obj(&w);
    json_kv_text(&w, "holderIdentity", holder);
    json_kv_i64(&w, "leaseDurationSeconds", duration_s);
    json_kv_text(&w, "acquireTime", acquired);
    json_kv_text(&w, "renewTime", renewed);
    json_kv_i64(&w, "leaseTransitions", transitions);
    json_end(&w);
    json_end(&w);
}

static bool is_ours(const struct lease *l)
{
    return l->known && strcmp(l->holder, l->opt.identity) == 0;
}

static void write_claim(struct lease *l, struct str *body)
{
    char now[CLOCK_TEXT_BYTES];
    bool renew = is_ours(l);

    clock_rfc3339_micro(clock_wall_ms(l->opt.clock), now);
    write_record(l, body, l->opt.identity, l->opt.duration_s,
                 renew || !l->known ? l->transitions : l->transitions + 1,
                 renew && l->acquired[0] ? l->acquired : now, now);
}

bool lease_release(struct lease *l, struct str *body)
{
    char now[CLOCK_TEXT_BYTES];

    if (l->state != LEASE_LEADER || !is_ours(l))
        return false;
    clock_rfc3339_micro(clock_wall_ms(l->opt.clock), now);
    write_record(l, body, "", 1, l->transitions, l->acquired[0] ? l->acquired : now, now);
    atomic_store(&l->valid_until_ms, 0);
    return true;
}

enum lease_want lease_next(struct lease *l, struct str *body, uint64_t *ret_wait_ms)
{
    uint64_t now = clock_ms(l->opt.clock);

    ASSERT(l->busy == LEASE_WAIT);
    if (l->state == LEASE_LEADER && !lease_is_valid(l))
        l->state = LEASE_LOST;
    if (l->state == LEASE_LOST || now < l->not_before_ms) {
        *ret_wait_ms = now < l->not_before_ms ? l->not_before_ms - now : l->opt.retry_ms;
        return LEASE_WAIT;
    }
    if (l->next != LEASE_GET)
        write_claim(l, body);
    l->sent_ms = now;
    l->busy = l->next;
    return l->busy;
}

static int take_record(struct lease *l, char *body, size_t len)
{
    CLEANUP(json_freep) cJSON *json = NULL;
    const cJSON *spec;
    const char *version;
    struct err err;

    if (kube_answer_parse(body, len, &json, &err))
        return -1;
    spec = json_get(json, "spec");
    version = json_path_str(json, "metadata.resourceVersion", "");
    if (version[0] == '\0' || strlen(version) >= VERSION_BYTES)
        return -1;
    if (!l->known || strcmp(version, l->version) != 0)
        l->changed_ms = clock_ms(l->opt.clock);
    l->known = true;
    memcpy(l->version, version, strlen(version) + 1);
    (void)snprintf(l->holder, sizeof(l->holder), "%s", json_str(spec, "holderIdentity", ""));
    (void)snprintf(l->acquired, sizeof(l->acquired), "%s", json_str(spec, "acquireTime", ""));
    l->duration_s = json_int(spec, "leaseDurationSeconds", DURATION_S);
    l->transitions = json_int(spec, "leaseTransitions", 0);
    return 0;
}

static void wait_for(struct lease *l, uint64_t ms, enum lease_want then)
{
    l->not_before_ms = clock_ms(l->opt.clock) + ms;
    l->next = then;
}

/* The record is fresh: may we take it, or when may we look again? */
static void judge(struct lease *l)
{
    uint64_t now = clock_ms(l->opt.clock);
    uint64_t runs_out = l->changed_ms + (uint64_t)(l->duration_s > 0 ? l->duration_s : 0) * 1000;

    if (l->holder[0] == '\0' || is_ours(l) || now >= runs_out)
        wait_for(l, 0, LEASE_UPDATE);
    else
        wait_for(l, l->opt.retry_ms, LEASE_GET);
}

static void take_answer(struct lease *l, enum lease_want what, int status, char *body, size_t len)
{
    if (status == 404) {
        l->known = false;
        l->transitions = 0;
        wait_for(l, 0, LEASE_CREATE);
        return;
    }
    if (status == 409) { /* somebody else wrote; see who */
        wait_for(l, 0, LEASE_GET);
        return;
    }
    if (status < 200 || status > 299 || take_record(l, body, len)) {
        wait_for(l, l->opt.retry_ms, l->state == LEASE_LEADER ? LEASE_UPDATE : LEASE_GET);
        return;
    }
    if (what == LEASE_GET) {
        judge(l);
        return;
    }
    if (!is_ours(l)) {
        wait_for(l, l->opt.retry_ms, LEASE_GET);
        return;
    }
    l->state = LEASE_LEADER;
    atomic_store(&l->valid_until_ms, l->sent_ms + l->opt.renew_deadline_ms);
    wait_for(l, l->opt.retry_ms, LEASE_UPDATE);
}

void lease_answer(struct lease *l, int r, int status, char *body, size_t len)
{
    enum lease_want what = l->busy;

    ASSERT(what != LEASE_WAIT);
    l->busy = LEASE_WAIT;
    if (r)
        wait_for(l, l->opt.retry_ms, l->state == LEASE_LEADER ? LEASE_UPDATE : LEASE_GET);
    else
        take_answer(l, what, status, body, len);
    /* A leader that sees another's name in the record has lost it, whatever the clock says. */
    if (l->state == LEASE_LEADER && (!lease_is_valid(l) || (l->known && !is_ours(l)))) {
        atomic_store(&l->valid_until_ms, 0);
        l->state = LEASE_LOST;
    }
}
