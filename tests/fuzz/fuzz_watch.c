/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as what an API server says to a watch.  The input is cut at 0xff; each piece is one
 * answer: its first byte picks status and cut, the rest is the body.  Whatever comes, the machine
 * wants something next, hands on objects only, and lists again when it may have missed something.
 */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "operator/kube/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void nothing(void *userdata)
{
    (void)userdata;
}

static void on_object(void *userdata, enum watch_event e, cJSON *obj)
{
    (void)userdata;
    ASSERT(e <= WATCH_DELETED && obj);
    cJSON_Delete(obj);
}

static void on_version(void *userdata, const char *version)
{
    (void)userdata;
    ASSERT(version[0]);
}

static void on_trouble(void *userdata, const struct err *err, uint64_t wait_ms)
{
    (void)userdata;
    ASSERT(err->code != ERR_NONE && wait_ms <= 60000);
}

static void stream(struct watch *w, const char *body, size_t len, size_t cut)
{
    while (len) {
        size_t n = len < cut ? len : cut;

        if (watch_data(w, body, n))
            return;
        body += n;
        len -= n;
    }
}

static void answer(struct watch *w, enum watch_want want, const uint8_t *data, size_t len)
{
    static const int statuses[] = {200, 200, 200, 410, 429, 500, 0, 404};
    uint8_t how = len ? data[0] : 0;
    int status = statuses[how & 7];
    struct err err = {.code = ERR_UNAVAILABLE};
    size_t n = len ? len - 1 : 0;
    char *body = mem_strndup(len ? (const char *)data + 1 : "", n);

    ASSERT(body);
    if (want == WATCH_STREAM && status == 200)
        stream(w, body, n, (how >> 3) + 1u);
    watch_end(w, status ? 0 : -ERR_UNAVAILABLE, status, body, want == WATCH_STREAM ? 0 : n,
              how & 1 ? 5000 : -1, &err);
    mem_free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(watch_freep) struct watch *w = NULL;
    CLEANUP(str_release) struct str path = STR_INIT(1 << 20);
    struct clock_fake clock;
    struct watch_options o = {.resource = &KUBE_POD,
                              .clock = &clock.clock,
                              .seed = 1,
                              .on_list_begin = nothing,
                              .on_object = on_object,
                              .on_list_end = nothing,
                              .on_version = on_version,
                              .on_trouble = on_trouble};
    struct err err;
    size_t at = 0;

    clock_fake_init(&clock, 0);
    ASSERT(watch_new(&o, &w, &err) == 0);
    while (at < len) {
        const uint8_t *end = memchr(data + at, 0xff, len - at);
        size_t n = end ? (size_t)(end - data) - at : len - at;
        uint64_t wait_ms = 0;
        enum watch_want want = watch_next(w, &path, &wait_ms);

        if (want == WATCH_WAIT) {
            clock_fake_advance_ms(&clock, wait_ms);
            continue;
        }
        answer(w, want, data + at, n);
        at += n + 1;
    }
    return 0;
}
