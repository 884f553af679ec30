/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c - never blind, never twice.
 *
 * A list gives a version, the stream goes on from it; bookmarks move the version on while nothing
 * happens, so that a stream can be resumed after hours.  The server ends each stream after about
 * 50 seconds (timeoutSeconds), and sends a bookmark just before: a connection that is silent for
 * 60 is therefore dead, not quiet, and is given up (WATCH_IDLE_MS).
 *
 * A stream's bytes come in any cut.  A line is handled when its line feed is there; a line that
 * cannot be read, or does not end, means that we no longer know what we missed: list again.  An
 * expired version (410, as a status or as an event) means the same.  Everything else is retried
 * from the last version, with a back-off that doubles from 0.8 to 30 seconds, with jitter, and
 * starts anew after a stream that lived.
 *
 * Objects of a list are handed on page by page, but on_list_end() comes only after the last:
 * nobody may conclude from half a list that something is gone.
 */
#include "operator/kube/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "operator/kube/answer.h"

enum {
    PAGE_LIMIT = 500,
    BACKOFF_MS = 800,
    BACKOFF_MAX_MS = 30000,
    STREAM_MIN_S = 40,
    STREAM_SPREAD_S = 15,
    HEALTHY_MS = 5000, /* a stream that lived so long, or said something, was no failure */
    VERSION_BYTES = 48,
};

struct watch {
    struct watch_options opt;
    enum watch_want want; /* LIST or STREAM: what comes next, or is going on */
    bool busy;            /* the driver is at it */
    uint64_t not_before_ms;
    unsigned failures;
    uint64_t random;
    /* a list */
    struct str token; /* of the next page; empty: from the first */
    /* a stream */
    struct str line;
    char version[VERSION_BYTES];
    uint64_t started_ms;
    bool heard;        /* a line of this stream was good */
    bool ended_itself; /* watch_data() asked for the end and has said what comes next */
};

int watch_new(const struct watch_options *o, struct watch **ret, struct err *err)
{
    struct watch *w = mem_calloc(1, sizeof(*w));

    if (!w)
        return err_set(err, ERR_NO_MEMORY, "watch");
    w->opt = *o;
    if (w->opt.page_limit == 0)
        w->opt.page_limit = PAGE_LIMIT;
    w->want = WATCH_LIST;
    w->random = o->seed | 1;
    w->token.max = 64 << 10;
    w->line.max = WATCH_LINE_MAX;
    *ret = w;
    return 0;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    str_release(&w->token);
    str_release(&w->line);
    mem_free(w);
}

/* xorshift: jitter needs no more */
static uint64_t below(struct watch *w, uint64_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % n;
}

static void relist(struct watch *w)
{
    w->want = WATCH_LIST;
    str_clear(&w->token);
}

/* Try again later: the back-off, or what the server asked for. */
static void back_off(struct watch *w, int64_t retry_after_ms, const struct err *err)
{
    unsigned shift = w->failures < 6 ? w->failures : 6;
    uint64_t delay = (uint64_t)BACKOFF_MS << shift;

    if (delay > BACKOFF_MAX_MS)
        delay = BACKOFF_MAX_MS;
    delay = delay / 2 + below(w, delay);
    if (retry_after_ms > 0 && (uint64_t)retry_after_ms > delay)
        delay = (uint64_t)retry_after_ms;
    w->failures++;
    w->not_before_ms = clock_ms(w->opt.clock) + delay;
    w->opt.on_trouble(w->opt.userdata, err, delay);
}

static void add_query(struct str *path, bool *any, const char *name, const char *value)
{
    if (!value || value[0] == '\0')
        return;
    str_addf(path, "%c%s=", *any ? '&' : '?', name);
    kube_encode(value, path);
    *any = true;
}

static void make_path(struct watch *w, struct str *path)
{
    bool any = false;
    char number[24];

    str_clear(path);
    kube_path(w->opt.resource, w->opt.namespace, NULL, NULL, path);
    add_query(path, &any, "labelSelector", w->opt.label_selector);
    add_query(path, &any, "fieldSelector", w->opt.field_selector);
    if (w->want == WATCH_LIST) {
        (void)snprintf(number, sizeof(number), "%u", w->opt.page_limit);
        add_query(path, &any, "limit", number);
        add_query(path, &any, "continue", str_text(&w->token));
        return;
    }
    (void)snprintf(number, sizeof(number), "%u",
                   STREAM_MIN_S + (unsigned)below(w, STREAM_SPREAD_S));
    add_query(path, &any, "watch", "1");
    add_query(path, &any, "allowWatchBookmarks", "true");
    add_query(path, &any, "resourceVersion", w->version);
    add_query(path, &any, "timeoutSeconds", number);
}

