/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Memory this process may use: the machine's, cut to its cgroup's limit (version 1 and 2). */
uint64_t memory_limit_bytes(void);
/* The same read below root ("" for the system's own /proc and /sys; tests pass a folder). */
uint64_t memory_limit_below(const char *root);
