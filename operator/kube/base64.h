/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Standard alphabet with padding, as Secrets, kubeconfig and caBundle have it; white space in the
 * input is skipped. */
int base64_decode(const char *text, struct str *out, struct err *err) MUST_CHECK;
void base64_encode(const void *data, size_t len, struct str *out);
