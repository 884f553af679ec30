/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* One figure out of a Prometheus text exposition: the sum over all series of 'name' (labels do not
 * matter).  false: the name is not there, or one of its values is no finite number >= 0. */
bool exposition_sum(const char *text, size_t len, const char *name, double *ret);
