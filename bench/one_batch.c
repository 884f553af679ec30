/* SPDX-License-Identifier: Apache-2.0
 *
 * one_batch.c - one sequence straight through the model, without engine or server.
 *
 *   one_batch MODEL.gguf DEVICE THREADS PROMPT GENERATE
 *
 * Loads the model, then for every line on standard input computes a prompt of PROMPT tokens in
 * one step and GENERATE greedy tokens one by one, and prints "prefill TOKENS/S decode TOKENS/S".
 * At the end of input it prints "peak_kib N kv_kib N" and leaves.  Driven by bench_peer.py.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"
#include "runtime/model/model.h"

enum { POSITIONS_MAX = 1 << 16, LINE_BYTES = 256 };

struct run {
    struct model *model;
    uint32_t n_prompt;
    uint32_t n_generate;
    uint32_t n_blocks;
    uint32_t *blocks;
    int32_t *tokens;
    uint64_t kv_bytes;
};

static int step(const struct run *run, const int32_t *tokens, uint32_t n, uint32_t position,
                struct err *err)
{
    struct plan_seq seq = {.n_tokens = n, .start_pos = position};
    struct plan_sample sample = {.position = position + n, .top_p = 1};
    struct step_plan plan = {.n_tokens = n,
                             .n_seqs = 1,
                             .n_samples = 1,
                             .n_block_ids = run->n_blocks,
                             .tokens = tokens,
                             .seqs = &seq,
                             .samples = &sample,
                             .block_ids = run->blocks};
    struct model_ticket ticket;
    int32_t token;
    int r;

    for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
        seq.table_len[g] = run->n_blocks;
    r = model_submit(run->model, &plan, &ticket, err);
    return r < 0 ? r : model_collect(run->model, ticket, &token, err);
}

static int round_trip(const struct run *run, struct err *err)
{
    static const int32_t last = PLAN_TOKEN_LAST_SAMPLE;
    const struct clock *clock = clock_system();
    uint64_t start = clock_ns(clock);
    uint64_t middle;
    int r = step(run, run->tokens, run->n_prompt, 0, err);

    middle = clock_ns(clock);
    for (uint32_t i = 0; r == 0 && i < run->n_generate; i++)
        r = step(run, &last, 1, run->n_prompt + i, err);
    if (r == 0) {
        printf("prefill %.2f decode %.2f\n", run->n_prompt * 1e9 / (double)(middle - start),
               run->n_generate * 1e9 / (double)(clock_ns(clock) - middle));
        (void)fflush(stdout);
    }
    return r;
}

static int run_new(struct run *run, const struct gguf *file, const char *device, uint32_t n_threads,
                   struct err *err)
{
    struct model_options o = {
            .device = device, .n_threads = n_threads, .slots_max = 1, .tokens_max = run->n_prompt};
    uint32_t n_blocks[PLAN_GROUPS_MAX];
    int r = model_new(file, &o, &run->model, err);

    if (r < 0)
        return r;
    run->n_blocks = (run->n_prompt + run->n_generate + MODEL_BLOCK_SIZE - 1) / MODEL_BLOCK_SIZE;
    run->blocks = mem_calloc(run->n_blocks, sizeof(*run->blocks));
    run->tokens = mem_calloc(run->n_prompt, sizeof(*run->tokens));
    if (!run->blocks || !run->tokens)
        return err_set(err, ERR_NO_MEMORY, "bench");
    for (uint32_t i = 0; i < run->n_blocks; i++)
        run->blocks[i] = i;
    for (uint32_t i = 0; i < run->n_prompt; i++)
        run->tokens[i] = (int32_t)((10 + i * 37) % model_info(run->model)->n_vocab);
    for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
        n_blocks[g] = run->n_blocks;
    for (uint32_t g = 0; g < model_info(run->model)->n_groups; g++)
        run->kv_bytes += model_info(run->model)->groups[g].block_bytes * run->n_blocks;
    return model_kv_init(run->model, n_blocks, err);
}

static void print_memory(const struct run *run)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[LINE_BYTES];

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmHWM:", 6) == 0) {
            line[strcspn(line, "k")] = '\0';
            printf("peak_kib %s kv_kib %llu\n", line + 6 + strspn(line + 6, " \t"),
                   (unsigned long long)(run->kv_bytes >> 10));
        }
    if (f)
        (void)fclose(f);
}

static int bench(char **argv, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *file = NULL;
    struct run run = {0};
    uint64_t threads = 0;
    uint64_t n_prompt = 0;
    uint64_t n_generate = 0;
    char line[LINE_BYTES];
    int r = parse_u64(argv[3], 0, 256, &threads, err);

    if (r == 0)
        r = parse_u64(argv[4], 1, POSITIONS_MAX, &n_prompt, err);
    if (r == 0)
        r = parse_u64(argv[5], 1, POSITIONS_MAX, &n_generate, err);
    if (r == 0)
        r = gguf_open(argv[1], &file, err);
    run.n_prompt = (uint32_t)n_prompt;
    run.n_generate = (uint32_t)n_generate;
    if (r == 0)
        r = run_new(&run, file, argv[2], (uint32_t)threads, err);
    while (r == 0 && fgets(line, sizeof(line), stdin))
        r = round_trip(&run, err);
    if (r == 0)
        print_memory(&run);
    model_free(run.model);
    mem_free(run.blocks);
    mem_free(run.tokens);
    return r;
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc != 6) {
        fprintf(stderr, "usage: one_batch MODEL.gguf DEVICE THREADS PROMPT GENERATE\n");
        return 2;
    }
    if (bench(argv, &err) < 0) {
        fprintf(stderr, "one_batch: %s\n", err.msg);
        return 1;
    }
    return 0;
}