enum watch_want watch_next(struct watch *w, struct str *path, uint64_t *ret_wait_ms)
{
    uint64_t now = clock_ms(w->opt.clock);

    ASSERT(!w->busy);
    if (now < w->not_before_ms) {
        *ret_wait_ms = w->not_before_ms - now;
        return WATCH_WAIT;
    }
    make_path(w, path);
    w->busy = true;
    if (w->want == WATCH_LIST && w->token.len == 0)
        w->opt.on_list_begin(w->opt.userdata);
    if (w->want == WATCH_STREAM) {
        str_clear(&w->line);
        w->line.failed = false;
        w->heard = w->ended_itself = false;
        w->started_ms = now;
    }
    return w->want;
}

static void take_version(struct watch *w, const cJSON *obj)
{
    const char *version = json_path_str(obj, "metadata.resourceVersion", "");
    size_t n = strlen(version);

    if (n == 0 || n >= VERSION_BYTES)
        return;
    memcpy(w->version, version, n + 1);
    w->opt.on_version(w->opt.userdata, w->version);
}

/* --- a list --- */

/* Items of a list come without apiVersion and kind; events have them, and so does what we hand on.
 */
static int name_kind(const struct watch *w, cJSON *item, struct err *err)
{
    const struct kube_resource *r = w->opt.resource;
    char version[128];

    (void)snprintf(version, sizeof(version), "%s%s%s", r->group, r->group[0] ? "/" : "",
                   r->version);
    if (json_get(item, "kind") || (cJSON_AddStringToObject(item, "apiVersion", version) &&
                                   cJSON_AddStringToObject(item, "kind", r->kind)))
        return 0;
    return err_set(err, ERR_NO_MEMORY, "list item");
}

static int take_page(struct watch *w, char *body, size_t len, struct err *err)
{
    CLEANUP(json_freep) cJSON *page = NULL;
    const char *token;
    cJSON *items, *item;
    int r = kube_answer_parse(body, len, &page, err);

    if (r)
        return r;
    items = cJSON_GetObjectItemCaseSensitive(page, "items");
    token = json_path_str(page, "metadata.continue", "");
    if (json_path_str(page, "metadata.resourceVersion", "")[0] == '\0' ||
        !(cJSON_IsArray(items) || cJSON_IsNull(items)))
        return err_set(err, ERR_INVALID, "the answer is no list");
    while ((item = items->child)) {
        if (name_kind(w, item, err))
            return -(int)err->code;
        (void)cJSON_DetachItemViaPointer(items, item);
        w->opt.on_object(w->opt.userdata, WATCH_ADDED, item);
    }
    str_clear(&w->token);
    str_adds(&w->token, token);
    r = str_check(&w->token, "continue token", err);
    if (r || token[0])
        return r;
    w->want = WATCH_STREAM;
    w->opt.on_list_end(w->opt.userdata);
    take_version(w, page); /* after: "delivered" includes what the list removed */
    return 0;
}

static void end_list(struct watch *w, int r, int status, char *body, size_t len,
                     int64_t retry_after_ms, const struct err *failed)
{
    struct err err = {0};

    if (r) {
        err = *failed;
    } else if (status < 200 || status > 299) {
        r = kube_answer_error(status, body, len, &err);
        if (status == 410 && w->token.len) { /* the token is too old: from the first page */
            relist(w);
            w->not_before_ms = 0;
            return;
        }
    } else {
        r = take_page(w, body, len, &err);
    }
    if (r == 0)
        return;
    relist(w); /* never go on with half a list */
    back_off(w, retry_after_ms, &err);
}

/* --- a stream --- */

