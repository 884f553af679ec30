/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Durations and quantities as the Kubernetes API writes them. */

/* "90s", "5m", "1h30m" to whole seconds; units h, m, s, each at most once and in that order. */
int parse_duration(const char *text, int64_t max_s, int64_t *ret_s, struct err *err) MUST_CHECK;
/* A resource.Quantity: "250m", "2", "1.5Gi", "1e3".  As a number of the base unit. */
int parse_quantity(const char *text, double *ret, struct err *err) MUST_CHECK;
