/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* What the API server's answers mean. */

extern const struct json_limits KUBE_LIMITS;

/* Turn an HTTP status that is not 2xx, with its Status body, into an err. */
int kube_answer_error(int status, const char *body, size_t len, struct err *err);
/* Parse a body.  A NUL inside a text (legal in Kubernetes, refused by our reader) becomes U+FFFD,
 * so that one odd annotation cannot blind a watch.  data is changed in place. */
int kube_answer_parse(char *data, size_t len, cJSON **ret, struct err *err) MUST_CHECK;
