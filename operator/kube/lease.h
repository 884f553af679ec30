/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

/* Leader election on a Lease, as a state machine without I/O.  One thread, but for
 * lease_is_valid(), which any thread may ask.
 *
 * Whether another's lease ran out is judged by our own monotonic clock since we last saw the
 * record change; the times written in it are for people. */
struct lease;

struct lease_options {
    const char *namespace, *name, *identity; /* identity: unique to this process; <= 128 bytes */
    unsigned duration_s;                     /* 0: 15 */
    unsigned renew_deadline_ms; /* 0: 10000; a leader that could not renew for so long is lost */
    unsigned retry_ms;          /* 0: 2000 */
    const struct clock *clock;
};

enum lease_want { LEASE_WAIT, LEASE_GET, LEASE_CREATE, LEASE_UPDATE };
enum lease_state { LEASE_FOLLOWER, LEASE_LEADER, LEASE_LOST };

enum { LEASE_HOLDER_BYTES = 160 };

int lease_new(const struct lease_options *o, struct lease **ret, struct err *err) MUST_CHECK;
void lease_free(struct lease *l);
DEFINE_FREEP(lease)

/* GET, CREATE (POST *body to the collection) or UPDATE (PUT *body), then report the answer once.
 * WAIT: come again after *ret_wait_ms. */
enum lease_want lease_next(struct lease *l, struct str *body, uint64_t *ret_wait_ms);
/* r != 0: no answer.  status 0..., body of the answer. */
void lease_answer(struct lease *l, int r, int status, char *body, size_t len);
/* The body of a PUT that gives the lease up; false: it is not ours. */
bool lease_release(struct lease *l, struct str *body);

enum lease_state lease_state(const struct lease *l);
const char *lease_holder(const struct lease *l); /* as last seen; "" nobody */
/* We hold it, by our clock, at this moment. */
bool lease_is_valid(const struct lease *l);
