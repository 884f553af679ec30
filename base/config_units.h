/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct str;

/* Sizes and durations as people write them, and back.
 * Bytes: 1048576, 512KiB, 1.5GiB, 2G (powers of 1024 with or without "iB"; "MB" counts 1000s).
 * Time: 300ms, 10s, 2.5m, 1h; a bare number is seconds.  "0" needs no unit. */
int config_parse_bytes(const char *text, int64_t *ret, struct err *err) MUST_CHECK;
int config_parse_ms(const char *text, int64_t *ret, struct err *err) MUST_CHECK;
void config_add_bytes(struct str *out, int64_t bytes);
void config_add_ms(struct str *out, int64_t ms);
