/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"

/* Who may speak to the aggregated API: the API server's front proxy, known by its client
 * certificate.  The CA and the names come from the ConfigMap
 * kube-system/extension-apiserver-authentication and rotate with it.  Any thread. */
struct front_proxy;

int front_proxy_new(struct front_proxy **ret, struct err *err) MUST_CHECK;
void front_proxy_free(struct front_proxy *f);
DEFINE_FREEP(front_proxy)

/* Take the ConfigMap as it is now.  ERR_INVALID: what was known before stays in force. */
int front_proxy_update(struct front_proxy *f, const cJSON *config_map, struct err *err) MUST_CHECK;

/* Is this certificate (DER; NULL: none was sent) the front proxy's?  ERR_DENIED says why not.
 * Until a ConfigMap was seen nobody is. */
int front_proxy_check(struct front_proxy *f, const void *der, size_t len,
                      struct err *err) MUST_CHECK;
