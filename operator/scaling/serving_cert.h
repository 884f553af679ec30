/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* The certificate of the aggregated API: a CA of our own and a leaf for the Service's name, as
 * PEM text.  Both live in a Secret that all replicas share. */
struct serving_cert {
    char *ca_cert, *ca_key, *cert, *key; /* owned; all set or none */
};

/* A leaf for dns_name signed by the CA in c, which is made when there is none or it runs out. */
int serving_cert_issue(struct serving_cert *c, const char *dns_name, struct err *err) MUST_CHECK;
/* Is the leaf good for dns_name, signed by the CA, and valid for at least another reserve_s
 * seconds? */
bool serving_cert_is_good(const struct serving_cert *c, const char *dns_name, int64_t reserve_s);
void serving_cert_release(struct serving_cert *c);
