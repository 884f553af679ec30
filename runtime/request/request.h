/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* One generation, as it changes hands: the API fills it in, the engine computes it, the text
 * workers read what comes out.  Two holders, counted: the API's job and the engine.
 *
 * The outbox is the token array itself.  The engine appends a token, then publishes n_output
 * (release); a reader takes n_output (acquire) and may read all tokens below it.  The array has
 * room for every token the request may produce, so the engine never waits for a reader and never
 * allocates.  'finish' is published after the last token. */

enum finish_reason {
    FINISH_NONE,     /* still going */
    FINISH_STOP,     /* an end token */
    FINISH_LENGTH,   /* max_tokens, or the context is full */
    FINISH_CANCELED, /* request_end(), or the server is leaving */
    FINISH_ERROR,    /* the device failed, or this row's logits were not finite */
};

struct sampling {
    float temperature; /* 0: greedy */
    float top_p;
    float min_p;
    uint32_t top_k; /* 0: off */
    uint64_t seed;
};

enum { REQUEST_END_IDS_MAX = 16 };

struct request {
    /* set before the request is sent, read-only after */
    uint32_t n_prompt;
    uint32_t max_tokens;
    struct sampling sampling;
    bool ignore_eos;
    int32_t end_ids[REQUEST_END_IDS_MAX];
    uint32_t n_end_ids;
    uint64_t arrival_ns; /* monotonic, the first byte of the HTTP request */
    /* Called on the engine's thread after tokens or the finish were published, the last time after
     * the finish: userdata must live until then.  Must not block. */
    void (*on_output)(void *userdata);
    void *userdata;

    int32_t *tokens; /* [n_prompt + max_tokens]: the prompt, then the output */
    atomic_uint n_output;
    atomic_int finish; /* enum finish_reason */
    atomic_int cancel; /* enum finish_reason to end with; FINISH_NONE: go on */

    /* written by the engine before 'finish', read after it; monotonic ns, 0: never happened */
    uint64_t queued_ns, scheduled_ns, first_token_ns, finished_ns;
    uint32_t n_preemptions;

    atomic_uint refs;
};

/* max_tokens is room to take now.  The prompt is copied. */
int request_new(const int32_t *prompt, uint32_t n_prompt, uint32_t max_tokens, struct request **ret,
                struct err *err) MUST_CHECK;
void request_ref(struct request *r);
void request_unref(struct request *r);
static inline void request_unrefp(struct request **r)
{
    if (*r)
        request_unref(*r);
}

/* Any thread; the engine ends it within one step, in whatever state it is, with the reason of the
 * first call: FINISH_CANCELED, or FINISH_STOP when its text met a stop string. */
void request_end(struct request *r, enum finish_reason why);

static inline uint32_t request_n_output(const struct request *r)
{
    return atomic_load_explicit(&r->n_output, memory_order_acquire);
}
static inline enum finish_reason request_finish(const struct request *r)
{
    return (enum finish_reason)atomic_load_explicit(&r->finish, memory_order_acquire);
}
