/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.c - a model beside its reference answers, teacher-forced.
 *
 *   reference MODEL.gguf GOLDEN DEVICE STEP [TOKENS]
 *
 * STEP 1 is everything; else every STEP-th prompt and that part of the text.  With TOKENS it is the
 * SHORTEST shortest prompts with that many tokens of their answers, and no text.  Prints one
 * "name value" a line; tests/integration/reference judges them.
 *   max_relative    greatest |logit - reference| / max |reference|, over the reference's top ids
 *   order_wrong     positions with another best token although the reference's two best are
 *                   further apart than twice 1e-3 max |reference|
 *   mean_kl         of the reference's distribution to ours; what is not in the top ids counts
 *                   as one more outcome
 *   top1            share of positions with the same best token
 *   perplexity, reference_perplexity      of the text
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"
#include "runtime/model/model.h"
#include "tests/runtime/reference/golden.h"

enum {
    STEP_MAX = 20,
    SHORTEST = 4,
    CHUNK = 64,
    POSITIONS_MAX = 2048,
    BLOCKS = POSITIONS_MAX / MODEL_BLOCK_SIZE
};

static const double tolerance = 1e-3;

struct figures {
    uint64_t n;
    double max_relative;
    uint64_t order_wrong;
    double sum_kl;
    uint64_t same_best;
};

struct run {
    struct model *model;
    uint32_t step;
    uint32_t answer; /* tokens of an answer that are looked at; 0: all, of every step-th prompt */
    uint32_t n_vocab;
    float *logits; /* [CHUNK][n_vocab] */
    uint32_t blocks[BLOCKS];
};

static int run_new(struct run *run, const struct gguf *file, const char *device, struct err *err)
{
    struct model_options o = {
            .device = device, .slots_max = 1, .tokens_max = CHUNK, .context_max = POSITIONS_MAX};
    uint32_t n_blocks[PLAN_GROUPS_MAX];
    int r = model_new(file, &o, &run->model, err);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < BLOCKS; i++)
        run->blocks[i] = BLOCKS - 1 - i;
    for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
        n_blocks[g] = BLOCKS;
    run->n_vocab = model_info(run->model)->n_vocab;
    run->logits = mem_calloc((size_t)CHUNK * run->n_vocab, sizeof(*run->logits));
    if (!run->logits)
        return err_set(err, ERR_NO_MEMORY, "logits");
    return model_kv_init(run->model, n_blocks, err);
}

/* Logits of tokens[first .. first + n - 1], those before being in the cache. */
static int run_chunk(struct run *run, const int32_t *tokens, uint32_t first, uint32_t n,
                     struct err *err)
{
    struct plan_seq seq = {.n_tokens = n, .start_pos = first, .sample = PLAN_NO_SAMPLE};
    struct step_plan plan = {.n_tokens = n,
                             .n_seqs = 1,
                             .n_block_ids = BLOCKS,
                             .tokens = tokens + first,
                             .seqs = &seq,
                             .block_ids = run->blocks};

    for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
        seq.table_len[g] = BLOCKS;
    return model_logits(run->model, &plan, run->logits, err);
}

static double log_sum_exp(const float *row, uint32_t n, uint32_t *ret_best)
{
    double sum = 0;
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - (double)row[best]);
    *ret_best = best;
    return (double)row[best] + log(sum);
}

static void compare(const struct run *run, const float *row, const struct golden_position *p,
                    uint32_t top, struct figures *f)
{
    uint32_t best;
    double lse = log_sum_exp(row, run->n_vocab, &best);
    double rest_p = 1;
    double rest_q = 1;
    double kl = 0;

    for (uint32_t i = 0; i < top; i++) {
        double reference = (double)p->maximum - p->below[i] * GOLDEN_UNIT;
        double ours = (double)row[p->ids[i]];
        double log_p = reference - (double)p->log_sum_exp;
        double log_q = ours - lse;

        if (p->below[i] < GOLDEN_FAR)
            f->max_relative = fmax(f->max_relative, fabs(ours - reference) / (double)p->magnitude);
        kl += exp(log_p) * (log_p - log_q);
        rest_p -= exp(log_p);
        rest_q -= exp(log_q);
    }
    if (rest_p > 1e-9 && rest_q > 1e-9)
        kl += rest_p * log(rest_p / rest_q);
    f->sum_kl += kl;
    f->same_best += best == p->ids[0];
    if (best != p->ids[0] && p->below[1] * GOLDEN_UNIT > 2 * tolerance * (double)p->magnitude)
        f->order_wrong++;
    f->n++;
}

