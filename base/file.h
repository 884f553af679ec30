/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

/* The whole file into out (replaced); ERR_INVALID when longer than out->max. */
int file_read(const char *path, struct str *out, struct err *err) MUST_CHECK;
/* Written beside, flushed, renamed over: readers see the old file or the new one. */
int file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                      struct err *err) MUST_CHECK;
/* Modification stamp that changes with the content or a symlink's target; 0 when absent. */
uint64_t file_stamp(const char *path);
