/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "tests/kernels/kernel_data.h"

enum { N = 40, SEEN = 4, BIASES = 2, CHANGES = 2 };

struct change {
    uint32_t id;
    float want;
};

/* Each case is a row; token i starts with the logit i - 10. */
static const struct row {
    const char *name;
    struct k_adjustment a; /* but for where its lists are */
    struct k_seen seen[SEEN];
    struct k_bias biases[BIASES];
    uint32_t mask[2];
    struct change changes[CHANGES]; /* what is allowed and not here stays */
    uint32_t n_changes;
} cases[] = {
        {.name = "nothing"},
        {.name = "repetition, of prompt and output, by the sign",
         .a = {.repetition = 2, .n_seen = 4},
         .seen = {{14, 1, 0}, {4, 0, 3}, {10, 1, 1}, {20, 0, 0}},
         .changes = {{14, 2}, {4, -12}},
         .n_changes = 2},
        {.name = "presence and frequency, of output only",
         .a = {.repetition = 1, .presence = 0.5F, .frequency = 0.25F, .n_seen = 3},
         .seen = {{14, 5, 0}, {15, 0, 1}, {16, 2, 4}},
         .changes = {{15, 4.25F}, {16, 4.5F}},
         .n_changes = 2},
        {.name = "negative penalties raise",
         .a = {.repetition = 0.5F, .presence = -1, .frequency = -2, .n_seen = 2},
         .seen = {{39, 0, 1}, {0, 1, 0}},
         .changes = {{39, 61}, {0, -5}},
         .n_changes = 2},
        {.name = "biases",
         .a = {.n_biases = 2},
         .biases = {{39, -100}, {0, 2.5F}},
         .changes = {{39, -71}, {0, -7.5F}},
         .n_changes = 2},
        {.name = "repetition, then penalties, then biases",
         .a = {.repetition = 2, .presence = 1, .frequency = 0.5F, .n_seen = 2, .n_biases = 2},
         .seen = {{9, 1, 0}, {14, 0, 2}},
         .biases = {{9, 5}, {14, 3}},
         .changes = {{9, 3}, {14, 3}},
         .n_changes = 2},
        {.name = "only two are allowed, and a bias does not bring back",
         .a = {.n_biases = 2, .masked = true},
         .biases = {{5, 1}, {6, 100}},
         .mask = {1U << 5, 1U << 7},
         .changes = {{5, -4}},
         .n_changes = 1},
        {.name = "none is allowed", .a = {.masked = true}, .mask = {0, ~0U << 8}},
        {.name = "all are allowed",
         .a = {.repetition = 4, .n_seen = 1, .masked = true},
         .seen = {{18, 1, 0}},
         .mask = {~0U, 0xff},
         .changes = {{18, 2}},
         .n_changes = 1},
};
enum { ROWS = sizeof(cases) / sizeof(cases[0]) };

static float wanted(const struct row *c, uint32_t id)
{
    float want = (float)id - 10;

    for (uint32_t i = 0; i < c->n_changes; i++)
        if (c->changes[i].id == id)
            want = c->changes[i].want;
    return c->a.masked && (c->mask[id / 32] >> (id % 32) & 1) == 0 ? -INFINITY : want;
}

/* All cases as rows of one call; their lists lie in the flat arrays the other way round. */
static void check(const struct k_ops *ops)
{
    float logits[ROWS][N];
    struct k_adjustment rows[ROWS];
    struct k_seen seen[ROWS * SEEN];
    struct k_bias biases[ROWS * BIASES];
    uint32_t masks[ROWS][2];
    struct k_adjust a = {.logits = logits[0],
                         .rows = rows,
                         .seen = seen,
                         .biases = biases,
                         .masks = masks[0],
                         .n_vocab = N,
                         .n_rows = ROWS};

    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t place = ROWS - 1 - r;

        rows[r] = cases[r].a;
        rows[r].first_seen = place * SEEN;
        rows[r].first_bias = place * BIASES;
        rows[r].mask = place;
        memcpy(seen + rows[r].first_seen, cases[r].seen, sizeof(cases[r].seen));
        memcpy(biases + rows[r].first_bias, cases[r].biases, sizeof(cases[r].biases));
        memcpy(masks[place], cases[r].mask, sizeof(cases[r].mask));
        for (uint32_t i = 0; i < N; i++)
            logits[r][i] = (float)i - 10;
    }
    for (uint32_t r = ROWS; r-- > 0;)
        ops->adjust(&a, r, r + 1);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < N; i++)
            if (logits[r][i] != wanted(&cases[r], i))
                fail_msg("%s: %s: token %u: %g, want %g", ops->name, cases[r].name, i,
                         (double)logits[r][i], (double)wanted(&cases[r], i));
}

static void does_what_it_says(void **state)
{
    (void)state;
    check(k_ref_ops());
    for (unsigned k = 0; k_cpu_ops(k); k++)
        check(k_cpu_ops(k));
}

static void masks_are_whole_words(void **state)
{
    (void)state;
    assert_int_equal(k_mask_words(1), 1);
    assert_int_equal(k_mask_words(32), 1);
    assert_int_equal(k_mask_words(33), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(does_what_it_says),
            cmocka_unit_test(masks_are_whole_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