static bool is_wanted(const struct run *run, const struct golden *g, uint32_t i)
{
    uint32_t shorter = 0, n = golden_prompt_at(g, i)->n_prompt;

    if (run->answer == 0)
        return i % run->step == 0;
    for (uint32_t k = 0; k < golden_n_prompts(g); k++) {
        uint32_t other = golden_prompt_at(g, k)->n_prompt;

        shorter += other < n || (other == n && k < i);
    }
    return shorter < SHORTEST;
}

static int run_prompts(struct run *run, const struct golden *g, struct figures *f, struct err *err)
{
    for (uint32_t i = 0; i < golden_n_prompts(g); i++) {
        const struct golden_prompt *p = golden_prompt_at(g, i);
        uint32_t end = run->answer && p->n_prompt + run->answer < p->n_total
                               ? p->n_prompt + run->answer
                               : p->n_total;

        if (!is_wanted(run, g, i))
            continue;
        for (uint32_t at = 0; at < end; at += CHUNK) {
            uint32_t n = end - at < CHUNK ? end - at : CHUNK;
            int r = run_chunk(run, p->tokens, at, n, err);

            if (r < 0)
                return r;
            for (uint32_t j = 0; j < n; j++) {
                struct golden_position position = golden_position_at(g, p, at + j);

                compare(run, run->logits + (size_t)j * run->n_vocab, &position, golden_top(g), f);
            }
        }
        fprintf(stderr, "prompt %u of %u: %u tokens\n", i + 1, golden_n_prompts(g), end);
    }
    return 0;
}

static int run_text(struct run *run, const struct golden *g, double *ret_ours,
                    double *ret_reference, struct err *err)
{
    const int32_t *tokens;
    const float *probabilities;
    uint32_t n = golden_text(g, &tokens, &probabilities) / run->step;
    double ours = 0;
    double reference = 0;

    for (uint32_t at = 0; at < n; at += CHUNK) {
        uint32_t count = n - at < CHUNK ? n - at : CHUNK;
        int r = run_chunk(run, tokens, at, count, err);

        if (r < 0)
            return r;
        for (uint32_t j = 0; j < count && at + j + 1 < n; j++) {
            const float *row = run->logits + (size_t)j * run->n_vocab;
            uint32_t best;

            ours -= (double)row[tokens[at + j + 1]] - log_sum_exp(row, run->n_vocab, &best);
            reference -= (double)probabilities[at + j];
        }
    }
    *ret_ours = exp(ours / (n - 1));
    *ret_reference = exp(reference / (n - 1));
    return 0;
}

static int run_all(char **argv, uint32_t step, uint32_t answer, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *file = NULL;
    CLEANUP(golden_freep) struct golden *golden = NULL;
    struct run run = {.step = step, .answer = answer};
    struct figures f = {0};
    double ours = 0;
    double reference = 0;
    int r = gguf_open(argv[1], &file, err);

    if (r == 0)
        r = golden_open(argv[2], &golden, err);
    if (r == 0)
        r = run_new(&run, file, argv[3], err);
    if (r == 0 && run.n_vocab != golden_n_vocab(golden))
        r = err_set(err, ERR_INVALID, "the golden file is of another model");
    if (r == 0)
        r = run_prompts(&run, golden, &f, err);
    if (r == 0 && answer == 0)
        r = run_text(&run, golden, &ours, &reference, err);
    if (r == 0)
        printf("device %s\npositions %llu\nmax_relative %.6g\norder_wrong %llu\nmean_kl %.6g\n"
               "top1 %.6f\nperplexity %.6f\nreference_perplexity %.6f\n",
               model_info(run.model)->device, (unsigned long long)f.n, f.max_relative,
               (unsigned long long)f.order_wrong, f.sum_kl / (double)f.n,
               (double)f.same_best / (double)f.n, ours, reference);
    mem_free(run.logits);
    model_free(run.model);
    return r;
}

int main(int argc, char **argv)
{
    struct err err;
    uint64_t step, answer = 0;

    if (argc < 5 || argc > 6 || parse_u64(argv[4], 1, STEP_MAX, &step, &err) < 0 ||
        (argc == 6 && parse_u64(argv[5], 1, CHUNK, &answer, &err) < 0)) {
        fprintf(stderr, "usage: reference MODEL.gguf GOLDEN DEVICE STEP [TOKENS]\n");
        return 2;
    }
    if (run_all(argv, (uint32_t)step, (uint32_t)answer, &err) < 0) {
        fprintf(stderr, "reference: %s\n", err.msg);
        return 1;
    }
    return 0;
}
