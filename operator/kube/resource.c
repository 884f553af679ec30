/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/kube/resource.h"

#include <string.h>

const struct kube_resource KUBE_POD = {"", "v1", "pods", "Pod"};
const struct kube_resource KUBE_SERVICE = {"", "v1", "services", "Service"};
const struct kube_resource KUBE_SECRET = {"", "v1", "secrets", "Secret"};
const struct kube_resource KUBE_CONFIG_MAP = {"", "v1", "configmaps", "ConfigMap"};
const struct kube_resource KUBE_DEPLOYMENT = {"apps", "v1", "deployments", "Deployment"};
const struct kube_resource KUBE_CONTROLLER_REVISION = {"apps", "v1", "controllerrevisions",
                                                       "ControllerRevision"};
const struct kube_resource KUBE_AUTOSCALER = {"autoscaling", "v2", "horizontalpodautoscalers",
                                              "HorizontalPodAutoscaler"};
const struct kube_resource KUBE_LEASE = {"coordination.k8s.io", "v1", "leases", "Lease"};
const struct kube_resource KUBE_EVENT = {"events.k8s.io", "v1", "events", "Event"};
const struct kube_resource KUBE_API_SERVICE = {"apiregistration.k8s.io", "v1", "apiservices",
                                               "APIService"};

void kube_encode(const char *text, struct str *out)
{
    static const char plain[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    for (; *text; text++) {
        if (strchr(plain, *text))
            str_addc(out, *text);
        else
            str_addf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

static void segment(const char *text, struct str *out)
{
    if (!text)
        return;
    str_addc(out, '/');
    kube_encode(text, out);
}

void kube_path(const struct kube_resource *r, const char *namespace, const char *name,
               const char *subresource, struct str *out)
{
    str_adds(out, r->group[0] ? "/apis" : "/api");
    if (r->group[0])
        segment(r->group, out);
    segment(r->version, out);
    if (namespace) {
        str_adds(out, "/namespaces");
        segment(namespace, out);
    }
    segment(r->plural, out);
    segment(name, out);
    segment(subresource, out);
}