/* The Status of an ERROR event. */
static int take_error(struct watch *w, const cJSON *status, struct err *err)
{
    int code = (int)json_int(status, "code", 0);
    const char *reason = json_str(status, "reason", "");

    if (code == 410 || strcmp(reason, "Expired") == 0 || strcmp(reason, "Gone") == 0) {
        relist(w);
        w->ended_itself = true;
    }
    return err_set(err, ERR_CONFLICT, "watch: %s: %.300s", reason, json_str(status, "message", ""));
}

static int take_line(struct watch *w, char *text, size_t len, struct err *err)
{
    static const char *const names[] = {"ADDED", "MODIFIED", "DELETED"};
    CLEANUP(json_freep) cJSON *event = NULL;
    const char *type;
    cJSON *obj;
    int r = kube_answer_parse(text, len, &event, err);

    if (r)
        return r;
    type = json_str(event, "type", "");
    obj = cJSON_GetObjectItemCaseSensitive(event, "object");
    if (!cJSON_IsObject(obj))
        return err_set(err, ERR_INVALID, "watch event without an object");
    if (strcmp(type, "ERROR") == 0)
        return take_error(w, obj, err);
    w->heard = true;
    if (strcmp(type, "BOOKMARK") == 0) {
        take_version(w, obj);
        return 0;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char version[VERSION_BYTES] = "";

        if (strcmp(type, names[i]) != 0)
            continue;
        (void)snprintf(version, sizeof(version), "%s",
                       json_path_str(obj, "metadata.resourceVersion", ""));
        (void)cJSON_DetachItemViaPointer(event, obj);
        w->opt.on_object(w->opt.userdata, (enum watch_event)i, obj);
        if (version[0]) {
            memcpy(w->version, version, sizeof(version));
            w->opt.on_version(w->opt.userdata, w->version);
        }
        return 0;
    }
    return err_set(err, ERR_INVALID, "watch event of an unknown type \"%.20s\"", type);
}

/* The stream cannot be trusted any more. */
static int give_up(struct watch *w, const struct err *err)
{
    if (err->code == ERR_INVALID || err->code == ERR_NO_MEMORY)
        relist(w);
    w->ended_itself = true;
    if (w->want == WATCH_LIST && err->code == ERR_CONFLICT)
        w->opt.on_trouble(w->opt.userdata, err, 0); /* expired: list at once */
    else
        back_off(w, 0, err);
    return -1;
}

int watch_data(struct watch *w, const char *data, size_t len)
{
    struct err err = {0};

    ASSERT(w->busy);
    if (w->ended_itself)
        return -1;
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) : len;

        str_add(&w->line, data, n);
        if (str_check(&w->line, "watch line", &err))
            return give_up(w, &err);
        if (!end)
            return 0;
        if (w->line.len && take_line(w, w->line.data, w->line.len, &err))
            return give_up(w, &err);
        str_clear(&w->line);
        data += n + 1;
        len -= n + 1;
    }
    return 0;
}

static void end_stream(struct watch *w, int r, int status, const char *body, size_t len,
                       int64_t retry_after_ms, const struct err *failed)
{
    uint64_t lived = clock_ms(w->opt.clock) - w->started_ms;
    struct err err = {0};

    /* A long line's buffer is not kept for the next quiet hour. */
    str_release(&w->line);
    if (w->ended_itself)
        return;
    if (w->heard || lived >= HEALTHY_MS)
        w->failures = 0;
    if (r == 0 && status == 410) {
        (void)kube_answer_error(status, body, len, &err);
        relist(w);
        w->opt.on_trouble(w->opt.userdata, &err, 0);
    } else if (r == 0 && (status < 200 || status > 299)) {
        (void)kube_answer_error(status, body, len, &err);
        back_off(w, retry_after_ms, &err);
    } else if (r) {
        back_off(w, 0, failed);
    } else if (!w->heard && lived < HEALTHY_MS) {
        (void)err_set(&err, ERR_UNAVAILABLE, "watch ended at once");
        back_off(w, 0, &err);
    }
}

void watch_end(struct watch *w, int r, int status, char *body, size_t len, int64_t retry_after_ms,
               const struct err *err)
{
    ASSERT(w->busy);
    w->busy = false;
    if (w->want == WATCH_LIST && !w->ended_itself)
        end_list(w, r, status, body, len, retry_after_ms, err);
    else
        end_stream(w, r, status, body, len, retry_after_ms, err);
    w->ended_itself = false;
}
