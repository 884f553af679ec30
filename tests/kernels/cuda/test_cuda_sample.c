/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling on a GPU draws what the reference draws: the same filters, the same random numbers, sums
 * that differ by less than the logits of these tests are apart.
 */
#include "tests/support.h"

#include <cuda_runtime_api.h>
#include <math.h>

#include "kernels/ref/ref.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/kernel_data.h"

static const struct k_cuda_shape small = {
        .rows_max = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 8, .n_sms = 4};

/* Both backends' tokens of the same rows; UINT32_MAX in slots: a row that is left out. */
static void check(const float *logits, uint32_t n_vocab, const struct k_sampling *params,
                  uint32_t n_rows, const uint32_t *slots, int32_t *last)
{
    struct gpu g = gpu_new(&small);
    size_t bytes = (size_t)n_rows * n_vocab * sizeof(float);
    size_t slots_bytes = n_rows * sizeof(*slots);
    CLEANUP(mem_freep)
    struct k_candidate *scratch = test_alloc((size_t)n_rows * n_vocab, sizeof(*scratch));
    CLEANUP(mem_freep) int32_t *want = test_alloc(n_rows, sizeof(*want));
    CLEANUP(mem_freep) int32_t *got = NULL;
    CLEANUP(mem_freep) int32_t *got_last = NULL;
    struct k_sample a = {.logits = logits,
                         .params = params,
                         .scratch = scratch,
                         .n_vocab = n_vocab,
                         .n_rows = n_rows,
                         .out = want};

    k_ref_sample(&a, 0, n_rows);
    a.logits = gpu_upload(&g, logits, bytes);
    a.params = gpu_upload(&g, params, n_rows * sizeof(*params));
    a.scratch = gpu_alloc(&g, (size_t)n_rows * n_vocab * sizeof(*scratch));
    a.out = gpu_alloc(&g, n_rows * sizeof(*got));
    a.slots = slots ? gpu_upload(&g, slots, slots_bytes) : NULL;
    a.last = slots ? gpu_upload(&g, last, slots_bytes) : NULL;
    assert_int_equal(k_cuda_sample(&g.k, &a), 0);
    got = gpu_download(&g, a.out, n_rows * sizeof(*got));
    got_last = slots ? gpu_download(&g, a.last, slots_bytes) : NULL;
    for (uint32_t r = 0; r < n_rows; r++) {
        if (slots && slots[r] == UINT32_MAX) {
            assert_int_equal(got[r], -1); /* 0xff bytes: not written */
            continue;
        }
        if (got[r] != want[r])
            fail_msg("row %u of %u logits: %d, want %d", r, n_vocab, got[r], want[r]);
        if (slots)
            assert_int_equal(got_last[slots[r]], got[r]);
    }
    if (slots)
        memcpy(last, got_last, slots_bytes);
    gpu_free(&g);
}

static const struct k_sampling table[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1, .top_p = 1, .seed = 1},
        {.temperature = 0.7F, .top_p = 0.9F, .seed = 2},
        {.temperature = 1.3F, .top_p = 0.999F, .seed = 3},
        {.temperature = 1, .top_p = 1, .top_k = 40, .seed = 4},
        {.temperature = 1, .top_p = 0.5F, .top_k = 1000, .min_p = 0.1F, .seed = 5},
        {.temperature = 0.01F, .top_p = 1, .top_k = 3, .seed = 6},
        {.temperature = 1000, .top_p = 0.01F, .seed = 7},
        {.temperature = 1, .top_p = 1, .min_p = 0.5F, .seed = 8},
        {.temperature = 1, .top_p = 1, .top_k = 1, .seed = 9},
        {.temperature = 1, .top_p = 1e-6F, .seed = 10},
        {.temperature = 5, .top_p = 0.95F, .top_k = 50, .seed = 11, .choice = 3},
};
enum { N_PARAMS = sizeof(table) / sizeof(table[0]) };

/* Each of the first n_kinds rows of the table at several positions, as rows of one call. */
static void check_kinds(uint32_t n_kinds, uint32_t n_vocab, float range, uint32_t n_positions)
{
    struct random r = {n_vocab};
    size_t n_rows = (size_t)n_kinds * n_positions;
    CLEANUP(mem_freep) float *logits = random_floats(&r, n_rows * n_vocab, -range, range);
    CLEANUP(mem_freep) struct k_sampling *params = test_alloc(n_rows, sizeof(*params));

    for (uint32_t i = 0; i < n_rows; i++) {
        params[i] = table[i % n_kinds];
        params[i].position = i / n_kinds;
    }
    check(logits, n_vocab, params, (uint32_t)n_rows, NULL, NULL);
}

