/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* A name for content: equal trees (keys in any order) have equal digests. */
enum { DIGEST_BYTES = 17 }; /* 16 hex digits and NUL: 64 bits of SHA-256 */

/* Compact text with the keys of every object sorted. */
void json_canonical(const cJSON *v, struct str *out);
int digest_json(const cJSON *v, char ret[DIGEST_BYTES], struct err *err) MUST_CHECK;
int digest_bytes(const void *data, size_t len, char ret[DIGEST_BYTES], struct err *err) MUST_CHECK;
