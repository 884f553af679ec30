/* SPDX-License-Identifier: Apache-2.0
 *
 * Penalties, biases and masks on a GPU, against the reference.
 *
 * Tolerance: presence + frequency x count may be rounded once instead of twice.
 */
#include "tests/support.h"

#include <math.h>

#include "kernels/ref/ref.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/kernel_data.h"

static const float tolerance = 1e-6F;
static const struct k_cuda_shape small = {
        .rows_max = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 8, .n_sms = 4};

/* Rows, by what they have; as many entries as said, or as there are tokens. */
static const struct k_adjustment kinds[] = {
        {.n_seen = 0},
        {.repetition = 1.3F, .n_seen = 1},
        {.repetition = 1, .presence = 0.7F, .frequency = 0.1F, .n_seen = 700},
        {.n_biases = 300},
        {.masked = true},
        {.n_seen = 0},
        {.repetition = 0.8F,
         .presence = -0.5F,
         .frequency = 1.1F,
         .n_seen = 1000,
         .n_biases = 1000,
         .masked = true},
        {.repetition = 5, .n_seen = 5000, .n_biases = 1},
};
enum { ROWS = sizeof(kinds) / sizeof(kinds[0]), LIST_MAX = 5000 };

/* The rows' lists on the host; every row has LIST_MAX entries' room. */
struct lists {
    struct k_adjustment rows[ROWS];
    struct k_seen *seen;
    struct k_bias *biases;
    uint32_t *masks;
};

static struct lists lists_new(struct random *r, uint32_t n_vocab)
{
    struct lists l = {.seen = test_alloc((size_t)ROWS * LIST_MAX, sizeof(struct k_seen)),
                      .biases = test_alloc((size_t)ROWS * LIST_MAX, sizeof(struct k_bias)),
                      .masks = test_alloc((size_t)ROWS * k_mask_words(n_vocab), sizeof(uint32_t))};
    uint32_t most = n_vocab < LIST_MAX ? n_vocab : LIST_MAX;

    for (uint32_t i = 0; i < ROWS; i++) {
        struct k_adjustment *row = &l.rows[i];
        uint32_t place = ROWS - 1 - i;

        *row = kinds[i];
        row->n_seen = row->n_seen < most ? row->n_seen : most;
        row->n_biases = row->n_biases < most ? row->n_biases : most;
        row->first_seen = row->first_bias = place * LIST_MAX;
        row->mask = place;
        for (uint32_t j = 0; j < LIST_MAX; j++) { /* beyond what the row has: nobody's */
            l.seen[row->first_seen + j] = (struct k_seen){0, 1, 1};
            l.biases[row->first_bias + j] = (struct k_bias){0, 1000};
        }
        /* from the end down, and upward across the end of a block's tokens: no two alike */
        for (uint32_t j = 0; j < row->n_seen; j++)
            l.seen[row->first_seen + j] =
                    (struct k_seen){n_vocab - 1 - j, random_u32(r) % 3, random_u32(r) % 4};
        for (uint32_t j = 0; j < row->n_biases; j++) {
            /* on a token that is forbidden already this would be no number */
            float value = j % 7 == 3 ? INFINITY : random_float(r, -9, 9);

            l.biases[row->first_bias + j] = (struct k_bias){(8000 + j) % n_vocab, value};
        }
    }
    for (size_t i = 0; i < (size_t)ROWS * k_mask_words(n_vocab); i++)
        l.masks[i] = random_u32(r);
    return l;
}

static void assert_same(const float *got, const float *want, const float *start, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool exact = want[i] == start[i] || isinf(want[i]); /* left alone, forbidden or forced */

        if (exact ? got[i] != want[i]
                  : !(fabsf(got[i] - want[i]) <= tolerance * (1 + fabsf(want[i]))))
            fail_msg("%zu of %zu: %.9g, want %.9g", i, n, (double)got[i], (double)want[i]);
    }
}

static void check(uint32_t n_vocab)
{
    struct gpu g = gpu_new(&small);
    struct random r = {n_vocab};
    size_t n = (size_t)ROWS * n_vocab;
    struct lists l = lists_new(&r, n_vocab);
    CLEANUP(mem_freep) float *start = random_floats(&r, n, -8, 8);
    CLEANUP(mem_freep) float *want = test_alloc(n, sizeof(float));
    CLEANUP(mem_freep) float *got = NULL;
    struct k_adjust a = {.logits = want,
                         .rows = l.rows,
                         .seen = l.seen,
                         .biases = l.biases,
                         .masks = l.masks,
                         .n_vocab = n_vocab,
                         .n_rows = ROWS};

    memcpy(want, start, n * sizeof(float));
    k_ref_adjust(&a, 0, ROWS);
    a.logits = gpu_upload(&g, start, n * sizeof(float));
    a.rows = gpu_upload(&g, l.rows, sizeof(l.rows));
    a.seen = gpu_upload(&g, l.seen, (size_t)ROWS * LIST_MAX * sizeof(*l.seen));
    a.biases = gpu_upload(&g, l.biases, (size_t)ROWS * LIST_MAX * sizeof(*l.biases));
    a.masks = gpu_upload(&g, l.masks, (size_t)ROWS * k_mask_words(n_vocab) * sizeof(*l.masks));
    assert_int_equal(k_cuda_adjust(&g.k, &a), 0);
    got = gpu_download(&g, a.logits, n * sizeof(float));
    assert_same(got, want, start, n);
    mem_free(l.seen);
    mem_free(l.biases);
    mem_free(l.masks);
    gpu_free(&g);
}

/* Below, at and above the tokens of one block, and a vocabulary of several. */
static void equals_the_reference(void **state)
{
    static const uint32_t widths[] = {1, 31, 1000, 8192, 8193, 20011};

    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        check(widths[i]);
}

/* Rows of zeros touch neither lists nor masks: there may be none. */
static void nothing_needs_nothing(void **state)
{
    struct gpu g = gpu_new(&small);
    static const struct k_adjustment rows[2];
    static const float logits[2][3] = {{1, 2, 3}, {4, 5, NAN}};
    CLEANUP(mem_freep) float *got = NULL;
    struct k_adjust a = {.logits = gpu_upload(&g, logits, sizeof(logits)),
                         .rows = gpu_upload(&g, rows, sizeof(rows)),
                         .n_vocab = 3,
                         .n_rows = 2};

    (void)state;
    assert_int_equal(k_cuda_adjust(&g.k, &a), 0);
    got = gpu_download(&g, a.logits, sizeof(logits));
    assert_memory_equal(got, logits, sizeof(logits));
    a.n_rows = 0;
    assert_int_equal(k_cuda_adjust(&g.k, &a), 0);
    gpu_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(equals_the_reference),
            cmocka_unit_test(nothing_needs_nothing),
    };

    return gpu_run_tests(tests);
}
