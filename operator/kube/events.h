/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "operator/kube/client.h"

/* Events (events.k8s.io/v1): what happened, for kubectl describe.  Repeats become one series,
 * each object has a budget, and a lost event never fails anything.  Any thread. */
struct events;

struct event {
    const char *kind, *api_version; /* of what it is about */
    const char *namespace, *name, *uid;
    bool warning;
    const char *reason, *action, *note;
};

enum {
    EVENTS_KNOWN_MAX = 1024,
    EVENTS_BURST = 25,           /* of one object, */
    EVENTS_REFILL_MS = 300000,   /* and one more each five minutes */
    EVENTS_FORGET_MS = 360000,   /* idle so long: the next is a new event */
    EVENTS_REFRESH_MS = 1800000, /* a running series is written so often */
};

/* What to send for an event. */
enum event_verb { EVENT_DROP, EVENT_CREATE, EVENT_PATCH };

/* instance: this process, e.g. the pod's name; <= 128 bytes */
int events_new(const struct clock *clock, const char *controller, const char *instance,
               struct events **ret, struct err *err) MUST_CHECK;
void events_free(struct events *e);
DEFINE_FREEP(events)

/* The decision alone, for tests: body and the object's name (both replaced). */
enum event_verb events_decide(struct events *e, const struct event *ev, struct str *name,
                              struct str *body);
/* Decide and send; an error is for the log only. */
int events_emit(struct events *e, struct kube_client *c, const struct event *ev,
                struct err *err) MUST_CHECK;
