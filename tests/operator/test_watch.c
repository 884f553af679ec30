/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch as a script: what it wants, what it is told, what it hands on.  No sleeps, no sockets.
 */
#include "operator/kube/watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support.h"

enum { LOG_BYTES = 4096 };

struct fixture {
    struct clock_fake clock;
    struct watch *w;
    struct str path;
    char log[LOG_BYTES]; /* what the callbacks said, in order */
};

static void note(struct fixture *f, const char *what, const char *detail)
{
    size_t len = strlen(f->log);

    (void)snprintf(f->log + len, sizeof(f->log) - len, "%s%s%s ", what, *detail ? ":" : "", detail);
}

static void on_list_begin(void *userdata)
{
    note(userdata, "begin", "");
}

static void on_object(void *userdata, enum watch_event e, cJSON *obj)
{
    static const char *const names[] = {"+", "~", "-"};

    note(userdata, names[e], json_path_str(obj, "metadata.name", "?"));
    cJSON_Delete(obj);
}

static void on_list_end(void *userdata)
{
    note(userdata, "end", "");
}

static void on_version(void *userdata, const char *version)
{
    note(userdata, "v", version);
}

static void on_trouble(void *userdata, const struct err *err, uint64_t wait_ms)
{
    (void)err;
    note(userdata, wait_ms ? "wait" : "at-once", "");
}

static int set_up(void **state)
{
    struct fixture *f = mem_calloc(1, sizeof(*f));
    struct watch_options o = {.resource = &KUBE_DEPLOYMENT,
                              .label_selector = "a=b",
                              .clock = &f->clock.clock,
                              .seed = 7,
                              .on_list_begin = on_list_begin,
                              .on_object = on_object,
                              .on_list_end = on_list_end,
                              .on_version = on_version,
                              .on_trouble = on_trouble,
                              .userdata = f};
    struct err err = {0};

    f->path.max = 4096;
    clock_fake_init(&f->clock, 0);
    *state = f;
    return watch_new(&o, &f->w, &err);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    watch_free(f->w);
    str_release(&f->path);
    mem_free(f);
    return 0;
}

static void expect_log(struct fixture *f, const char *want)
{
    assert_string_equal(f->log, want);
    f->log[0] = '\0';
}

static void expect_want(struct fixture *f, enum watch_want want)
{
    uint64_t wait_ms = 0;
    enum watch_want got = watch_next(f->w, &f->path, &wait_ms);

    assert_int_equal(got, want);
    if (got == WATCH_WAIT)
        assert_in_range(wait_ms, 1, 61000);
}

/* Wait out the back-off, which must not be longer than max_ms. */
static void sleep_out(struct fixture *f, uint64_t min_ms, uint64_t max_ms)
{
    uint64_t wait_ms = 0;

    assert_int_equal(watch_next(f->w, &f->path, &wait_ms), WATCH_WAIT);
    assert_in_range(wait_ms, min_ms, max_ms);
    clock_fake_advance_ms(&f->clock, wait_ms);
}

static void answer(struct fixture *f, int status, const char *body)
{
    struct err err = {0};
    char *copy = mem_strdup(body);

    watch_end(f->w, 0, status, copy, strlen(copy), -1, &err);
    mem_free(copy);
}

static void break_off(struct fixture *f)
{
    struct err err = {0};

    watch_end(f->w, err_set(&err, ERR_UNAVAILABLE, "reset"), 0, NULL, 0, -1, &err);
}

static int data(struct fixture *f, const char *text)
{
    return watch_data(f->w, text, strlen(text));
}

/* To a stream from version 100. */
static void start_stream(struct fixture *f)
{
    expect_want(f, WATCH_LIST);
    answer(f, 200, "{\"metadata\":{\"resourceVersion\":\"100\"},\"items\":[]}");
    expect_want(f, WATCH_STREAM);
    f->log[0] = '\0';
}

#define EVENT(type, name, rv)                                           \
    "{\"type\":\"" type "\",\"object\":{\"metadata\":{\"name\":\"" name \
    "\",\"resourceVersion\":\"" rv "\"}}}\n"

