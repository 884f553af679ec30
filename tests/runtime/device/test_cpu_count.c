/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "runtime/device/cpu_count.h"

static char root[] = "/tmp/test_cpu_count_XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Write a file below the root, making its folders. */
static void put(const char *path, const char *text)
{
    CLEANUP(str_release) struct str whole = STR_INIT(4096);
    struct err err;

    str_addf(&whole, "%s%s", root, path);
    for (size_t i = strlen(root) + 1; i < whole.len; i++)
        if (whole.data[i] == '/') {
            whole.data[i] = '\0';
            (void)mkdir(whole.data, 0755);
            whole.data[i] = '/';
        }
    assert_ok(file_write_atomic(whole.data, text, strlen(text), 0644, &err), &err);
}

static void no_files_no_quota(void **state)
{
    (void)state;
    assert_int_equal(cpu_count_quota("/nonexistent"), 0);
    put("/proc/self/cgroup", "rubbish\n1:a\n");
    assert_int_equal(cpu_count_quota(root), 0);
}

static void version_2(void **state)
{
    static const struct {
        const char *pod;
        const char *parent;
        unsigned want;
    } table[] = {
            {"max 100000\n", "max 100000\n", 0},
            {"200000 100000\n", "max 100000\n", 2},
            {"150000 100000\n", "max 100000\n", 2},
            {"10000 100000\n", "max 100000\n", 1},
            {"max 100000\n", "300000 100000\n", 3},
            {"400000 100000\n", "300000 100000\n", 3},
            {"100000", "max 100000\n", 0},
            {"0 100000\n", "max 100000\n", 0},
            {"5 0\n", "x y\n", 0},
    };

    (void)state;
    put("/proc/self/cgroup", "0::/kubepods/pod1\n");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        put("/sys/fs/cgroup/kubepods/pod1/cpu.max", table[i].pod);
        put("/sys/fs/cgroup/kubepods/cpu.max", table[i].parent);
        assert_int_equal(cpu_count_quota(root), table[i].want);
    }
    put("/proc/self/cgroup", "0::/\n"); /* a cgroup namespace: the mount's root is the group */
    put("/sys/fs/cgroup/cpu.max", "500000 100000\n");
    assert_int_equal(cpu_count_quota(root), 5);
    put("/proc/self/cgroup", "0::/elsewhere/pod9\n"); /* a path of the host's */
    assert_int_equal(cpu_count_quota(root), 5);
}

static void version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/pod1\n3:cpu,cpuacct:/docker/abc\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_count_quota(root), 3);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cpu_count_quota(root), 0);
    put("/proc/self/cgroup", "4:cpuset:/pod1\n");
    assert_int_equal(cpu_count_quota(root), 0);
}

static void here_there_is_at_least_one(void **state)
{
    (void)state;
    assert_true(cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(no_files_no_quota),
            cmocka_unit_test(version_2),
            cmocka_unit_test(version_1),
            cmocka_unit_test(here_there_is_at_least_one),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
