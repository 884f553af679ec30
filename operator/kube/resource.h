/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* A kind of API object and where it lives. */
struct kube_resource {
    const char *group; /* "" is the core group */
    const char *version, *plural, *kind;
};

extern const struct kube_resource KUBE_POD, KUBE_SERVICE, KUBE_SECRET, KUBE_CONFIG_MAP,
        KUBE_DEPLOYMENT, KUBE_CONTROLLER_REVISION, KUBE_AUTOSCALER, KUBE_LEASE, KUBE_EVENT,
        KUBE_API_SERVICE;

/* Append "/apis/apps/v1/namespaces/N/deployments/NAME/status".  namespace NULL: all of them, or a
 * kind without; name and subresource may be NULL.  Segments are percent-encoded. */
void kube_path(const struct kube_resource *r, const char *namespace, const char *name,
               const char *subresource, struct str *out);
/* Append text percent-encoded for a path segment or query value. */
void kube_encode(const char *text, struct str *out);
