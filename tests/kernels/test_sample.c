/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "tests/kernels/kernel_data.h"

/* Known answers of Random123's philox4x32-10. */
static void philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t out[4];
    } table[] = {
            {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
            {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
             {0xffffffff, 0xffffffff},
             {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
             {0xa4093822, 0x299f31d0},
             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t out[4];

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        k_philox(table[i].counter, table[i].key, out);
        assert_memory_equal(out, table[i].out, sizeof(out));
    }
}

static void uniform_is_uniform(void **state)
{
    double sum = 0;

    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        double u = k_uniform(42, i, 0);

        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.01);
    assert_true(k_uniform(1, 2, 0) != k_uniform(1, 2, 1));
    assert_true(k_uniform(1, 2, 0) != k_uniform(2, 2, 0));
    assert_true(k_uniform(1, 2, 0) == k_uniform(1, 2, 0));
}

static int32_t draw(const struct k_ops *ops, const float *logits, uint32_t n,
                    struct k_sampling params)
{
    CLEANUP(mem_freep) struct k_candidate *scratch = test_alloc(n, sizeof(*scratch));
    int32_t out = -2;
    struct k_sample a = {.logits = logits,
                         .params = &params,
                         .scratch = scratch,
                         .n_vocab = n,
                         .n_rows = 1,
                         .out = &out};

    ops->sample(&a, 0, 1);
    return out;
}

/* log of 0.5, 0.25, 0.125, 0.0625, 0.0625 in another order, plus a constant */
static float five[5];

static int make_five(void **state)
{
    static const float p[5] = {0.0625F, 0.5F, 0.125F, 0.0625F, 0.25F};

    (void)state;
    for (int i = 0; i < 5; i++)
        five[i] = logf(p[i]) + 3;
    return 0;
}

static void greedy_takes_the_lowest_best(void **state)
{
    static const float ties[] = {1, 3, -2, 3, 0, 3};

    (void)state;
    assert_int_equal(draw(k_ref_ops(), ties, 6, (struct k_sampling){.top_p = 1}), 1);
    assert_int_equal(draw(k_cpu_ops(0), ties, 6, (struct k_sampling){.top_p = 1}), 1);
    assert_int_equal(draw(k_cpu_ops(0), ties, 1, (struct k_sampling){.top_p = 1}), 0);
}

static void not_finite_is_bad(void **state)
{
    static const float bad[] = {NAN, INFINITY, -NAN};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t at = 0; at < 40; at += 13)
            for (int t = 0; t < 2; t++) {
                float logits[40] = {0};

                logits[at] = bad[i];
                assert_int_equal(draw(k_cpu_ops(0), logits, 40,
                                      (struct k_sampling){.temperature = (float)t, .top_p = 1}),
                                 -1);
            }
}

/* Tokens at -INFINITY are as if they were not there, whatever the filters count to. */
static void forbidden_is_never_drawn(void **state)
{
    static const struct k_sampling table[] = {
            {.temperature = 0, .top_p = 1},
            {.temperature = 1, .top_p = 1},
            {.temperature = 1e-5F, .top_p = 0.5F},
            {.temperature = 1, .top_p = 1, .top_k = 2},
            {.temperature = 1, .top_p = 1, .top_k = 30},
            {.temperature = 100, .top_p = 0.999999F, .top_k = 30},
            {.temperature = 100, .top_p = 0.999999F},
            {.temperature = 1, .top_p = 1, .min_p = 0.1F},
    };
    enum { N = 40 };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (uint32_t p = 0; p < 200; p++) {
            struct k_sampling params = table[i];
            float logits[N];
            int32_t token;

            params.position = p;
            for (int j = 0; j < N; j++)
                logits[j] = -INFINITY;
            assert_int_equal(draw(k_cpu_ops(0), logits, N, params), -1);
            logits[7] = -50;
            assert_int_equal(draw(k_cpu_ops(0), logits, N, params), 7);
            logits[39] = -51;
            logits[20] = -50.5F;
            token = draw(k_cpu_ops(0), logits, N, params);
            assert_true(token == 7 || token == 20 || token == 39);
        }
}

/* How often each of the five is drawn in 4,000. */
static void histogram(const struct k_ops *ops, struct k_sampling params, unsigned counts[5])
{
    memset(counts, 0, 5 * sizeof(*counts));
    for (uint32_t i = 0; i < 4000; i++) {
        int32_t token;

        params.position = i;
        token = draw(ops, five, 5, params);
        assert_in_range(token, 0, 4);
        counts[token]++;
    }
}

