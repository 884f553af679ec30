/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "tests/support.h"

static void errors_are_wrapped(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(err_set(&err, ERR_BUSY, "%d blocks", 3), -ERR_BUSY);
    assert_int_equal(err_wrap(&err, "request '%s'", "r1"), -ERR_BUSY);
    assert_string_equal(err.msg, "request 'r1': 3 blocks");
    for (int i = 0; i < 200; i++)
        (void)err_wrap(&err, "deeper");
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    assert_string_equal(err_code_name(ERR_NO_MEMORY), "no_memory");
}

static void an_arena_is_bounded_and_reusable(void **state)
{
    CLEANUP(arena_freep) struct arena *a = NULL;
    struct err err;

    (void)state;
    assert_ok(arena_new(10000, &a, &err), &err);
    for (int round = 0; round < 3; round++) {
        char *p = arena_alloc(a, 100);

        assert_non_null(p);
        for (int i = 0; i < 100; i++)
            assert_int_equal(p[i], 0); /* zeroed, also when used again */
        memset(p, 0xAA, 100);
        assert_string_equal(arena_printf(a, "%s-%d", "x", 5), "x-5");
        assert_string_equal(arena_strndup(a, "hello", 3), "hel");
        assert_null(arena_alloc(a, 10000));
        assert_null(arena_calloc(a, SIZE_MAX / 2, 3));
        assert_non_null(arena_alloc(a, 9000));
        arena_reset(a);
        assert_int_equal(arena_used(a), 0);
    }
}

static void *put_many(void *userdata)
{
    static int item;

    for (int i = 0; i < 1000; i++)
        while (!mailbox_put(userdata, &item))
            (void)usleep(100);
    return NULL;
}

static void a_mailbox_passes_everything_on(void **state)
{
    struct mailbox *m = NULL;
    pthread_t threads[3];
    struct err err;
    int n = 0;

    (void)state;
    assert_ok(mailbox_new(7, &m, &err), &err);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_many, m), 0);
    while (n < 3000) {
        assert_non_null(mailbox_get(m, 5000));
        n++;
    }
    for (int i = 0; i < 3; i++)
        (void)pthread_join(threads[i], NULL);
    assert_null(mailbox_try_get(m));
    assert_null(mailbox_get(m, 1)); /* times out */
    mailbox_wake(m);
    assert_null(mailbox_get(m, -1)); /* woken */
    assert_true(mailbox_put(m, &n));
    mailbox_close(m);
    assert_false(mailbox_put(m, &n));
    assert_ptr_equal(mailbox_get(m, -1), &n);
    assert_null(mailbox_get(m, -1)); /* closed and empty */
    mailbox_free(m);
}

static void a_mailbox_says_when_it_is_full(void **state)
{
    CLEANUP(mailbox_freep) struct mailbox *m = NULL;
    struct err err;
    int item;

    (void)state;
    assert_ok(mailbox_new(2, &m, &err), &err);
    assert_true(mailbox_put(m, &item));
    assert_true(mailbox_put(m, &item));
    assert_false(mailbox_put(m, &item));
    assert_int_equal(mailbox_count(m), 2);
    (void)mailbox_try_get(m);
    (void)mailbox_try_get(m);
}

