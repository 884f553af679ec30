/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/request/inbox.h"

#include "base/assertion.h"
#include "base/mailbox.h"
#include "base/mem.h"

struct inbox {
    struct inbox_options o;
    struct mailbox *box;
    atomic_uint n_waiting;
    atomic_ullong n_tokens;
};

int inbox_new(const struct inbox_options *o, struct inbox **ret, struct err *err)
{
    struct inbox *b = mem_calloc(1, sizeof(*b));
    int r;

    ASSERT(o->requests_max > 0);
    if (!b)
        return err_set(err, ERR_NO_MEMORY, "inbox");
    b->o = *o;
    r = mailbox_new(o->requests_max, &b->box, err);
    if (r) {
        mem_free(b);
        return r;
    }
    *ret = b;
    return 0;
}

void inbox_free(struct inbox *b)
{
    if (!b)
        return;
    mailbox_free(b->box);
    mem_free(b);
}

static void tell(struct inbox *b, int requests, int64_t tokens)
{
    if (b->o.on_change)
        b->o.on_change(b->o.userdata, requests, tokens);
}

int inbox_reserve(struct inbox *b, uint64_t n_tokens, struct err *err)
{
    uint64_t tokens = atomic_fetch_add(&b->n_tokens, n_tokens) + n_tokens;
    uint32_t requests = atomic_fetch_add(&b->n_waiting, 1) + 1;
    int r = 0;

    if (mailbox_closed(b->box))
        r = err_set(err, ERR_UNAVAILABLE, "the server takes no more requests");
    else if (requests > b->o.requests_max)
        r = err_set(err, ERR_BUSY, "the queue is full: %u requests wait", b->o.requests_max);
    else if (tokens > b->o.tokens_max && requests > 1)
        r = err_set(err, ERR_BUSY, "the queue is full: over %llu tokens wait",
                    (unsigned long long)b->o.tokens_max);
    if (r) {
        atomic_fetch_sub(&b->n_tokens, n_tokens);
        atomic_fetch_sub(&b->n_waiting, 1);
        return r;
    }
    tell(b, 1, (int64_t)n_tokens);
    return 0;
}

void inbox_correct(struct inbox *b, uint64_t guessed, uint64_t actual)
{
    atomic_fetch_add(&b->n_tokens, actual);
    atomic_fetch_sub(&b->n_tokens, guessed);
    tell(b, 0, (int64_t)actual - (int64_t)guessed);
}

void inbox_return(struct inbox *b, uint64_t n_tokens)
{
    atomic_fetch_add(&b->n_tokens, n_tokens);
    atomic_fetch_add(&b->n_waiting, 1);
    tell(b, 1, (int64_t)n_tokens);
}

void inbox_release(struct inbox *b, uint64_t n_tokens)
{
    uint32_t requests;

    atomic_fetch_sub(&b->n_tokens, n_tokens);
    requests = atomic_fetch_sub(&b->n_waiting, 1);
    ASSERT(requests > 0);
    tell(b, -1, -(int64_t)n_tokens);
}

bool inbox_send(struct inbox *b, struct request *r)
{
    request_ref(r);
    if (mailbox_put(b->box, r))
        return true;
    request_unref(r);
    return false;
}

struct request *inbox_take(struct inbox *b, int timeout_ms)
{
    return timeout_ms == 0 ? mailbox_try_get(b->box) : mailbox_get(b->box, timeout_ms);
}

void inbox_wake(struct inbox *b)
{
    mailbox_wake(b->box);
}

void inbox_close(struct inbox *b)
{
    mailbox_close(b->box);
}

uint32_t inbox_waiting(const struct inbox *b)
{
    return atomic_load(&b->n_waiting);
}
