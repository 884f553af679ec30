/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <math.h>
#include <pthread.h>

#include "tests/support.h"

static const double buckets[] = {0.1, 1};
static const struct metric_desc table[] = {
        {.name = "a_total", .type = METRIC_COUNTER, .help = "A.", .labels = {"code"}},
        {.name = "b", .type = METRIC_GAUGE, .help = "B."},
        {.name = "c_seconds",
         .type = METRIC_HISTOGRAM,
         .help = "C.",
         .buckets = buckets,
         .n_buckets = 2},
        {.name = "x:a_total",
         .type = METRIC_COUNTER,
         .help = "Alias.",
         .labels = {"reason"},
         .alias_of = "a_total"},
        {.name = "unused", .type = METRIC_GAUGE, .help = "Never made."},
};

static struct metrics *make(bool aliases)
{
    struct metrics *m;
    struct err err;

    assert_ok(metrics_new(table, 5, aliases, &m, &err), &err);
    return m;
}

static void the_text_format_is_right(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(10000);
    CLEANUP(metrics_freep) struct metrics *m = make(true);
    const char *values[] = {"4\"0\n0\\"};
    struct metric *a, *b, *c;
    struct err err;

    (void)state;
    assert_ok(metrics_const_label(m, "model_name", "m\"1", &err), &err);
    assert_ok(metrics_series(m, "a_total", values, &a, &err), &err);
    assert_ok(metrics_series(m, "b", NULL, &b, &err), &err);
    assert_ok(metrics_series(m, "c_seconds", NULL, &c, &err), &err);
    metric_add(a, 2);
    metric_set(b, 0.5);
    metric_observe(c, 0.1);
    metric_observe(c, 0.5);
    metric_observe(c, 7);
    metrics_render(m, &out);
    assert_string_equal(str_text(&out),
                        "# HELP a_total A.\n# TYPE a_total counter\n"
                        "a_total{model_name=\"m\\\"1\",code=\"4\\\"0\\n0\\\\\"} 2\n"
                        "# HELP b B.\n# TYPE b gauge\nb{model_name=\"m\\\"1\"} 0.5\n"
                        "# HELP c_seconds C.\n# TYPE c_seconds histogram\n"
                        "c_seconds_bucket{model_name=\"m\\\"1\",le=\"0.1\"} 1\n"
                        "c_seconds_bucket{model_name=\"m\\\"1\",le=\"1\"} 2\n"
                        "c_seconds_bucket{model_name=\"m\\\"1\",le=\"+Inf\"} 3\n"
                        "c_seconds_sum{model_name=\"m\\\"1\"} 7.5999999999999996\n"
                        "c_seconds_count{model_name=\"m\\\"1\"} 3\n"
                        "# HELP x:a_total Alias.\n# TYPE x:a_total counter\n"
                        "x:a_total{model_name=\"m\\\"1\",reason=\"4\\\"0\\n0\\\\\"} 2\n");
}

static void a_series_is_made_once(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(10000);
    CLEANUP(metrics_freep) struct metrics *m = make(false);
    const char *one[] = {"1"}, *two[] = {"2"};
    struct metric *a, *again, *other;
    struct err err;

    (void)state;
    assert_ok(metrics_series(m, "a_total", one, &a, &err), &err);
    assert_ok(metrics_series(m, "a_total", one, &again, &err), &err);
    assert_ok(metrics_series(m, "a_total", two, &other, &err), &err);
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, other);
    metrics_drop(m, other);
    metrics_render(m, &out);
    assert_string_equal(str_text(&out),
                        "# HELP a_total A.\n# TYPE a_total counter\na_total{code=\"1\"} 0\n");
}

static void *add_many(void *s)
{
    for (int i = 0; i < 10000; i++)
        metric_add(s, 1);
    return NULL;
}

static void updates_from_threads_add_up(void **state)
{
    CLEANUP(metrics_freep) struct metrics *m = make(false);
    struct metric *b;
    pthread_t t[4];
    struct err err;

    (void)state;
    assert_ok(metrics_series(m, "b", NULL, &b, &err), &err);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, add_many, b), 0);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(t[i], NULL);
    assert_true(metric_get(b) == 40000);
}

static void numbers_that_are_none_are_written(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(10000);
    CLEANUP(metrics_freep) struct metrics *m = make(false);
    struct metric *b;
    struct err err;

    (void)state;
    assert_ok(metrics_series(m, "b", NULL, &b, &err), &err);
    metric_set(b, INFINITY);
    metrics_render(m, &out);
    metric_set(b, NAN);
    metrics_render(m, &out);
    assert_non_null(strstr(str_text(&out), "\nb +Inf\n"));
    assert_non_null(strstr(str_text(&out), "\nb NaN\n"));
}

static int make_all(void)
{
    CLEANUP(metrics_freep) struct metrics *m = NULL;
    const char *one[] = {"1"};
    struct metric *s;
    struct err err;
    int r = metrics_new(table, 5, true, &m, &err);

    if (r == 0)
        r = metrics_const_label(m, "k", "v", &err);
    if (r == 0)
        r = metrics_series(m, "a_total", one, &s, &err);
    return r ? r : metrics_series(m, "c_seconds", NULL, &s, &err);
}

static void making_survives_every_oom(void **state)
{
    (void)state;
    mem_sweep(make_all());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(the_text_format_is_right),
            cmocka_unit_test(a_series_is_made_once),
            cmocka_unit_test(updates_from_threads_add_up),
            cmocka_unit_test(numbers_that_are_none_are_written),
            cmocka_unit_test(making_survives_every_oom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
