/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/log.h"
#include "operator/api/kinds.h"
#include "operator/kube/loop.h"
#include "operator/scaling/front_proxy.h"
#include "operator/store/store.h"

/* From watch to store to queue: what the loop thread does with what it sees. */
struct watches;

struct watches_options {
    struct kube_loop *loop;
    struct store *store;
    struct front_proxy *front_proxy;
    const struct clock *clock;
    uint64_t seed;
    struct logger *lg;
    /* A service needs a look; key "namespace/name". */
    void (*on_key)(void *userdata, const char *key);
    void *userdata;
};

/* Adds a watch for each kind to the loop. */
int watches_new(const struct watches_options *o, struct watches **ret, struct err *err) MUST_CHECK;
void watches_free(struct watches *w); /* after the loop */
DEFINE_FREEP(watches)
