/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "operator/kube/client.h"
#include "operator/reconcile/barrier.h"
#include "operator/reconcile/plan.h"

/* Carries a plan's steps out.  One worker. */
struct apply {
    struct kube_client *client;
    struct barrier *barrier;
    const char *key, *namespace, *service_uid;
};

/* Run the steps in order.  An object of a new child's name that is not ours sets its bit in
 * *ret_foreign, and the step is left out.  Stops at the first error, which names the child. */
int apply_steps(const struct apply *a, const struct plan *p, unsigned *ret_foreign,
                struct err *err) MUST_CHECK;
/* Write the status, if it differs. */
int apply_status(const struct apply *a, const char *name, const char *body,
                 struct err *err) MUST_CHECK;
