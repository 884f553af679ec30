/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "operator/kube/resource.h"

/* List and watch of one kind, as a state machine without I/O: it says what it wants, its driver
 * (kube/loop.h) does it and reports.  One thread.
 *
 *   LIST --last page--> STREAM --clean end--> STREAM --410--> LIST
 *     ^ \__ any failure: WAIT, then again __/    \__ torn or unreadable line: WAIT, then LIST
 */
struct watch;

enum watch_event { WATCH_ADDED, WATCH_MODIFIED, WATCH_DELETED };

struct watch_options {
    const struct kube_resource *resource;
    const char *namespace;      /* NULL: all */
    const char *label_selector; /* NULL: all */
    const char *field_selector;
    unsigned page_limit; /* 0: 500 */
    const struct clock *clock;
    uint64_t seed; /* of the jitter */

    void (*on_list_begin)(void *userdata);
    /* obj is handed over.  Listed objects come as WATCH_ADDED. */
    void (*on_object)(void *userdata, enum watch_event e, cJSON *obj);
    void (*on_list_end)(void *userdata);
    /* All up to this resource version was delivered. */
    void (*on_version)(void *userdata, const char *version);
    /* For the log: what went wrong, once a try; wait_ms until the next. */
    void (*on_trouble)(void *userdata, const struct err *err, uint64_t wait_ms);
    void *userdata;
};

enum watch_want { WATCH_WAIT, WATCH_LIST, WATCH_STREAM };

enum {
    WATCH_LINE_MAX = 8 << 20, /* an object of etcd's 1.5 MB, with room for escapes */
    WATCH_IDLE_MS = 60000,    /* no byte for so long: the peer is dead */
};

int watch_new(const struct watch_options *o, struct watch **ret, struct err *err) MUST_CHECK;
void watch_free(struct watch *w);
DEFINE_FREEP(watch)

/* What to do now.  LIST, STREAM: GET this path and query (replaces *path), then report its end
 * once.  WAIT: come again after *ret_wait_ms. */
enum watch_want watch_next(struct watch *w, struct str *path, uint64_t *ret_wait_ms);

/* Bytes of a stream's 2xx body.  Non-zero: end the call. */
int watch_data(struct watch *w, const char *data, size_t len);
/* The call ended: r and err as http_client_do() gives them; status and body of the answer. */
void watch_end(struct watch *w, int r, int status, char *body, size_t len, int64_t retry_after_ms,
               const struct err *err);
