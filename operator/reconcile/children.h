/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "operator/api/inference_service.h"

/* The wanted children of a service, as bodies for server-side apply: only what we own, no
 * resourceVersion.  Pure.  The caller owns *ret. */

enum child { CHILD_REVISION, CHILD_DEPLOYMENT, CHILD_SERVICE, CHILD_SCALER, CHILD_COUNT };

/* "Deployment" */
const char *child_kind(enum child c);

/* name of the revision that pins the template of this spec */
int child_revision_name(const struct inference_service *s, const char *spec_digest, char *out,
                        size_t size, struct err *err) MUST_CHECK;
int child_revision(const struct inference_service *s, const char *spec_digest, int64_t revision,
                   const cJSON *template, cJSON **ret, struct err *err) MUST_CHECK;
int child_deployment(const struct inference_service *s, const cJSON *template, cJSON **ret,
                     struct err *err) MUST_CHECK;
int child_service(const struct inference_service *s, cJSON **ret, struct err *err) MUST_CHECK;
/* hold_down: no scale down now (selectPolicy Disabled) */
int child_scaler(const struct inference_service *s, bool hold_down, cJSON **ret,
                 struct err *err) MUST_CHECK;
