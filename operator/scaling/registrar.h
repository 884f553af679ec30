/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "operator/kube/client.h"
#include "operator/scaling/api_service.h"
#include "operator/scaling/metrics_api.h"

/* One thread that keeps the metrics API's certificate and registration right: the Secret that all
 * replicas share, the server behind it, the APIService in front.  Only the leader writes. */
struct registrar;

enum registrar_state { REGISTRAR_STARTING, REGISTRAR_SERVING, REGISTRAR_TAKEN };

struct registrar_options {
    struct kube_client_options client;
    struct metrics_api_options api;  /* without certificate */
    const char *namespace, *service; /* the Service in front of us; Secret: SERVICE-tls */
    bool (*is_leader)(void *userdata);
    void (*on_change)(void *userdata); /* the state changed; registrar thread */
    void *userdata;
    struct logger *lg;
};

int registrar_start(const struct registrar_options *o, struct registrar **ret,
                    struct err *err) MUST_CHECK;
/* owner: who has the group when it is TAKEN.  Any thread. */
enum registrar_state registrar_state(struct registrar *r, char owner[API_SERVICE_OWNER_BYTES]);
void registrar_stop(struct registrar *r);
