/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "kernels/ref/ref.h"
#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

enum { ROWS = 3 };

static void assert_close(const float *got, const float *want, size_t n, float tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tolerance * (1 + fabsf(want[i]))))
            fail_msg("%zu: %.9g, want %.9g", i, (double)got[i], (double)want[i]);
}

/* A mean in float32 is off by some units of its last place, and so is what remains. */
static float tolerance_of(const struct norm_variant *v)
{
    return v->kind == K_NORM_LAYER ? 2e-6F : 1e-6F;
}

/* The quantised form says the same as the float form. */
static void assert_packed(const struct k_act *a, uint32_t n_rows)
{
    uint32_t groups = (a->n + K_GROUP - 1) / K_GROUP;

    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t g = 0; g < groups; g++) {
            size_t at = (size_t)r * groups + g;
            int32_t total = 0;

            for (uint32_t i = 0; i < K_GROUP; i++) {
                uint32_t column = g * K_GROUP + i;
                float x = column < a->n ? a->f32[(size_t)r * a->n + column] : 0;

                total += a->q[at * K_GROUP + i];
                assert_true(a->q[at * K_GROUP + i] >= -127);
                assert_true(fabsf((float)a->q[at * K_GROUP + i] * a->scale[at] - x) <=
                            a->scale[at] * 0.5001F);
            }
            assert_int_equal(a->total[at], total);
            assert_true(a->sum[at] == a->scale[at] * (float)total);
        }
}

static bool same(const struct k_act *a, const struct k_act *b, uint32_t n_rows)
{
    size_t groups = (size_t)n_rows * ((a->n + K_GROUP - 1) / K_GROUP);

    return memcmp(a->f32, b->f32, (size_t)n_rows * a->n * sizeof(float)) == 0 &&
           memcmp(a->q, b->q, groups * K_GROUP) == 0 &&
           memcmp(a->scale, b->scale, groups * sizeof(float)) == 0 &&
           memcmp(a->sum, b->sum, groups * sizeof(float)) == 0;
}

/* Values about 1, so that their mean is not 0. */
static void check_norm(uint32_t n, const struct norm_variant *v)
{
    static const uint32_t ids[ROWS] = {4, 0, 2};
    struct random r = {n};
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)5 * n, -2, 4);
    CLEANUP(mem_freep) float *w = random_floats(&r, n, 0.5F, 2);
    CLEANUP(mem_freep) float *b = random_floats(&r, n, -2, 2);
    struct k_act want = act_new(ROWS, n);
    struct k_act first = act_new(ROWS, n);
    struct k_norm a = {.x = x,
                       .row_ids = ids,
                       .kind = v->kind,
                       .weight = v->weighted ? w : NULL,
                       .bias = v->biased ? b : NULL,
                       .eps = 1e-5F,
                       .n = n,
                       .n_rows = ROWS,
                       .out = want};

    k_ref_norm(&a, 0, ROWS);
    a.out = first;
    k_cpu_ops(0)->norm(&a, 0, ROWS);
    assert_close(first.f32, want.f32, (size_t)ROWS * n, tolerance_of(v));
    assert_packed(&first, ROWS);
    for (unsigned k = 1; k_cpu_ops(k); k++) {
        struct k_act other = act_new(ROWS, n);

        a.out = other;
        for (uint32_t i = ROWS; i-- > 0;)
            k_cpu_ops(k)->norm(&a, i, i + 1);
        assert_true(same(&first, &other, ROWS));
        act_free(&other);
    }
    act_free(&want);
    act_free(&first);
}

static void norms(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++)
        for (size_t v = 0; v < n_norm_variants; v++)
            check_norm(row_widths[i], &norm_variants[v]);
}

static void check_norm_add(uint32_t n, const struct norm_variant *v)
{
    struct random r = {n};
    CLEANUP(mem_freep) float *x = random_floats(&r, (size_t)ROWS * n, -3, 3);
    CLEANUP(mem_freep) float *y = random_floats(&r, (size_t)ROWS * n, -2, 4);
    CLEANUP(mem_freep) float *w = random_floats(&r, n, 0.5F, 2);
    CLEANUP(mem_freep) float *b = random_floats(&r, n, -2, 2);
    CLEANUP(mem_freep) float *want = test_alloc((size_t)ROWS * n, sizeof(float));
    CLEANUP(mem_freep) float *first = test_alloc((size_t)ROWS * n, sizeof(float));
    CLEANUP(mem_freep) float *other = test_alloc((size_t)ROWS * n, sizeof(float));
    size_t bytes = (size_t)ROWS * n * sizeof(float);
    struct k_norm_add a = {.y = y,
                           .kind = v->kind,
                           .weight = v->weighted ? w : NULL,
                           .bias = v->biased ? b : NULL,
                           .eps = 1e-6F,
                           .n = n,
                           .n_rows = ROWS};

    memcpy(want, x, bytes);
    a.x = want;
    k_ref_norm_add(&a, 0, ROWS);
    memcpy(first, x, bytes);
    a.x = first;
    k_cpu_ops(0)->norm_add(&a, 0, ROWS);
    assert_close(first, want, (size_t)ROWS * n, tolerance_of(v));
    for (unsigned k = 1; k_cpu_ops(k); k++) {
        memcpy(other, x, bytes);
        a.x = other;
        k_cpu_ops(k)->norm_add(&a, 0, ROWS);
        assert_memory_equal(first, other, bytes);
    }
}

