/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/telemetry/runtime_metrics.h"

#include "runtime/telemetry/health.h"
#include "tests/support.h"

static void the_table_is_sound(void **state)
{
    size_t n;
    const struct metric_desc *t = runtime_metrics_table(&n);

    (void)state;
    assert_true(n > 40);
    for (size_t i = 0; i < n; i++) {
        size_t found = n;

        assert_true(t[i].help[0]);
        for (size_t k = 0; k < n; k++) {
            assert_true(k == i || strcmp(t[i].name, t[k].name) != 0);
            if (t[i].alias_of && strcmp(t[k].name, t[i].alias_of) == 0)
                found = k;
        }
        if (t[i].alias_of) {
            assert_true(found < n);
            assert_int_equal(t[found].type, t[i].type);
        }
        assert_true((t[i].type == METRIC_HISTOGRAM && !t[i].alias_of) == (t[i].n_buckets > 0));
    }
}

static void queue_series_come_with_the_model(void **state)
{
    CLEANUP(str_release) struct str before = STR_INIT(1 << 20), after = STR_INIT(1 << 20);
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct err err;

    (void)state;
    assert_ok(runtime_metrics_new("chat", true, &m, &err), &err);
    metrics_render(m->all, &before);
    assert_null(strstr(str_text(&before), "penstock_queue_length{"));
    assert_null(strstr(str_text(&before), "vllm:num_requests_waiting{"));
    assert_ok(runtime_metrics_serving(m, 32, 100, &err), &err);
    metric_set(m->queue_length, 3);
    runtime_metrics_answer(m, "/v1/completions", 200);
    runtime_metrics_answer(m, "/evil", 418);
    metrics_render(m->all, &after);
    assert_non_null(strstr(str_text(&after),
                           "penstock_queue_length{model_name=\"chat\",engine=\"0\"} 3\n"));
    assert_non_null(strstr(str_text(&after),
                           "vllm:num_requests_waiting{model_name=\"chat\",engine=\"0\"} 3\n"));
    assert_non_null(strstr(str_text(&after), "endpoint=\"/v1/completions\",code=\"200\"} 1\n"));
    assert_non_null(strstr(str_text(&after), "endpoint=\"other\",code=\"other\"} 1\n"));
    assert_null(strstr(str_text(&after), "evil"));
}

static void aliases_can_be_left_out(void **state)
{
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct err err;

    (void)state;
    assert_ok(runtime_metrics_new("chat", false, &m, &err), &err);
    assert_ok(runtime_metrics_serving(m, 32, 100, &err), &err);
    metrics_render(m->all, &out);
    assert_null(strstr(str_text(&out), "vllm:"));
    assert_null(strstr(str_text(&out), "openllm_"));
}

static int make(void)
{
    struct runtime_metrics *m = NULL;
    struct err err;
    int r = runtime_metrics_new("chat", true, &m, &err);

    if (r == 0)
        r = runtime_metrics_serving(m, 32, 100, &err);
    runtime_metrics_free(m);
    return r;
}

static void making_survives_every_oom(void **state)
{
    (void)state;
    mem_sweep(make());
}

static void health_tells_busy_from_hung(void **state)
{
    struct health h;

    (void)state;
    health_init(&h, 1000);
    assert_true(health_is_alive(&h, 50));
    health_step_begin(&h, 100);
    assert_true(health_is_alive(&h, 1099));
    assert_false(health_is_alive(&h, 1100));
    health_step_end(&h);
    assert_true(health_is_alive(&h, 99999));
    health_set_phase(&h, HEALTH_FAILED);
    assert_false(health_is_alive(&h, 99999));
    assert_string_equal(health_phase_name(HEALTH_DRAINING), "draining");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(the_table_is_sound),
            cmocka_unit_test(queue_series_come_with_the_model),
            cmocka_unit_test(aliases_can_be_left_out),
            cmocka_unit_test(making_survives_every_oom),
            cmocka_unit_test(health_tells_busy_from_hung),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