/* What 'fn' logged, in out. */
static void capture(enum log_format format, void (*fn)(struct logger *lg), char *out, size_t size)
{
    CLEANUP(logger_freep) struct logger *lg = NULL;
    struct err err;
    ssize_t n;
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    assert_ok(logger_new(fds[1], format, LOG_INFO, &lg, &err), &err);
    fn(lg);
    (void)close(fds[1]);
    n = read(fds[0], out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    (void)close(fds[0]);
}

static void log_one(struct logger *lg)
{
    CLEANUP(logger_freep) struct logger *child = NULL;
    struct log_field fields[] = {F_STR("request_id", "a\"b"), {.key = NULL}};
    struct err err;

    assert_ok(logger_child(lg, fields, &child, &err), &err);
    log_debug(child, "not shown");
    log_info(child, "hello", F_U64("n", 7), F_F64("x", 0.5), F_BOOL("ok", true),
             F_STR("evil", "line\nbreak \x1b[31m \xff"), F_I64("neg", -3), F_STR("none", NULL));
}

static void log_lines_are_json(void **state)
{
    CLEANUP(json_freep) cJSON *t = NULL;
    char line[4096];
    struct err err;

    (void)state;
    capture(LOG_JSON, log_one, line, sizeof(line));
    assert_int_equal(strcspn(line, "\n"), strlen(line) - 1); /* one line */
    assert_ok(json_parse(line, strlen(line), &JSON_LIMITS_DEFAULT, &t, &err), &err);
    assert_string_equal(json_str(t, "msg", ""), "hello");
    assert_string_equal(json_str(t, "level", ""), "info");
    assert_string_equal(json_str(t, "request_id", ""), "a\"b");
    assert_string_equal(json_str(t, "evil", ""), "line\nbreak \x1b[31m \xef\xbf\xbd");
    assert_int_equal(json_int(t, "n", 0), 7);
    assert_int_equal(json_int(t, "neg", 0), -3);
    assert_true(json_bool(t, "ok", false));
    assert_true(cJSON_IsNull(json_get(t, "none")));
}

static void text_lines_cannot_be_forged(void **state)
{
    char line[4096];

    (void)state;
    capture(LOG_TEXT, log_one, line, sizeof(line));
    assert_int_equal(strcspn(line, "\n"), strlen(line) - 1);
    assert_null(strchr(line, '\x1b'));
    assert_non_null(strstr(line, "info  hello request_id=\"a\\\"b\" n=7 x=0.5 ok=true"));
}

static void log_long(struct logger *lg)
{
    static char long_text[5000];

    memset(long_text, 'x', sizeof(long_text) - 1);
    log_error(lg, "long", F_STR("a", long_text), F_STR("b", long_text), F_STR("c", long_text),
              F_STR("d", long_text), F_STR("e", long_text));
}

static void a_long_line_loses_whole_fields(void **state)
{
    CLEANUP(json_freep) cJSON *t = NULL;
    static char line[20000];
    struct err err;

    (void)state;
    capture(LOG_JSON, log_long, line, sizeof(line));
    assert_ok(json_parse(line, strlen(line), &JSON_LIMITS_DEFAULT, &t, &err), &err);
    assert_int_equal(strlen(json_str(t, "a", "")), 2048);
    assert_true(json_bool(t, "fields_dropped", false));
}

static void times_are_written_and_read(void **state)
{
    struct clock_fake f;
    char text[CLOCK_TEXT_BYTES];
    uint64_t back;

    (void)state;
    clock_fake_init(&f, 1787392800123);
    clock_rfc3339(clock_wall_ms(&f.clock), text);
    assert_string_equal(text, "2026-08-22T10:00:00Z");
    clock_rfc3339_micro(clock_wall_ms(&f.clock), text);
    assert_string_equal(text, "2026-08-22T10:00:00.123000Z");
    assert_int_equal(clock_parse_rfc3339(text, &back), 0);
    assert_int_equal(back, 1787392800123);
    clock_fake_advance_ms(&f, 1500);
    assert_int_equal(clock_ms(&f.clock), 1500);
    assert_int_equal(clock_wall_ms(&f.clock), 1787392801623);
    assert_int_equal(clock_parse_rfc3339("2026-08-22", &back), -1);
    assert_int_equal(clock_parse_rfc3339("2026-08-22T10:00:00+01:00", &back), -1);
}

static void files_are_read_and_replaced(void **state)
{
    char dir[] = "/tmp/penstock-test-XXXXXX", path[64];
    CLEANUP(str_release) struct str text = STR_INIT(10);
    struct err err;
    uint64_t stamp;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/file", dir);
    assert_int_equal(file_read(path, &text, &err), -ERR_NOT_FOUND);
    assert_int_equal(file_stamp(path), 0);
    assert_ok(file_write_atomic(path, "0123456789", 10, 0600, &err), &err);
    assert_ok(file_read(path, &text, &err), &err);
    assert_string_equal(str_text(&text), "0123456789");
    stamp = file_stamp(path);
    assert_ok(file_write_atomic(path, "0123456789a", 11, 0600, &err), &err);
    assert_true(file_stamp(path) != stamp);
    assert_int_equal(file_read(path, &text, &err), -ERR_INVALID); /* over the bound */
    (void)unlink(path);
    assert_int_equal(rmdir(dir), 0); /* no temporary file was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(errors_are_wrapped),
            cmocka_unit_test(an_arena_is_bounded_and_reusable),
            cmocka_unit_test(a_mailbox_passes_everything_on),
            cmocka_unit_test(a_mailbox_says_when_it_is_full),
            cmocka_unit_test(log_lines_are_json),
            cmocka_unit_test(text_lines_cannot_be_forged),
            cmocka_unit_test(a_long_line_loses_whole_fields),
            cmocka_unit_test(times_are_written_and_read),
            cmocka_unit_test(files_are_read_and_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
