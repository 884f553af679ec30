/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* Whose custom.metrics.k8s.io is.  The group is one of the cluster's singletons, across its
 * versions: beside a stranger's v1beta1 our v1beta2 would take over every autoscaler.  Pure. */

#define API_SERVICE_GROUP "custom.metrics.k8s.io"
#define API_SERVICE_VERSION "v1beta2"
#define API_SERVICE_NAME API_SERVICE_VERSION "." API_SERVICE_GROUP

enum api_service_state {
    API_SERVICE_FREE,  /* nobody has it: register */
    API_SERVICE_OURS,  /* as it should be */
    API_SERVICE_DRIFT, /* ours, but not as it should be: apply again */
    API_SERVICE_TAKEN, /* somebody else serves a version of the group */
};

struct api_service_want {
    const char *namespace, *service; /* our Service */
    const char *ca_bundle;           /* base64 */
    const char *owner_uid; /* of the ClusterRole called as the Service; "" if there is none */
};

enum { API_SERVICE_OWNER_BYTES = 256 };

/* list: an APIServiceList.  owner says who has it when it is taken; *ret_ours_too: one of ours
 * stands beside it and must go. */
enum api_service_state api_service_judge(const cJSON *list, const struct api_service_want *want,
                                         char owner[API_SERVICE_OWNER_BYTES], bool *ret_ours_too);
/* The body to apply. */
void api_service_write(const struct api_service_want *want, struct str *out);
