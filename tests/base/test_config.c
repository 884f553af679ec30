/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support.h"

struct target {
    char *name, *kind, *config;
    bool on;
    int64_t count, size, wait_ms;
    double rate;
    struct option_list items;
};

#define AT(f) .offset = offsetof(struct target, f)
static const struct option table[] = {
        {"name", OPTION_STR, AT(name), "anna", 0, 0, NULL, "A", "NAME", "Name.", {"n"}, false},
        {"kind",
         OPTION_CHOICE,
         AT(kind),
         "auto",
         0,
         0,
         "auto cpu",
         "A",
         "K",
         "Kind.",
         {NULL},
         false},
        {"on", OPTION_BOOL, AT(on), "false", 0, 0, NULL, "A", NULL, "On.", {NULL}, false},
        {"max-num-seqs",
         OPTION_I64,
         AT(count),
         "4",
         1,
         64,
         NULL,
         "B",
         "N",
         "Count.",
         {"max-batch-size"},
         false},
        {"size",
         OPTION_BYTES,
         AT(size),
         "1MiB",
         0,
         1e12,
         NULL,
         "B",
         "SIZE",
         "Size.",
         {NULL},
         false},
        {"wait", OPTION_MS, AT(wait_ms), "10s", 0, 1e9, NULL, "B", "TIME", "Wait.", {NULL}, false},
        {"rate", OPTION_F64, AT(rate), "0.5", 0, 1, NULL, "B", "R", "Rate.", {NULL}, false},
        {"item", OPTION_LIST, AT(items), NULL, 0, 0, NULL, "B", "X", "Items.", {NULL}, true},
        {"config", OPTION_STR, AT(config), NULL, 0, 0, NULL, "B", "PATH", "File.", {NULL}, false},
};
enum { N = sizeof(table) / sizeof(table[0]) };

