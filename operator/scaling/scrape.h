/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "operator/scaling/signals.h"
#include "operator/store/store.h"

/* One thread that asks every pod of ours for its progress (/startupz) until it serves, then for
 * its queue (/metrics), all at the same time, each with a time limit. */
struct scraper;

struct scraper_options {
    struct store *store; /* its WATCHED_POD */
    struct signals *signals;
    const struct clock *clock;
    struct logger *lg;
    uint64_t interval_ms; /* between two samples of a pod */
    /* Something a status shows changed; group "namespace/service".  Scraper thread. */
    void (*on_change)(void *userdata, const char *group);
    void *userdata;
};

int scraper_start(const struct scraper_options *o, struct scraper **ret,
                  struct err *err) MUST_CHECK;
/* Every pod that stood when we began was asked once.  Before that a pod is unknown, not silent, and
 * a decision would change what a restart should leave alone. */
bool scraper_is_warm(const struct scraper *s);
void scraper_stop(struct scraper *s);