static void lists_in_pages_then_streams(void **state)
{
    struct fixture *f = *state;

    expect_want(f, WATCH_LIST);
    assert_string_equal(str_text(&f->path),
                        "/apis/apps/v1/deployments?labelSelector=a%3Db&limit=500");
    answer(f, 200,
           "{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"to/k\"},"
           "\"items\":[{\"metadata\":{\"name\":\"a\"}}]}");
    expect_want(f, WATCH_LIST);
    assert_non_null(strstr(str_text(&f->path), "&continue=to%2Fk"));
    answer(f, 200,
           "{\"metadata\":{\"resourceVersion\":\"10\"},"
           "\"items\":[{\"metadata\":{\"name\":\"b\"}}]}");
    expect_log(f, "begin +:a +:b end v:10 ");
    expect_want(f, WATCH_STREAM);
    assert_non_null(strstr(str_text(&f->path), "resourceVersion=10"));
    assert_non_null(strstr(str_text(&f->path), "allowWatchBookmarks=true"));
}

static void events_in_any_cut(void **state)
{
    const char *text = EVENT("ADDED", "a", "101") EVENT("MODIFIED", "a", "102")
            EVENT("DELETED", "a", "103") EVENT("BOOKMARK", "", "110");
    struct fixture *f = *state;

    start_stream(f);
    for (const char *p = text; *p; p++)
        assert_int_equal(watch_data(f->w, p, 1), 0);
    expect_log(f, "+:a v:101 ~:a v:102 -:a v:103 v:110 ");
    answer(f, 200, "");
    expect_want(f, WATCH_STREAM); /* a clean end: on from the bookmark, without a list */
    assert_non_null(strstr(str_text(&f->path), "resourceVersion=110"));
}

static void gone_means_list_again(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    answer(f, 410, "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}");
    expect_log(f, "at-once ");
    expect_want(f, WATCH_LIST);
    assert_null(strstr(str_text(&f->path), "resourceVersion"));
    answer(f, 200, "{\"metadata\":{\"resourceVersion\":\"200\"},\"items\":[]}");

    expect_want(f, WATCH_STREAM);
    assert_int_not_equal(data(f, "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,"
                                 "\"reason\":\"Gone\",\"message\":\"too old\"}}\n"),
                         0);
    answer(f, 200, "");
    expect_want(f, WATCH_LIST);
}

static void another_error_event_resumes(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    assert_int_equal(data(f, EVENT("ADDED", "a", "101")), 0);
    assert_int_not_equal(
            data(f, "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"reason\":\"X\"}}\n"), 0);
    answer(f, 200, "");
    sleep_out(f, 300, 1300);
    expect_want(f, WATCH_STREAM);
    assert_non_null(strstr(str_text(&f->path), "resourceVersion=101"));
}

static void a_line_that_cannot_be_read_means_list_again(void **state)
{
    static const char *const lines[] = {
            "{\"type\":\"ADDED\",\"obj\n",
            "not json\n",
            "{\"type\":\"ADDED\"}\n",
            "{\"type\":\"STRANGE\",\"object\":{}}\n",
            "[]\n",
    };
    struct fixture *f = *state;

    start_stream(f);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_not_equal(data(f, lines[i]), 0);
        assert_int_not_equal(data(f, EVENT("ADDED", "late", "1")), 0); /* what follows is dropped */
        answer(f, 200, "");
        expect_log(f, "wait ");
        sleep_out(f, 300, 61000);
        expect_want(f, WATCH_LIST);
        answer(f, 200, "{\"metadata\":{\"resourceVersion\":\"100\"},\"items\":[]}");
        expect_want(f, WATCH_STREAM);
        f->log[0] = '\0';
    }
}