static void filters_keep_what_they_say(void **state)
{
    static const struct {
        struct k_sampling params;
        double want[5];
    } table[] = {
            {{.temperature = 1, .top_p = 1}, {0.0625, 0.5, 0.125, 0.0625, 0.25}},
            {{.temperature = 1, .top_p = 1, .top_k = 1}, {0, 1, 0, 0, 0}},
            {{.temperature = 1, .top_p = 1, .top_k = 2}, {0, 2 / 3.0, 0, 0, 1 / 3.0}},
            /* of two equal ones the lower id stays */
            {{.temperature = 1, .top_p = 1, .top_k = 4},
             {1 / 15.0, 8 / 15.0, 2 / 15.0, 0, 4 / 15.0}},
            {{.temperature = 1, .top_p = 0.4F}, {0, 1, 0, 0, 0}},
            {{.temperature = 1, .top_p = 0.7F}, {0, 2 / 3.0, 0, 0, 1 / 3.0}},
            {{.temperature = 1, .top_p = 0.9F}, {1 / 15.0, 8 / 15.0, 2 / 15.0, 0, 4 / 15.0}},
            {{.temperature = 1, .top_p = 1, .min_p = 0.2F}, {0, 4 / 7.0, 1 / 7.0, 0, 2 / 7.0}},
            /* top_p counts within what top_k kept: 4/7 and 2/7 reach 0.8 */
            {{.temperature = 1, .top_p = 0.8F, .top_k = 3}, {0, 2 / 3.0, 0, 0, 1 / 3.0}},
            /* temperature 1/2 squares the odds */
            {{.temperature = 0.5F, .top_p = 1, .top_k = 2}, {0, 0.8, 0, 0, 0.2}},
            {{.temperature = 1, .top_p = 1, .top_k = 100}, {0.0625, 0.5, 0.125, 0.0625, 0.25}},
    };
    unsigned counts[5];

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (int b = 0; b < 2; b++) {
            histogram(b ? k_cpu_ops(0) : k_ref_ops(), table[i].params, counts);
            for (int t = 0; t < 5; t++)
                if (fabs(counts[t] / 4000.0 - table[i].want[t]) > 0.03 ||
                    (table[i].want[t] == 0 && counts[t] > 0))
                    fail_msg("row %zu, token %d: %u of 4000, want %g", i, t, counts[t],
                             table[i].want[t] * 4000);
        }
}

/* On a large row: the backends draw the same, and filters agree with sorting. */
static void large_rows(void **state)
{
    enum { N = 50000 };
    struct random r = {3};
    CLEANUP(mem_freep) float *logits = random_floats(&r, N, -4, 4);
    static const struct k_sampling table[] = {
            {.temperature = 0.7F, .top_p = 0.9F, .seed = 1},
            {.temperature = 1.3F, .top_p = 0.999F, .seed = 2},
            {.temperature = 1, .top_p = 1, .top_k = 40, .seed = 3},
            {.temperature = 1, .top_p = 0.5F, .top_k = 1000, .min_p = 0.1F, .seed = 4},
            {.temperature = 0.01F, .top_p = 1, .seed = 5},
            {.temperature = 1000, .top_p = 0.01F, .seed = 6},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (uint32_t p = 0; p < 5; p++) {
            struct k_sampling params = table[i];
            unsigned better = 0;
            int32_t token;

            params.position = p;
            token = draw(k_cpu_ops(0), logits, N, params);
            assert_in_range(token, 0, N - 1);
            for (unsigned k = 1; k_cpu_ops(k); k++)
                assert_int_equal(draw(k_cpu_ops(k), logits, N, params), token);
            for (uint32_t j = 0; j < N; j++)
                better += logits[j] > logits[token];
            assert_true(params.top_k == 0 || better < params.top_k);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(philox_known_answers),
            cmocka_unit_test(uniform_is_uniform),
            cmocka_unit_test(greedy_takes_the_lowest_best),
            cmocka_unit_test(not_finite_is_bad),
            cmocka_unit_test(forbidden_is_never_drawn),
            cmocka_unit_test(filters_keep_what_they_say),
            cmocka_unit_test(large_rows),
    };

    return cmocka_run_group_tests(tests, make_five, NULL);
}
