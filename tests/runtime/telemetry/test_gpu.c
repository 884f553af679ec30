/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/telemetry/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/telemetry/runtime_metrics.h"
#include "tests/runtime/telemetry/fake_nvml.h"
#include "tests/support.h"

enum { INTERVAL_MS = 20, PATIENCE_MS = 10000 };

static struct fake_nvml *knobs;

static void *library; /* held open, so that the knobs stay between two tests */

static int open_fake(void **state)
{
    struct fake_nvml *(*get)(void);
    void *address;

    (void)state;
    library = dlopen(FAKE_NVML, RTLD_NOW);
    assert_non_null(library);
    address = dlsym(library, "fake_nvml");
    assert_non_null(address);
    memcpy(&get, &address, sizeof(get));
    knobs = get();
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    assert_int_equal(knobs->open, 0);
    return dlclose(library);
}

static int start(struct runtime_metrics *m, struct gpu **ret, struct err *err)
{
    struct gpu_options o = {.library = FAKE_NVML, .metrics = m->all, .interval_ms = INTERVAL_MS};

    return gpu_start(&o, ret, err);
}

/* The value of a series, named up to its labels' end; -1: there is none. */
static double value_of(struct runtime_metrics *m, const char *series)
{
    CLEANUP(str_release) struct str out = STR_INIT(1 << 20);
    struct err err;
    const char *at;
    double v;
    char text[40];

    metrics_render(m->all, &out);
    at = strstr(str_text(&out), series);
    if (!at)
        return -1;
    at += strlen(series) + 1;
    (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(at, "\n"), at);
    assert_ok(parse_f64(text, -1e18, 1e18, &v, &err), &err);
    return v;
}

#define SERIES(name, labels) "penstock_gpu_" name "{model_name=\"m\",engine=\"0\"," labels "}"
#define GPU0 "gpu=\"0\",uuid=\"GPU-00000000\""
#define GPU1 "gpu=\"1\",uuid=\"GPU-00000001\""

static void wait_for(struct runtime_metrics *m, const char *series, double want)
{
    double v = value_of(m, series);

    for (int ms = 0; v != want && ms < PATIENCE_MS; ms += 5) {
        (void)usleep(5000);
        v = value_of(m, series);
    }
    if (v != want)
        fail_msg("%s: %g, wanted %g", series, v, want);
}

static void figures_of_each_gpu(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu *g = NULL;
    struct err err;

    (void)state;
    knobs->busy = 90;
    knobs->throttle = 4 | 64;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    assert_int_equal(value_of(m, "penstock_gpu_"), -1);
    assert_ok(start(m, &g, &err), &err);
    wait_for(m, SERIES("utilization_ratio", GPU0), 0.9);
    wait_for(m, SERIES("utilization_ratio", GPU1), 0.45);
    wait_for(m, SERIES("memory_bandwidth_utilization_ratio", GPU0), 0.25);
    wait_for(m, SERIES("memory_used_bytes", GPU1), 20.0 * (1 << 30));
    wait_for(m, SERIES("memory_total_bytes", GPU1), 80.0 * (1 << 30));
    wait_for(m, SERIES("power_watts", GPU0), 312.5);
    wait_for(m, SERIES("temperature_celsius", GPU0), 61);
    wait_for(m, SERIES("clock_hertz", GPU0 ",clock=\"sm\""), 1.98e9);
    wait_for(m, SERIES("clock_hertz", GPU0 ",clock=\"memory\""), 3.201e9);
    wait_for(m, SERIES("ecc_errors_total", GPU1 ",kind=\"corrected\""), 7);
    wait_for(m, SERIES("ecc_errors_total", GPU1 ",kind=\"uncorrected\""), 1);
    wait_for(m, SERIES("throttle_reason", GPU0 ",reason=\"power_cap\""), 1);
    wait_for(m, SERIES("throttle_reason", GPU0 ",reason=\"hardware_thermal\""), 1);
    wait_for(m, SERIES("throttle_reason", GPU0 ",reason=\"idle\""), 0);
    knobs->busy = 10;
    wait_for(m, SERIES("utilization_ratio", GPU0), 0.1);
    gpu_stop(g);
}

