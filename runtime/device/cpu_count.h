/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads that can run at once: the processors this process may run on, cut to the CPU quota of
 * its cgroup (version 1 and 2) and of the cgroups above, rounded up; at least 1. */
unsigned cpu_count(void);

/* The quota alone, read below root ("" for the system's own /proc and /sys; tests pass a folder);
 * 0: none. */
unsigned cpu_count_quota(const char *root);