static void check_width(uint32_t n_vocab, float range, uint32_t n_positions)
{
    check_kinds(N_PARAMS, n_vocab, range, n_positions);
}

static void draws_what_the_reference_draws(void **state)
{
    (void)state;
    check_width(1, 3, 1);
    check_width(2, 3, 1);
    check_width(5, 3, 3);
    check_width(33, 4, 1);
    check_width(1000, 8, 2);
    check_width(4099, 12, 1);
    check_width(20000, 30, 1);
    check_kinds(3, 70001, 3, 2); /* three tokens a thread in the end, some of any weight */
}

/* Equal logits: the lower id is kept, and found, first. */
static void equals_are_in_order(void **state)
{
    enum { N = 2500, N_ROWS = 8 };
    static const struct k_sampling kinds[] = {
            {.temperature = 0, .top_p = 1},
            {.temperature = 1, .top_p = 1, .top_k = 7},
            {.temperature = 1, .top_p = 0.3F},
            {.temperature = 2, .top_p = 0.5F, .top_k = 2000},
    };
    CLEANUP(mem_freep) float *logits = test_alloc((size_t)N_ROWS * N, sizeof(float));
    struct k_sampling params[N_ROWS];

    (void)state;
    for (size_t i = 0; i < (size_t)N_ROWS * N; i++) /* of two values, or all of one */
        logits[i] = i / N % 2 == 0 ? -1.5F : i % 5 == 3 ? 2.0F : (i % 2 == 0 ? 0.0F : -0.0F);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        params[i] = kinds[i / 2 % 4];
        params[i].position = i;
    }
    check(logits, N, params, N_ROWS, NULL, NULL);
}

/* -INFINITY is not among what is bad; it is a token that is not there. */
static void not_finite_is_bad(void **state)
{
    enum { N = 2500 };
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3.4e38F};
    CLEANUP(mem_freep) float *logits = test_alloc((size_t)4 * N, sizeof(float));
    static const uint32_t at[] = {0, 1023, N - 1, 7};
    struct k_sampling params[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        logits[(size_t)i * N + at[i]] = bad[i];
        params[i] = (struct k_sampling){.temperature = i == 1 ? 0 : 1, .top_p = 0.9F};
    }
    check(logits, N, params, 4, NULL, NULL);
}

/* Of all but some tokens forbidden, fewer than top_k, one or none at all. */
static void forbidden_is_never_drawn(void **state)
{
    static const uint32_t widths[] = {1, 100, 5000};

    (void)state;
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
        for (uint32_t n_allowed = 0; n_allowed <= 20; n_allowed = 5 * n_allowed + 1) {
            struct random r = {widths[w] + n_allowed};
            uint32_t n = widths[w];
            CLEANUP(mem_freep) float *logits = test_alloc((size_t)N_PARAMS * n, sizeof(float));

            for (size_t i = 0; i < (size_t)N_PARAMS * n; i++)
                logits[i] = -INFINITY;
            for (uint32_t i = 0; i < N_PARAMS * n_allowed; i++)
                logits[(size_t)(i % N_PARAMS) * n + random_u32(&r) % n] = random_float(&r, -60, 9);
            check(logits, n, table, N_PARAMS, NULL, NULL);
        }
}

/* What a slot drew is there for the next step; rows of no slot are left out. */
static void slots_keep_tokens(void **state)
{
    static const uint32_t slots[] = {2, UINT32_MAX, 0};
    int32_t last[] = {-7, -7, -7};
    struct random r = {2};
    CLEANUP(mem_freep) float *logits = random_floats(&r, 3 * 100, -5, 5);
    const struct k_sampling params[] = {{.temperature = 1, .top_p = 1},
                                        {.temperature = 1, .top_p = 1},
                                        {.temperature = 0, .top_p = 1}};

    (void)state;
    check(logits, 100, params, 3, slots, last);
    assert_in_range(last[0], 0, 99);
    assert_int_equal(last[1], -7);
    assert_in_range(last[2], 0, 99);
}

static void too_large_a_vocabulary_is_refused(void **state)
{
    struct k_cuda k = {.n_sms = 1};
    struct k_sample a = {.n_vocab = 1U << 20, .n_rows = 1};

    (void)state;
    assert_int_equal(k_cuda_sample(&k, &a), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(draws_what_the_reference_draws),
            cmocka_unit_test(equals_are_in_order),
            cmocka_unit_test(not_finite_is_bad),
            cmocka_unit_test(forbidden_is_never_drawn),
            cmocka_unit_test(slots_keep_tokens),
            cmocka_unit_test(too_large_a_vocabulary_is_refused),
    };

    return gpu_run_tests(tests);
}
