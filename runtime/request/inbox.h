/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/request/request.h"

/* The way into the engine, and the one place that knows how many requests wait.
 *
 * A request takes its place before any work is spent on it (inbox_reserve(), with a guess of its
 * tokens), corrects the guess once the prompt is tokenised, and holds the place until the engine
 * runs it or it ends.  So "waiting" counts what is being tokenised, what is
 * in the box and what stands in the engine's queue; the bound holds over all three. */
struct inbox;

struct inbox_options {
    uint32_t requests_max; /* waiting at once */
    uint64_t tokens_max;   /* of all waiting prompts */
    /* Told of each change, from any thread, without a lock held; may be NULL.  Differences, since
     * two calls may come in either order: their sum is right, a last value would not be. */
    void (*on_change)(void *userdata, int requests, int64_t tokens);
    void *userdata;
};

int inbox_new(const struct inbox_options *o, struct inbox **ret, struct err *err) MUST_CHECK;
void inbox_free(struct inbox *b);
DEFINE_FREEP(inbox)

/* ERR_BUSY: full, by requests or by tokens.  ERR_UNAVAILABLE: closed. */
int inbox_reserve(struct inbox *b, uint64_t n_tokens, struct err *err) MUST_CHECK;
void inbox_correct(struct inbox *b, uint64_t guessed, uint64_t actual);
/* A running request waits again (it was preempted): counted even when the queue is full. */
void inbox_return(struct inbox *b, uint64_t n_tokens);
/* Give the place back. */
void inbox_release(struct inbox *b, uint64_t n_tokens);
/* Send a request that holds a place for its n_prompt tokens; the inbox takes a reference for the
 * engine.  Never fails for lack of room: the place was the room.  False: closed. */
bool inbox_send(struct inbox *b, struct request *r);
/* The engine's side: waits up to timeout_ms (-1 for ever, 0 not at all). */
struct request *inbox_take(struct inbox *b, int timeout_ms);
void inbox_wake(struct inbox *b);
void inbox_close(struct inbox *b);
uint32_t inbox_waiting(const struct inbox *b);
