/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/http_client.h"
#include "base/str.h"

/* Who we are to the API server and where it is.  In a pod: the service account's files; elsewhere
 * a kubeconfig.  A token in a file is read again at least every 60 s, since it lives an hour, and
 * at once after a 401.  Any thread. */
struct kube_auth;

enum { KUBE_TOKEN_MAX = 64 << 10 };

/* kubeconfig: a path; NULL or "": the pod's service account. */
int kube_auth_load(const char *kubeconfig, const struct clock *clock, struct kube_auth **ret,
                   struct err *err) MUST_CHECK;
void kube_auth_free(struct kube_auth *a);
DEFINE_FREEP(kube_auth)

const char *kube_auth_server(const struct kube_auth *a);    /* "https://host:port" */
const char *kube_auth_namespace(const struct kube_auth *a); /* "default" if not said */
/* Fills in certificates; the texts live as long as a. */
void kube_auth_fill(const struct kube_auth *a, struct http_client_options *o);
/* The token into out (replaced); empty when there is none. */
int kube_auth_token(struct kube_auth *a, struct str *out, struct err *err) MUST_CHECK;
/* The server said 401: read the token again before it is used again. */
void kube_auth_refused(struct kube_auth *a);
/* Changes when a certificate's file changed: clients must be made anew. */
uint64_t kube_auth_version(struct kube_auth *a);
