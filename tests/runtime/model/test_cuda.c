/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole seeded models on a GPU, the virtual one or a real one: logits against the reference device,
 * teacher-forced, on one rank and on several; and decoding with lists kept and without, a step
 * ahead, padded to a bucket, beside a prefill.  Ranks that there are no GPUs for are left out; on
 * the virtual one there are always enough.
 */
#include "tests/support.h"

#include <cuda_runtime_api.h>
#include <math.h>

#include "tests/runtime/model/tiny_model.h"

enum { VOCAB_MAX = 70, SEQS = 5, STEPS = 10, BLOCKS_A_SLOT = 5 };

/* Of the largest logit: queries and keys are float16, products of more than 8 rows tf32. */
static const float tolerance = 1e-2F;

static unsigned n_gpus(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? (unsigned)n : 0;
}

static void check_logits(const char *arch, unsigned ranks_max)
{
    static float want[TINY_ROWS * VOCAB_MAX], got[TINY_ROWS * VOCAB_MAX];
    struct tiny t;
    struct model *m;
    float largest = 0;
    size_t n;

    tiny_init(&t, arch);
    m = tiny_model(&t, "ref", 2);
    n = (size_t)TINY_ROWS * model_info(m)->n_vocab;
    tiny_two_chunks(m, want);
    model_free(m);
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    for (unsigned n_ranks = 1; n_ranks <= ranks_max && n_ranks <= n_gpus(); n_ranks++) {
        float worst = 0;

        m = tiny_ranks(&t, "cuda", n_ranks);
        assert_non_null(strstr(model_info(m)->device, "cuda"));
        tiny_two_chunks(m, got);
        for (size_t i = 0; i < n; i++)
            worst = fmaxf(worst, isfinite(got[i]) ? fabsf(want[i] - got[i]) : INFINITY);
        print_message("%s, %u ranks: %.1e of the largest logit\n", arch, n_ranks,
                      (double)(worst / largest));
        assert_true(worst <= tolerance * largest);
        model_free(m);
    }
    tiny_release(&t);
}

static void logits_are_the_references(void **state)
{
    (void)state;
    check_logits("llama", 2);
    check_logits("gemma3", 2);
    check_logits("nine", 3);
}

/* SEQS sequences decode STEPS tokens each, greedily, with the next step started before this one is
 * collected; then one goes on alone while another is prefilled beside it. */
static void decode(const struct tiny *t, const char *device, unsigned n_ranks, bool no_graphs,
                   int32_t ret[SEQS][STEPS])
{
    struct model *m = tiny_open(t, device, 2, n_ranks, no_graphs);
    int32_t prompts[SEQS][20], next[SEQS];
    uint32_t ids[SEQS * 2 * BLOCKS_A_SLOT];
    struct plan_seq seqs[2][SEQS];
    struct plan_sample samples[SEQS];
    struct step_plan plans[2];
    struct model_ticket tickets[2];
    int32_t drawn[SEQS], prefill[SEQS * 20];
    struct err err;

    for (uint32_t i = 0; i < SEQS; i++) {
        tiny_tokens(prompts[i], 20, i + 1);
        memcpy(prefill + (size_t)i * 20, prompts[i], sizeof(prompts[i]));
        next[i] = PLAN_TOKEN_LAST_SAMPLE;
        samples[i] = (struct plan_sample){.slot = i, .top_p = 1};
        for (uint32_t k = 0; k < 2 * BLOCKS_A_SLOT; k++)
            ids[i * 2 * BLOCKS_A_SLOT + k] = i * BLOCKS_A_SLOT + k % BLOCKS_A_SLOT;
    }
    for (uint32_t s = 0; s <= STEPS; s++) {
        for (uint32_t i = 0; s < STEPS && i < SEQS; i++)
            seqs[s % 2][i] = (struct plan_seq){
                    .slot = i,
                    .first_token = s ? i : 20 * i,
                    .n_tokens = s ? 1 : 20,
                    .start_pos = s ? 19 + s : 0,
                    .sample = i,
                    .table_first = {i * 2 * BLOCKS_A_SLOT, i * 2 * BLOCKS_A_SLOT + BLOCKS_A_SLOT},
                    .table_len = {BLOCKS_A_SLOT, BLOCKS_A_SLOT}};
        plans[s % 2] = (struct step_plan){.n_tokens = s ? SEQS : 20 * SEQS,
                                          .n_seqs = SEQS,
                                          .n_samples = SEQS,
                                          .n_block_ids = SEQS * 2 * BLOCKS_A_SLOT,
                                          .tokens = s ? next : prefill,
                                          .seqs = seqs[s % 2],
                                          .samples = samples,
                                          .block_ids = ids};
        if (s < STEPS)
            assert_ok(model_submit(m, &plans[s % 2], &tickets[s % 2], &err), &err);
        if (s == 0)
            continue;
        assert_ok(model_collect(m, tickets[(s - 1) % 2], drawn, &err), &err);
        for (uint32_t i = 0; i < SEQS; i++)
            ret[i][s - 1] = drawn[i];
    }
    model_free(m);
}

