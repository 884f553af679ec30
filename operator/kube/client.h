/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "operator/kube/auth.h"
#include "operator/kube/resource.h"

/* Blocking calls to the API server.  One thread a client; each has its own connection. */
struct kube_client;

struct kube_client_options {
    struct kube_auth *auth;
    unsigned timeout_ms;       /* a call; 0: 30 s */
    const atomic_bool *cancel; /* may be NULL; ends a call */
    /* Asked before each write; false: we are no longer the leader (ERR_CANCELED).  NULL: write. */
    bool (*may_write)(void *userdata);
    /* Told of each answer, status 0 when there was none; for metrics.  NULL: nobody. */
    void (*on_answer)(void *userdata, const char *method, int status);
    void *userdata;
};

int kube_client_new(const struct kube_client_options *o, struct kube_client **ret,
                    struct err *err) MUST_CHECK;
void kube_client_free(struct kube_client *c);
DEFINE_FREEP(kube_client)

struct kube_request {
    const char *method; /* NULL: GET */
    const struct kube_resource *resource;
    const char *namespace, *name, *subresource;
    const char *query;        /* encoded, without '?'; NULL */
    const char *content_type; /* of the body */
    const char *body;
};

/* The answer's object into *ret (NULL: not wanted).  Errors are those of kube_answer_error() and
 * http_client_do().  A 401 is tried again once with a token read anew. */
int kube_do(struct kube_client *c, const struct kube_request *q, cJSON **ret,
            struct err *err) MUST_CHECK;
/* What the server asked for with its last 429 or 503; 0: nothing. */
int64_t kube_client_retry_after_ms(const struct kube_client *c);

int kube_get(struct kube_client *c, const struct kube_resource *r, const char *namespace,
             const char *name, cJSON **ret, struct err *err) MUST_CHECK;
/* Server-side apply as FIELD_MANAGER 'manager', forced. */
int kube_apply(struct kube_client *c, const struct kube_resource *r, const char *namespace,
               const char *name, const char *subresource, const char *manager, const char *body,
               cJSON **ret, struct err *err) MUST_CHECK;
int kube_create(struct kube_client *c, const struct kube_resource *r, const char *namespace,
                const char *body, cJSON **ret, struct err *err) MUST_CHECK;
/* Delete the very object uid, in the background; one that is gone already is fine. */
int kube_delete(struct kube_client *c, const struct kube_resource *r, const char *namespace,
                const char *name, const char *uid, struct err *err) MUST_CHECK;
