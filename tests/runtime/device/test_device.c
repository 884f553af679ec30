/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "runtime/device/device.h"
#include "tests/kernels/kernel_data.h"

static int open_device(const char *name, unsigned n_threads, struct device **ret, struct err *err)
{
    struct device_options o = {.name = name, .n_threads = n_threads};

    return device_new(&o, ret, err);
}

static void names(void **state)
{
    static const struct {
        const char *name;
        const char *is;
    } table[] = {{"ref", "ref"}, {"cpu", "cpu ("}, {"auto", "cpu ("}};
    struct device *none = NULL;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        CLEANUP(device_freep) struct device *d = NULL;

        assert_ok(open_device(table[i].name, 1, &d, &err), &err);
        assert_non_null(strstr(device_name(d), table[i].is));
    }
    assert_int_equal(open_device("gpu", 1, &none, &err), -ERR_INVALID);
}

static void memory_is_zeroed_and_aligned(void **state)
{
    CLEANUP(device_freep) struct device *d = NULL;
    struct err err;
    void *p = NULL;

    (void)state;
    assert_ok(open_device("ref", 1, &d, &err), &err);
    for (size_t size = 1; size < 300; size += 37) {
        assert_ok(device_alloc(d, 3, size, &p, &err), &err);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < 3 * size; i++)
            assert_int_equal(((uint8_t *)p)[i], 0);
        memset(p, 0xff, 3 * size);
    }
    assert_int_equal(device_alloc(d, SIZE_MAX / 2, 3, &p, &err), -ERR_NO_MEMORY);
}

/* More ops than the list holds, each depending on the one before: y = W y, a permutation matrix
 * that moves values one place, applied 1,000 times. */
static void ops_run_in_order(void **state)
{
    enum { N = 48, TIMES = 1000 };
    float w[N * N] = {0};
    struct device_weight_desc desc = {.type = K_F32, .n_in = N, .n_out = N};

    (void)state;
    for (int i = 0; i < N; i++)
        w[i * N + (i + 1) % N] = 1;
    for (int t = 1; t <= 3; t++) {
        CLEANUP(device_freep) struct device *d = NULL;
        const struct device_weight *weight;
        struct k_act act[2];
        struct err err;
        bool aliases;

        assert_ok(open_device(t == 1 ? "ref" : "cpu", (unsigned)t, &d, &err), &err);
        assert_ok(device_weight(d, &desc, w, (struct device_shard){.n_out = N, .n_in = N}, &weight,
                                &aliases, &err),
                  &err);
        assert_int_equal(aliases, t == 1);
        assert_ok(device_act(d, 1, N, &act[0], &err), &err);
        assert_ok(device_act(d, 1, N, &act[1], &err), &err);
        assert_null(act[0].q); /* nothing so far multiplies integers */
        for (int i = 0; i < N; i++)
            act[0].f32[i] = (float)i;
        for (int i = 0; i < TIMES; i++) {
            struct k_matmul a = {.in = act[i % 2],
                                 .n_rows = 1,
                                 .n_mats = 1,
                                 .w = {device_weight_matrix(weight)},
                                 .out = {act[(i + 1) % 2].f32}};

            device_matmul(d, &a);
        }
        assert_ok(device_submit(d, &err), &err);
        for (int i = 0; i < N; i++)
            assert_true(act[0].f32[i] == (float)((i + TIMES) % N));
    }
}

/* A shard is the rows it names. */
static void shards_are_rows(void **state)
{
    struct random r = {1};
    CLEANUP(mem_freep) void *stored = random_matrix(&r, K_Q4_1, 64, 40);
    CLEANUP(mem_freep) float *x = random_floats(&r, 64, -1, 1);
    struct device_weight_desc desc = {.type = K_Q4_1, .n_in = 64, .n_out = 40};
    struct err err;

    (void)state;
    for (int t = 0; t < 2; t++) {
        CLEANUP(device_freep) struct device *d = NULL;
        const struct device_weight *whole;
        const struct device_weight *part;
        struct k_act act;
        bool aliases;
        float all[40];
        float some[21];

        assert_ok(open_device(t ? "cpu" : "ref", 2, &d, &err), &err);
        assert_ok(device_weight(d, &desc, stored, (struct device_shard){.n_out = 40, .n_in = 64},
                                &whole, &aliases, &err),
                  &err);
        assert_ok(device_weight(d, &desc, stored, (struct device_shard){19, 21, 0, 64}, &part,
                                &aliases, &err),
                  &err);
        assert_ok(device_act(d, 1, 64, &act, &err), &err);
        assert_int_equal(act.q != NULL, t == 1);
        device_norm(d, &(struct k_norm){.x = x, .n = 64, .n_rows = 1, .out = act});
        device_matmul(d, &(struct k_matmul){
                                 .in = act,
                                 .n_rows = 1,
                                 .n_mats = 2,
                                 .w = {device_weight_matrix(whole), device_weight_matrix(part)},
                                 .out = {all, some}});
        assert_ok(device_submit(d, &err), &err);
        assert_memory_equal(all + 19, some, sizeof(some));
    }
}

/* Shards of columns give sums that add up. */
static void shards_are_columns(void **state)
{
    enum { IN = 96, OUT = 20 };
    struct random r = {2};
    CLEANUP(mem_freep) void *stored = random_matrix(&r, K_Q5_0, IN, OUT);
    CLEANUP(mem_freep) float *x = random_floats(&r, IN, -1, 1);
    struct device_weight_desc desc = {.type = K_Q5_0, .n_in = IN, .n_out = OUT};
    static const struct device_shard shards[] = {{.n_out = OUT, .n_in = IN},
                                                 {.n_out = OUT, .n_in = 32},
                                                 {.n_out = OUT, .first_in = 32, .n_in = 64}};
    struct err err;

    (void)state;
    for (int t = 0; t < 2; t++) {
        CLEANUP(device_freep) struct device *d = NULL;
        float out[3][OUT];

        assert_ok(open_device(t ? "cpu" : "ref", 1, &d, &err), &err);
        for (int i = 0; i < 3; i++) {
            const struct device_weight *w;
            struct k_act act;
            bool aliases;

            assert_ok(device_weight(d, &desc, stored, shards[i], &w, &aliases, &err), &err);
            assert_int_equal(aliases, t == 0 && i == 0);
            assert_ok(device_act(d, 1, shards[i].n_in, &act, &err), &err);
            device_norm(d, &(struct k_norm){.x = x + shards[i].first_in,
                                            .n = shards[i].n_in,
                                            .n_rows = 1,
                                            .out = act});
            device_matmul(d, &(struct k_matmul){.in = act,
                                                .n_rows = 1,
                                                .n_mats = 1,
                                                .w = {device_weight_matrix(w)},
                                                .out = {out[i]}});
            assert_ok(device_submit(d, &err), &err);
        }
        for (int i = 0; i < OUT; i++)
            assert_true(fabsf(out[0][i] - out[1][i] - out[2][i]) < 1e-4F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(names),
            cmocka_unit_test(memory_is_zeroed_and_aligned),
            cmocka_unit_test(ops_run_in_order),
            cmocka_unit_test(shards_are_rows),
            cmocka_unit_test(shards_are_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