static void what_a_gpu_does_not_have_is_absent(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu *g = NULL;
    struct err err;

    (void)state;
    knobs->no_ecc = 1;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    assert_ok(start(m, &g, &err), &err);
    wait_for(m, SERIES("power_watts", GPU0), 312.5);
    assert_int_equal(value_of(m, "penstock_gpu_ecc_errors_total"), -1);
    knobs->no_power = 1;
    wait_for(m, SERIES("power_watts", GPU0), -1);
    knobs->no_power = knobs->no_ecc = 0;
    wait_for(m, SERIES("power_watts", GPU0), 312.5);
    gpu_stop(g);
}

static void xids_are_counted(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu *g = NULL;
    struct err err;
    char text[160];

    (void)state;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    assert_ok(start(m, &g, &err), &err);
    assert_int_equal(value_of(m, SERIES("xid_errors_total", GPU1)), 0);
    assert_int_equal(value_of(m, "penstock_gpu_last_xid"), -1);
    assert_false(gpu_last_error(g, 20, text, sizeof(text)));
    knobs->xid_gpu = 1;
    knobs->xid = 79;
    assert_true(gpu_last_error(g, PATIENCE_MS, text, sizeof(text)));
    assert_string_equal(text, "GPU 1 (GPU-00000001): Xid 79");
    wait_for(m, SERIES("last_xid", GPU1), 79);
    knobs->xid = 48;
    wait_for(m, SERIES("last_xid", GPU1), 48);
    wait_for(m, SERIES("xid_errors_total", GPU1), 2);
    assert_int_equal(value_of(m, SERIES("xid_errors_total", GPU0)), 0);
    assert_int_equal(value_of(m, SERIES("last_xid", GPU0)), -1);
    gpu_stop(g);
}

/* An old figure would be believed: it goes, and comes back with the driver. */
static void a_driver_that_hangs_leaves_no_figures(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu *g = NULL;
    struct err err;

    (void)state;
    knobs->busy = 50;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    assert_ok(start(m, &g, &err), &err);
    wait_for(m, SERIES("utilization_ratio", GPU0), 0.5);
    knobs->hangs = 1;
    wait_for(m, SERIES("utilization_ratio", GPU0), -1);
    assert_int_equal(value_of(m, "penstock_gpu_memory_used_bytes"), -1);
    assert_int_equal(value_of(m, SERIES("xid_errors_total", GPU0)), 0);
    knobs->hangs = 0;
    wait_for(m, SERIES("utilization_ratio", GPU0), 0.5);
    gpu_stop(g);
}

static void a_lost_gpu_does_not_hide_the_others(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu *g = NULL;
    struct err err;

    (void)state;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    knobs->lost = 1;
    assert_ok(start(m, &g, &err), &err);
    wait_for(m, SERIES("temperature_celsius", GPU1), 61);
    assert_int_equal(value_of(m, SERIES("temperature_celsius", GPU0)), -1);
    gpu_stop(g);
    knobs->lost = 3;
    assert_int_equal(start(m, &g, &err), -ERR_UNAVAILABLE);
    knobs->lost = 0;
}

static void without_a_driver_there_is_a_reason(void **state)
{
    CLEANUP(runtime_metrics_freep) struct runtime_metrics *m = NULL;
    struct gpu_options o = {.library = "libno-such-nvml.so.1"};
    struct gpu *g = NULL;
    struct err err;

    (void)state;
    assert_ok(runtime_metrics_new("m", true, &m, &err), &err);
    o.metrics = m->all;
    assert_int_equal(gpu_start(&o, &g, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "libno-such-nvml.so.1"));
    o.library = "libm.so.6";
    assert_int_equal(gpu_start(&o, &g, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "nvmlInit_v2"));
    knobs->init_code = 9;
    assert_int_equal(start(m, &g, &err), -ERR_UNAVAILABLE);
    assert_string_equal(err.msg, "NVML: Driver Not Loaded");
    knobs->init_code = 0;
    for (long n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_int_equal(start(m, &g, &err), -ERR_NO_MEMORY);
        mem_fail_after(-1);
    }
    assert_null(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(figures_of_each_gpu),
            cmocka_unit_test(what_a_gpu_does_not_have_is_absent),
            cmocka_unit_test(xids_are_counted),
            cmocka_unit_test(a_driver_that_hangs_leaves_no_figures),
            cmocka_unit_test(a_lost_gpu_does_not_hide_the_others),
            cmocka_unit_test(without_a_driver_there_is_a_reason),
    };

    return cmocka_run_group_tests(tests, open_fake, close_fake);
}
