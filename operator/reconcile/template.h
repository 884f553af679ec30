/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "operator/api/digest.h"
#include "operator/api/inference_service.h"

/* The pod template of a service, and its pin.  Pure. */

/* What a field that the user left out means; the operator's own options and constants. */
struct template_defaults {
    const char *image;
    const char *cuda_image;        /* for device cuda */
    const char *image_pull_policy; /* NULL: Kubernetes' own */
    const char *gpu_runtime_class; /* runtimeClassName of pods with GPUs; NULL: the node's own */
};

/* How long a pod may take to start, in seconds. */
int64_t template_startup_budget(const struct inference_service *s);

/* Digest of all that a template is made of: spec without replicas and scaling, and the annotation
 * that asks for a new one. */
int template_spec_digest(const struct inference_service *s, char ret[DIGEST_BYTES],
                         struct err *err) MUST_CHECK;
/* Render the template, spec.podTemplate merged over it.  The caller owns *ret. */
int template_render(const struct inference_service *s, const struct template_defaults *defaults,
                    const char *spec_digest, cJSON **ret, struct err *err) MUST_CHECK;
