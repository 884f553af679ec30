/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support.h"

static char root[64];

static void put(const char *path, const char *text)
{
    char whole[512], *slash;
    struct err err;

    (void)snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0755);
        *slash = '/';
    }
    assert_ok(file_write_atomic(whole, text, strlen(text), 0644, &err), &err);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/penstock-limit-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

static int teardown(void **state)
{
    static const char *const files[] = {
            "/proc/self/cgroup",
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes",
            "/proc/self",
            "/proc",
            "/sys/fs/cgroup/memory/pod",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/a/b",
            "/sys/fs/cgroup/a",
            "/sys/fs/cgroup",
            "/sys/fs",
            "/sys",
            "",
    };
    char path[512];

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", root, files[i]);
        (void)remove(path);
    }
    return 0;
}

static uint64_t machine(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void without_groups_it_is_the_machine(void **state)
{
    (void)state;
    assert_true(memory_limit_below(root) == machine());
}

static void version_2_takes_the_smallest_above(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "104857600\n");
    assert_true(memory_limit_below(root) == 104857600);
    put("/sys/fs/cgroup/a/b/memory.max", "52428800\n");
    assert_true(memory_limit_below(root) == 52428800);
}

static void in_a_container_the_mount_is_the_group(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/not/mounted/here\n");
    put("/sys/fs/cgroup/memory.max", "33554432\n");
    assert_true(memory_limit_below(root) == 33554432);
}

static void version_1_is_read_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/pod\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "268435456\n");
    assert_true(memory_limit_below(root) == 268435456);
}

static void nonsense_is_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "garbage\n\n::\n0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "-5 apples\n");
    assert_true(memory_limit_below(root) == machine());
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            T(without_groups_it_is_the_machine),
            T(version_2_takes_the_smallest_above),
            T(in_a_container_the_mount_is_the_group),
            T(version_1_is_read_too),
            T(nonsense_is_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