static void norms_added(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++)
        for (size_t v = 0; v < n_norm_variants; v++)
            check_norm_add(row_widths[i], &norm_variants[v]);
}

/* By hand: mean 2.5, variance 1.25; and far from 0, where the squares' means are equal. */
static void layer_norm_is_its_formula(void **state)
{
    static const float weight[] = {1, 1, 2, -1};
    static const float bias[] = {0, 1, 10, -1};
    static const double deviation[] = {-1.5, -0.5, 0.5, 1.5};
    static const float offsets[] = {0, -100, 100000};

    (void)state;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        for (unsigned k = 0; k == 0 || k_cpu_ops(k - 1); k++) {
            const struct k_ops *ops = k == 0 ? k_ref_ops() : k_cpu_ops(k - 1);
            struct k_act out = act_new(1, 4);
            float x[4];
            struct k_norm a = {.x = x,
                               .kind = K_NORM_LAYER,
                               .weight = weight,
                               .bias = bias,
                               .eps = 0.75F,
                               .n = 4,
                               .n_rows = 1,
                               .out = out};

            for (int j = 0; j < 4; j++)
                x[j] = offsets[i] + 1 + (float)j;
            ops->norm(&a, 0, 1);
            for (int j = 0; j < 4; j++) {
                double want = deviation[j] / sqrt(2.0) * (double)weight[j] + (double)bias[j];

                assert_true(fabs((double)out.f32[j] - want) < 2e-6);
            }
            act_free(&out);
        }
}

static void check_gate(uint32_t n, enum k_gate_kind kind, float range)
{
    struct random r = {n};
    CLEANUP(mem_freep) float *g = random_floats(&r, (size_t)ROWS * n, -range, range);
    CLEANUP(mem_freep) float *u = random_floats(&r, (size_t)ROWS * n, -3, 3);
    struct k_act want = act_new(ROWS, n);
    struct k_act first = act_new(ROWS, n);
    struct k_gate a = {.kind = kind, .gate = g, .up = u, .n = n, .n_rows = ROWS, .out = want};

    k_ref_gate(&a, 0, ROWS);
    a.out = first;
    k_cpu_ops(0)->gate(&a, 0, ROWS);
    assert_close(first.f32, want.f32, (size_t)ROWS * n, 2e-6F);
    assert_packed(&first, ROWS);
    for (unsigned k = 1; k_cpu_ops(k); k++) {
        struct k_act other = act_new(ROWS, n);

        a.out = other;
        k_cpu_ops(k)->gate(&a, 0, ROWS);
        assert_true(same(&first, &other, ROWS));
        act_free(&other);
    }
    act_free(&want);
    act_free(&first);
}

static void gates(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_row_widths; i++) {
        check_gate(row_widths[i], K_GATE_SILU, 4);
        check_gate(row_widths[i], K_GATE_GELU_TANH, 4);
    }
    check_gate(64, K_GATE_SILU, 200);
    check_gate(64, K_GATE_GELU_TANH, 20);
}

/* A value that is not finite, or a group that is all but zero, is seen in the scale. */
static void odd_values_pack(void **state)
{
    static const struct {
        float x;
        bool finite;
    } table[] = {{NAN, false}, {INFINITY, false}, {-INFINITY, false}, {1e-40F, true},
                 {0, true},    {1e-29F, true},    {3e38F, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        for (unsigned k = 0; k_cpu_ops(k); k++) {
            struct k_act act = act_new(1, 64);
            float x[64] = {0};
            struct k_norm a = {.x = x, .n = 64, .n_rows = 1, .out = act};

            x[5] = table[i].x;
            k_cpu_ops(k)->norm(&a, 0, 1);
            assert_int_equal(isfinite(act.scale[0]) != 0, table[i].finite);
            assert_true(act.scale[1] == 0 && act.total[1] == 0);
            act_free(&act);
        }
}

static void angles_are_cos_and_sin(void **state)
{
    static const uint32_t positions[] = {0, 1, 4000};
    static const float freqs[] = {1, 0.25F};
    float out[3 * 4];
    struct k_angles a = {
            .positions = positions, .freqs = freqs, .n_freqs = 2, .n_rows = 3, .out = out};

    (void)state;
    k_cpu_ops(0)->angles(&a, 0, 3);
    assert_true(out[0] == 1 && out[1] == 1 && out[2] == 0 && out[3] == 0);
    assert_true(fabsf(out[4 + 1] - cosf(0.25F)) < 1e-6F);
    assert_true(fabsf(out[8 + 2] - sinf(4000)) < 1e-6F);
}

static void rotation(void **state)
{
    static const float angles[] = {0, 1, 1, 0}; /* a quarter turn, none */
    float pairs[] = {1, 2, 3, 4, 5};
    float halves[] = {1, 2, 3, 4, 5};

    (void)state;
    k_ref_rotate(pairs, angles, 2, K_ROPE_PAIRS);
    assert_true(pairs[0] == -2 && pairs[1] == 1 && pairs[2] == 3 && pairs[3] == 4);
    k_ref_rotate(halves, angles, 2, K_ROPE_HALVES);
    assert_true(halves[0] == -3 && halves[2] == 1 && halves[1] == 2 && halves[3] == 4);
    assert_true(pairs[4] == 5 && halves[4] == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(norms),
            cmocka_unit_test(norms_added),
            cmocka_unit_test(layer_norm_is_its_formula),
            cmocka_unit_test(gates),
            cmocka_unit_test(odd_values_pack),
            cmocka_unit_test(angles_are_cos_and_sin),
            cmocka_unit_test(rotation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
