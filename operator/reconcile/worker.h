/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/log.h"
#include "operator/api/pod_signal.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/queue/workqueue.h"
#include "operator/reconcile/barrier.h"
#include "operator/reconcile/observed.h"
#include "operator/store/store.h"

/* What reconciling asks the scaling side; any thread. */
struct reconcile_hooks {
    void (*signal)(void *userdata, const char *pod_uid, struct pod_signal *ret);
    void (*decide)(void *userdata, const struct inference_service *s,
                   const struct observed_pod *pods, size_t n_pods, struct scale_decision *ret);
    /* Fills seen->metrics_api and its owner. */
    void (*metrics_api)(void *userdata, struct observed *seen);
    /* Told of each reconcile: result "success", "error", "requeue" or "gone". */
    void (*on_result)(void *userdata, const char *key, const char *result, double seconds);
    /* The wanted replicas changed. */
    void (*on_scaled)(void *userdata, bool up);
    void *userdata;
};

struct workers_options {
    unsigned n;
    struct store *store;
    struct workqueue *queue;
    struct events *events;
    struct kube_client_options client; /* each worker makes one */
    const struct template_defaults *defaults;
    const struct reconcile_hooks *hooks;
    const struct clock *clock;
    struct logger *lg;
};

/* N threads that take keys from the queue and reconcile them. */
struct workers;

int workers_start(const struct workers_options *o, struct workers **ret,
                  struct err *err) MUST_CHECK;
/* Shuts the queue down and waits for the threads. */
void workers_stop(struct workers *w);