/* The connection broke inside a line: what was whole counts, the rest comes again. */
static void a_torn_end_resumes(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    assert_int_equal(data(f, EVENT("ADDED", "a", "101") "{\"type\":\"MODI"), 0);
    break_off(f);
    expect_log(f, "+:a v:101 wait ");
    sleep_out(f, 300, 1300);
    expect_want(f, WATCH_STREAM);
    assert_non_null(strstr(str_text(&f->path), "resourceVersion=101"));
    assert_int_equal(data(f, EVENT("MODIFIED", "a", "102")), 0);
    expect_log(f, "~:a v:102 ");
}

static void half_a_list_concludes_nothing(void **state)
{
    struct fixture *f = *state;

    expect_want(f, WATCH_LIST);
    answer(f, 200, "{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"t\"},\"items\":[]}");
    expect_want(f, WATCH_LIST);
    answer(f, 410, "{\"kind\":\"Status\",\"code\":410}"); /* the token ran out */
    expect_want(f, WATCH_LIST);
    assert_null(strstr(str_text(&f->path), "continue"));
    answer(f, 200, "{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"t\"},\"items\":[]}");
    expect_want(f, WATCH_LIST);
    break_off(f);
    sleep_out(f, 300, 1300);
    expect_want(f, WATCH_LIST);
    assert_null(strstr(str_text(&f->path), "continue"));
    expect_log(f, "begin begin wait begin ");
}

static void an_answer_that_is_no_list_is_refused(void **state)
{
    static const char *const bodies[] = {
            "",      "{}", "[]", "{\"metadata\":{\"resourceVersion\":\"1\"}}", "{\"items\":[]}",
            "<html>"};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        expect_want(f, WATCH_LIST);
        answer(f, 200, bodies[i]);
        sleep_out(f, 300, 61000);
    }
    assert_null(strstr(f->log, "end"));
}

static void the_back_off_grows_and_starts_anew(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    for (int i = 0; i < 8; i++) {
        uint64_t base = i < 6 ? (uint64_t)800 << i : 30000;

        if (base > 30000)
            base = 30000;
        break_off(f);
        sleep_out(f, base / 2, base + base / 2);
        expect_want(f, WATCH_STREAM);
    }
    clock_fake_advance_ms(&f->clock, 10000); /* it lived */
    break_off(f);
    sleep_out(f, 400, 1200);
}

static void retry_after_is_obeyed(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};

    expect_want(f, WATCH_LIST);
    watch_end(f->w, 0, 429, NULL, 0, 20000, &err);
    sleep_out(f, 20000, 20000);
}

static void an_empty_200_is_a_failure(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    answer(f, 200, "");
    expect_log(f, "wait ");
    expect_want(f, WATCH_WAIT);
}

static void a_nul_in_a_text_does_not_blind_us(void **state)
{
    struct fixture *f = *state;

    start_stream(f);
    assert_int_equal(data(f, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\","
                             "\"annotations\":{\"x\":\"\\u0000\\\\u0000\"},"
                             "\"resourceVersion\":\"5\"}}}\n"),
                     0);
    expect_log(f, "+:a v:5 ");
}

static void a_line_without_end_is_bounded(void **state)
{
    struct fixture *f = *state;
    size_t n = 1 << 20;
    char *block = mem_calloc(n, 1);
    int r = 0;

    start_stream(f);
    memset(block, ' ', n);
    for (int i = 0; i < 9 && r == 0; i++)
        r = watch_data(f->w, block, n);
    assert_int_not_equal(r, 0);
    answer(f, 200, "");
    sleep_out(f, 300, 1300);
    expect_want(f, WATCH_LIST);
    mem_free(block);
}

#define STEP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
            STEP(lists_in_pages_then_streams),
            STEP(events_in_any_cut),
            STEP(gone_means_list_again),
            STEP(another_error_event_resumes),
            STEP(a_line_that_cannot_be_read_means_list_again),
            STEP(a_torn_end_resumes),
            STEP(half_a_list_concludes_nothing),
            STEP(an_answer_that_is_no_list_is_refused),
            STEP(the_back_off_grows_and_starts_anew),
            STEP(retry_after_is_obeyed),
            STEP(an_empty_200_is_a_failure),
            STEP(a_nul_in_a_text_does_not_blind_us),
            STEP(a_line_without_end_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