/* The reference's logits after a sequence's prompt and what was drawn: how far below the best is
 * each drawn token, as a share of the largest logit? */
static void check_draws(const struct tiny *t, int32_t drawn[SEQS][STEPS])
{
    struct model *m = tiny_model(t, "ref", 1);
    uint32_t n_vocab = model_info(m)->n_vocab;
    static float logits[(20 + STEPS) * VOCAB_MAX];

    for (uint32_t i = 0; i < SEQS; i++) {
        int32_t tokens[20 + STEPS];
        struct tiny_seq seq = {.slot = i, .tokens = tokens, .n_tokens = 20 + STEPS};

        tiny_tokens(tokens, 20, i + 1);
        memcpy(tokens + 20, drawn[i], STEPS * sizeof(*tokens));
        tiny_logits(m, &seq, 1, logits);
        for (uint32_t s = 0; s < STEPS; s++) {
            const float *row = logits + (size_t)(19 + s) * n_vocab;
            float best = row[0], largest = 0;

            for (uint32_t v = 0; v < n_vocab; v++) {
                best = fmaxf(best, row[v]);
                largest = fmaxf(largest, fabsf(row[v]));
            }
            if (best - row[drawn[i][s]] > 2 * tolerance * largest)
                fail_msg("sequence %u, token %u: %d is %g below the best", i, s, drawn[i][s],
                         (double)(best - row[drawn[i][s]]));
        }
    }
    model_free(m);
}

static void decodes_follow_the_reference(void **state)
{
    static const struct {
        const char *arch;
        unsigned n_ranks;
        bool no_graphs;
    } table[] = {{"llama", 1, false}, {"llama", 1, true},  {"gemma3", 1, false},
                 {"nine", 1, false},  {"nine", 2, false},  {"nine", 2, true},
                 {"nine", 3, false},  {"gemma3", 2, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        int32_t drawn[SEQS][STEPS];
        struct tiny t;

        if (table[i].n_ranks > n_gpus())
            continue;
        print_message("%s on %u ranks, graphs %s\n", table[i].arch, table[i].n_ranks,
                      table[i].no_graphs ? "off" : "on");
        tiny_init(&t, table[i].arch);
        decode(&t, "cuda", table[i].n_ranks, table[i].no_graphs, drawn);
        check_draws(&t, drawn);
        tiny_release(&t);
    }
}

/* What a step still computes when its model goes finds its memory until it ends: the device works
 * for the next one. */
static void a_model_goes_while_a_step_runs(void **state)
{
    static const uint32_t ids[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
    struct plan_seq seq = {.n_tokens = 20, .table_first = {0, 5}, .table_len = {5, 5}};
    struct plan_sample sample = {.top_p = 1};
    int32_t tokens[20], drawn = -1;
    struct tiny_seq again = {.tokens = tokens, .n_tokens = 20, .sample = true};
    struct step_plan plan = {.n_tokens = 20,
                             .n_seqs = 1,
                             .n_samples = 1,
                             .n_block_ids = 10,
                             .tokens = tokens,
                             .seqs = &seq,
                             .samples = &sample,
                             .block_ids = ids};
    struct model_ticket ticket;
    struct model *m;
    struct tiny t;
    struct err err;

    (void)state;
    tiny_init(&t, "llama");
    tiny_tokens(tokens, 20, 1);
    for (int i = 0; i < 5; i++) {
        m = tiny_ranks(&t, "cuda", 1);
        assert_ok(model_submit(m, &plan, &ticket, &err), &err);
        model_free(m);
    }
    m = tiny_ranks(&t, "cuda", 1);
    tiny_step(m, &again, 1, &drawn);
    assert_in_range(drawn, 0, 49);
    model_free(m);
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(logits_are_the_references),
            cmocka_unit_test(decodes_follow_the_reference),
            cmocka_unit_test(a_model_goes_while_a_step_runs),
    };

    return n_gpus() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
