/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "operator/kube/auth.h"
#include "operator/kube/lease.h"
#include "operator/kube/watch.h"

/* Drives watches and a lease over one http_loop, on the one thread that calls kube_loop_run();
 * all their callbacks run there.  Each has connections of its own, so that a slow list cannot
 * starve the lease. */
struct kube_loop;

int kube_loop_new(struct kube_auth *auth, const struct clock *clock, struct logger *lg,
                  struct kube_loop **ret, struct err *err) MUST_CHECK;
void kube_loop_free(struct kube_loop *l);
DEFINE_FREEP(kube_loop)

/* The options' texts and callbacks must outlive the loop. */
int kube_loop_watch(struct kube_loop *l, const struct watch_options *o, struct err *err) MUST_CHECK;
/* The lease stays the caller's. */
int kube_loop_lease(struct kube_loop *l, struct lease *lease, const struct lease_options *o,
                    struct err *err) MUST_CHECK;

/* One turn: start what is due, wait up to max_ms, run callbacks. */
void kube_loop_run(struct kube_loop *l, unsigned max_ms);
void kube_loop_wake(struct kube_loop *l); /* any thread */
