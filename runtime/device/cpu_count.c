/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_count.c - how many threads make sense in this container.
 *
 * A pod with a limit of 2 CPUs on a node of 64 sees 64 processors; 64 spinning threads would use
 * the quota up in the first milliseconds of each period and then stand still.  So the quota of
 * the cgroup counts: /proc/self/cgroup names the group of each controller, and every ancestor up
 * to the mount may be tighter.  Inside a container with its own cgroup namespace the path reads
 * "/", and in one without it the path does not exist below the mount: then the mount's root is
 * the group.  Files: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max),
 * https://docs.kernel.org/scheduler/sched-bwc.html (cfs_quota_us, cfs_period_us).
 */
#include "runtime/device/cpu_count.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { FILE_MAX = 64 << 10, PATH_BYTES = 4096, CPUS_MAX = 1024 };

/* A file's text without its last newline; false when it cannot be read. */
static bool read_text(const char *path, struct str *out)
{
    struct err err;

    str_clear(out);
    if (file_read(path, out, &err) < 0)
        return false;
    while (out->len > 0 && out->data[out->len - 1] == '\n')
        out->data[--out->len] = '\0';
    return out->len > 0;
}

/* "quota period" in microseconds to whole processors; 0: no limit. */
static unsigned quota_cpus(const char *quota, const char *period)
{
    struct err err;
    uint64_t q;
    uint64_t p;

    if (parse_u64(quota, 1, UINT32_MAX, &q, &err) < 0 ||
        parse_u64(period, 1, UINT32_MAX, &p, &err) < 0)
        return 0; /* "max", "-1" */
    q = (q + p - 1) / p;
    return q < CPUS_MAX ? (unsigned)q : 0;
}

static unsigned tighter(unsigned a, unsigned b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static unsigned folder_quota_v2(const char *folder)
{
    CLEANUP(str_release) struct str path = STR_INIT(PATH_BYTES);
    CLEANUP(str_release) struct str text = STR_INIT(FILE_MAX);
    char *space;

    str_addf(&path, "%s/cpu.max", folder);
    if (!read_text(str_text(&path), &text))
        return 0;
    space = strchr(text.data, ' ');
    if (!space)
        return 0;
    *space = '\0';
    return quota_cpus(text.data, space + 1);
}

static unsigned folder_quota_v1(const char *folder)
{
    CLEANUP(str_release) struct str path = STR_INIT(PATH_BYTES);
    CLEANUP(str_release) struct str quota = STR_INIT(FILE_MAX);
    CLEANUP(str_release) struct str period = STR_INIT(FILE_MAX);

    str_addf(&path, "%s/cpu.cfs_quota_us", folder);
    if (!read_text(str_text(&path), &quota))
        return 0;
    str_clear(&path);
    str_addf(&path, "%s/cpu.cfs_period_us", folder);
    if (!read_text(str_text(&path), &period))
        return 0;
    return quota_cpus(quota.data, period.data);
}

/* The tightest quota of mount + group and of every folder between. */
static unsigned walk(const char *mount, const char *group, unsigned (*quota)(const char *folder))
{
    CLEANUP(str_release) struct str path = STR_INIT(PATH_BYTES);
    size_t mount_len = strlen(mount);
    unsigned n = 0;

    str_addf(&path, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    if (path.failed || !path.data)
        return 0;
    for (;;) {
        char *slash;

        n = tighter(n, quota(path.data));
        slash = strrchr(path.data, '/');
        if (!slash || (size_t)(slash - path.data) < mount_len)
            return n;
        *slash = '\0';
    }
}

/* Does the comma-separated list hold the controller "cpu"? */
static bool has_cpu(const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");

        if (n == 3 && memcmp(list, "cpu", 3) == 0)
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

/* One line "id:controllers:path". */
static unsigned line_quota(const char *root, char *line)
{
    CLEANUP(str_release) struct str mount = STR_INIT(PATH_BYTES);
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    unsigned n;

    if (!group)
        return 0;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0') {
        str_addf(&mount, "%s/sys/fs/cgroup", root);
        return walk(str_text(&mount), group, folder_quota_v2);
    }
    if (!has_cpu(controllers))
        return 0;
    str_addf(&mount, "%s/sys/fs/cgroup/%s", root, controllers);
    n = walk(str_text(&mount), group, folder_quota_v1);
    str_clear(&mount);
    str_addf(&mount, "%s/sys/fs/cgroup/cpu", root);
    return tighter(n, walk(str_text(&mount), group, folder_quota_v1));
}

unsigned cpu_count_quota(const char *root)
{
    CLEANUP(str_release) struct str path = STR_INIT(PATH_BYTES);
    CLEANUP(str_release) struct str text = STR_INIT(FILE_MAX);
    char *save = NULL;
    unsigned n = 0;

    str_addf(&path, "%s/proc/self/cgroup", root);
    if (!read_text(str_text(&path), &text))
        return 0;
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        n = tighter(n, line_quota(root, line));
    return n;
}

unsigned cpu_count(void)
{
    cpu_set_t set;
    unsigned quota = cpu_count_quota("");
    unsigned n = 1;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    if (quota != 0 && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}