/* args and env are space separated words */
static int load(const char *args, const char *env, struct target *t, struct err *err)
{
    static char words[2][1024];
    char *argv[32], *vars[32], *save;
    struct config_source src = {.argv = argv, .environ_vars = vars, .config_flag = "config"};
    size_t n = 0;

    memset(t, 0, sizeof(*t));
    (void)snprintf(words[0], sizeof(words[0]), "%s", args);
    (void)snprintf(words[1], sizeof(words[1]), "%s", env);
    for (char *w = strtok_r(words[0], " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[src.argc++] = w;
    for (char *w = strtok_r(words[1], " ", &save); w; w = strtok_r(NULL, " ", &save))
        vars[n++] = w;
    vars[n] = NULL;
    return config_load(table, N, &src, t, err);
}

static void later_sources_win(void **state)
{
    char path[] = "/tmp/penstock-config-XXXXXX";
    static const char text[] = "max-num-seqs: 8\nname: file\nwait: 3m\nitem: [x, y]\n";
    char args[128];
    struct target t;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    (void)close(fd);
    (void)snprintf(args, sizeof(args), "--config %s --name flag --size=2GiB --on", path);
    assert_ok(load(args,
                   "PENSTOCK_NAME=env PENSTOCK_RATE=0.25 PENSTOCK_CACHE=/x HOME=/ "
                   "PENSTOCK_OPERATOR_SERVICE_HOST=1 PENSTOCK_OPERATOR_PORT_443_TCP=2",
                   &t, &err),
              &err);
    assert_string_equal(t.name, "flag");
    assert_string_equal(t.kind, "auto");
    assert_int_equal(t.count, 8);
    assert_int_equal(t.size, 2147483648);
    assert_int_equal(t.wait_ms, 180000);
    assert_true(t.on);
    assert_true(t.rate == 0.25);
    assert_int_equal(t.items.n, 2);
    assert_string_equal(t.items.items[1], "y");
    config_release(table, N, &t);
    (void)unlink(path);
}

static void aliases_and_negations_work(void **state)
{
    struct target t;
    struct err err;

    (void)state;
    assert_ok(load("--max-batch-size 9 --n x --on --no-on --item a --item b", "PENSTOCK_ITEM=c", &t,
                   &err),
              &err);
    assert_int_equal(t.count, 9);
    assert_string_equal(t.name, "x");
    assert_false(t.on);
    assert_int_equal(t.items.n, 2); /* flags replace the environment's list */
    assert_string_equal(t.items.items[0], "a");
    config_release(table, N, &t);
}

static void mistakes_are_named_with_a_remedy(void **state)
{
    static const struct {
        const char *args, *env, *want;
    } cases[] = {
            {"--max-num-seq 3", "", "unknown option '--max-num-seq'; did you mean 'max-num-seqs'?"},
            {"--frobnicate", "", "unknown option '--frobnicate'; see --help"},
            {"", "PENSTOCK_MAX_NUM_SEQ=3",
             "unknown environment variable 'PENSTOCK_MAX_NUM_SEQ'; did you mean 'max-num-seqs'?"},
            {"--max-num-seqs 65", "", "--max-num-seqs: 65 is not in 1..64"},
            {"--max-num-seqs x", "", "--max-num-seqs: 'x' is not a whole number"},
            {"--kind gpu", "", "--kind: 'gpu' is not one of: auto cpu"},
            {"--wait 3x", "", "--wait: '3x' is not understood; write it like 300ms, 10s or 5m"},
            {"--size", "", "--size needs a value"},
            {"stray", "", "unexpected argument 'stray'; options start with --"},
            {"--on=perhaps", "", "--on: 'perhaps' is not true or false"},
            {"--rate 2", "", "--rate: 2 is not in 0..1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target t;
        struct err err = {0};

        assert_int_equal(load(cases[i].args, cases[i].env, &t, &err), -ERR_INVALID);
        assert_string_equal(err.msg, cases[i].want);
        config_release(table, N, &t);
    }
}

static void a_bad_file_is_named(void **state)
{
    char path[] = "/tmp/penstock-config-XXXXXX", args[64];
    static const char text[] = "nme: x\n";
    struct target t;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    (void)close(fd);
    (void)snprintf(args, sizeof(args), "--config %s", path);
    assert_int_equal(load(args, "", &t, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, "unknown key 'nme'; did you mean 'name'?"));
    config_release(table, N, &t);
    (void)unlink(path);
    assert_int_equal(load(args, "", &t, &err), -ERR_NOT_FOUND);
    config_release(table, N, &t);
}

static void printed_configuration_reads_back(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(10000);
    char path[] = "/tmp/penstock-config-XXXXXX", args[64];
    struct target t, back;
    struct err err;
    int fd = mkstemp(path);

    (void)state;
    assert_ok(
            load("--name a:b#c --wait 1500ms --size 3MiB --rate 0.125 --item secret", "", &t, &err),
            &err);
    config_print(table, N, &t, &out);
    assert_null(strstr(str_text(&out), "secret"));
    assert_int_equal(write(fd, out.data, out.len), out.len);
    (void)close(fd);
    (void)snprintf(args, sizeof(args), "--config %s", path);
    assert_ok(load(args, "", &back, &err), &err);
    assert_string_equal(back.name, "a:b#c");
    assert_int_equal(back.wait_ms, 1500);
    assert_int_equal(back.size, 3 << 20);
    assert_true(back.rate == 0.125);
    assert_int_equal(back.items.n, 0); /* a secret is asked for again, not made up */
    config_release(table, N, &t);
    config_release(table, N, &back);
    (void)unlink(path);
}

static int load_and_release(void)
{
    struct target t;
    struct err err;
    int r = load("--name x --item a --item b", "PENSTOCK_KIND=cpu", &t, &err);

    config_release(table, N, &t);
    return r;
}

static void loading_survives_every_oom(void **state)
{
    (void)state;
    mem_sweep(load_and_release());
}

static void help_shows_every_option(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(20000);

    (void)state;
    config_help(table, N, "usage: x\n", &out);
    for (size_t i = 0; i < N; i++) {
        char flag[64];

        (void)snprintf(flag, sizeof(flag), "--%s", table[i].name);
        assert_non_null(strstr(str_text(&out), flag));
        assert_non_null(strstr(str_text(&out), table[i].help));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(later_sources_win),
            cmocka_unit_test(aliases_and_negations_work),
            cmocka_unit_test(mistakes_are_named_with_a_remedy),
            cmocka_unit_test(a_bad_file_is_named),
            cmocka_unit_test(printed_configuration_reads_back),
            cmocka_unit_test(loading_survives_every_oom),
            cmocka_unit_test(help_shows_every_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
