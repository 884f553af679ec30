/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/memory_limit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* A number in a file, or 'max' when there is none ("max" of cgroup v2, a missing file). */
static uint64_t read_number(const char *root, const char *path, uint64_t max)
{
    CLEANUP(str_release) struct str text = STR_INIT(256);
    char whole[512];
    struct err ignored;
    uint64_t v;

    (void)snprintf(whole, sizeof(whole), "%s%s", root, path);
    if (file_read(whole, &text, &ignored) != 0 || text.len == 0)
        return max;
    text.data[strcspn(text.data, "\n")] = '\0';
    return parse_u64(text.data, 1, UINT64_MAX, &v, &ignored) == 0 ? v : max;
}

/* The path of our group in a line "N:memory:/path" (v1) or "0::/path" (v2) of /proc/self/cgroup. */
static void own_group(const char *root, const char *controller, char *out, size_t size)
{
    CLEANUP(str_release) struct str text = STR_INIT(1u << 16);
    char whole[512], *save = NULL;
    struct err ignored;

    out[0] = '\0';
    (void)snprintf(whole, sizeof(whole), "%s/proc/self/cgroup", root);
    if (file_read(whole, &text, &ignored) != 0 || text.len == 0)
        return;
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

        if (!path)
            continue;
        *path++ = '\0';
        if (strcmp(names + 1, controller) == 0)
            (void)snprintf(out, size, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
}

/* The smallest limit of the group and those above it.  Inside a container the group's own path is
 * often not mounted; the mount's top then is the group. */
static uint64_t group_limit(const char *root, const char *mount, const char *controller,
                            const char *file, uint64_t limit)
{
    char group[256], path[768];

    own_group(root, controller, group, sizeof(group));
    for (;;) {
        uint64_t v;

        (void)snprintf(path, sizeof(path), "%s%s/%s", mount, group, file);
        v = read_number(root, path, limit);
        limit = v < limit ? v : limit;
        if (group[0] == '\0')
            return limit;
        *strrchr(group, '/') = '\0';
    }
}

uint64_t memory_limit_below(const char *root)
{
    uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    limit = group_limit(root, "/sys/fs/cgroup", "", "memory.max", limit);
    return group_limit(root, "/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", limit);
}

uint64_t memory_limit_bytes(void)
{
    return memory_limit_below("");
}
