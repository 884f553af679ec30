/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* A bounded queue of pointers between threads; many senders, many receivers, first in first out.
 * The mailbox never owns what travels through it. */
struct mailbox;

int mailbox_new(size_t n_max, struct mailbox **ret, struct err *err) MUST_CHECK;
void mailbox_free(struct mailbox *m); /* must be empty, or the caller drained it */
DEFINE_FREEP(mailbox)

/* false: full or closed */
bool mailbox_put(struct mailbox *m, void *item);
/* Waits up to timeout_ms (-1: for ever).  NULL: timeout, woken, or closed and empty. */
void *mailbox_get(struct mailbox *m, int timeout_ms);
void *mailbox_try_get(struct mailbox *m);
/* Makes one waiting mailbox_get() return NULL early. */
void mailbox_wake(struct mailbox *m);
void mailbox_close(struct mailbox *m); /* no more puts; gets return NULL once empty */
bool mailbox_closed(struct mailbox *m);
size_t mailbox_count(struct mailbox *m);
