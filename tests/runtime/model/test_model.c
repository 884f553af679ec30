/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "tests/runtime/model/tiny_model.h"

static const int32_t prompt[] = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32};
enum { N_PROMPT = sizeof(prompt) / sizeof(prompt[0]) };

struct progress {
    uint64_t last;
    uint64_t total;
    unsigned calls;
};

static void on_progress(void *userdata, uint64_t bytes, uint64_t total)
{
    struct progress *p = userdata;

    assert_true(bytes > p->last && bytes <= total);
    p->last = bytes;
    p->total = total;
    p->calls++;
}

static void info_and_progress(void **state)
{
    struct progress p = {0};
    struct model_options o = {.device = "ref",
                              .n_threads = 1,
                              .slots_max = 2,
                              .tokens_max = 8,
                              .context_max = 100,
                              .on_progress = on_progress,
                              .userdata = &p};
    CLEANUP(model_freep) struct model *m = NULL;
    const struct model_info *i;
    struct tiny t;
    struct err err;

    (void)state;
    tiny_init(&t, "gemma3");
    assert_ok(model_new(t.gguf, &o, &m, &err), &err);
    i = model_info(m);
    assert_string_equal(i->arch, "gemma3");
    assert_string_equal(i->device, "ref");
    assert_int_equal(i->n_vocab, 70);
    assert_int_equal(i->context_train, TINY_CONTEXT);
    assert_int_equal(i->context_max, 100);
    assert_int_equal(i->n_layers, 7);
    assert_int_equal(i->n_groups, 2);
    assert_int_equal(i->groups[0].block_bytes, 1 * 2 * 32 * 32 * 4);
    assert_int_equal(i->groups[1].block_bytes, 6 * 2 * 32 * 32 * 4);
    assert_int_equal(i->groups[1].window, 40);
    assert_true(p.calls == gguf_n_tensors(t.gguf) && p.last == p.total);
    assert_int_equal(i->weight_bytes, p.total);
    tiny_release(&t);
}

/* The devices agree on the distribution of a random model within what int8 activations cost. */
static void cpu_is_close_to_ref(void **state)
{
    static const char *const archs[] = {"llama", "gemma3"};

    (void)state;
    for (size_t a = 0; a < 2; a++) {
        struct tiny t;
        struct model *ref;
        struct model *cpu;
        struct tiny_seq seq = {.slot = 1, .tokens = prompt, .n_tokens = N_PROMPT};
        float want[N_PROMPT * 70];
        float got[N_PROMPT * 70];
        float most = 0;
        float worst = 0;
        uint32_t n;

        tiny_init(&t, archs[a]);
        ref = tiny_model(&t, "ref", 1);
        cpu = tiny_model(&t, "cpu", 2);
        assert_non_null(strstr(model_info(cpu)->device, "cpu ("));
        n = N_PROMPT * model_info(ref)->n_vocab;
        tiny_logits(ref, &seq, 1, want);
        tiny_logits(cpu, &seq, 1, got);
        for (uint32_t i = 0; i < n; i++) {
            most = fmaxf(most, fabsf(want[i]));
            worst = fmaxf(worst, fabsf(got[i] - want[i]));
        }
        assert_true(worst > 0 && worst < 0.05F * most);
        model_free(ref);
        model_free(cpu);
        tiny_release(&t);
    }
}

/* Sampling on the device, step by step: the tokens are the best of the logits, whether the plan
 * names them or asks for what was sampled last. */
static void greedy_steps(void **state)
{
    struct tiny t;
    struct model *m;
    int32_t tokens[N_PROMPT + 8];
    float logits[(N_PROMPT + 8) * 50];
    int32_t last = PLAN_TOKEN_LAST_SAMPLE;
    struct tiny_seq seq = {.slot = 3, .tokens = prompt, .n_tokens = N_PROMPT, .sample = true};

    (void)state;
    tiny_init(&t, "llama");
    m = tiny_model(&t, "cpu", 2);
    memcpy(tokens, prompt, sizeof(prompt));
    for (uint32_t i = 0; i < 8; i++) {
        tiny_step(m, &seq, 1, &tokens[N_PROMPT + i]);
        seq.start_pos += seq.n_tokens;
        seq.n_tokens = 1;
        seq.tokens = i % 2 ? &last : &tokens[N_PROMPT + i];
    }
    seq = (struct tiny_seq){.slot = 5, .tokens = tokens, .n_tokens = N_PROMPT + 8};
    tiny_logits(m, &seq, 1, logits);
    for (uint32_t i = 0; i < 8; i++) {
        const float *row = logits + (size_t)(N_PROMPT - 1 + i) * 50;
        int32_t best = 0;

        for (int32_t v = 1; v < 50; v++)
            best = row[v] > row[best] ? v : best;
        assert_int_equal(tokens[N_PROMPT + i], best);
    }
    model_free(m);
    tiny_release(&t);
}

/* A row of logits that is not finite is that row's trouble alone. */
static void a_bad_row_is_alone(void **state)
{
    static const int32_t bad[] = {4, 11};
    struct tiny t;
    struct model *m;
    int32_t alone;
    int32_t both[2];
    struct tiny_seq seqs[2] = {
            {.slot = 0, .tokens = bad, .n_tokens = 2, .sample = true},
            {.slot = 1, .tokens = prompt, .n_tokens = N_PROMPT, .sample = true},
    };
    uint8_t *embed;

    (void)state;
    tiny_init(&t, "llama");
    /* token 11's first scale becomes infinite: both embedding tables are Q8_0, rows of 2 blocks */
    embed = (uint8_t *)(uintptr_t)gguf_tensor(t.gguf, "token_embd.weight")->data;
    embed[11 * 68] = 0;
    embed[11 * 68 + 1] = 0x7c;
    m = tiny_model(&t, "cpu", 1);
    tiny_step(m, &seqs[1], 1, &alone);
    assert_in_range(alone, 0, 49);
    tiny_step(m, seqs, 2, both);
    assert_int_equal(both[0], MODEL_TOKEN_BAD);
    assert_int_equal(both[1], alone);
    model_free(m);
    tiny_release(&t);
}

static void wrong_tensors_are_refused(void **state)
{
    enum { MISSING, SHAPE, BIAS, LAYER, N_CASES };
    static const char *const says[N_CASES] = {
            "'token_embd.weight' is missing",
            "'output.weight' is 64 x 49 x 1, want 64 x 50",
            "'blk.0.attn_q.bias' is not supported",
            "layers use",
    };
    static const float zeros[64 * 64];

    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        CLEANUP(gguf_builder_release) struct gguf_builder b;
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct model_options o = {.device = "ref", .n_threads = 1, .slots_max = 1, .tokens_max = 8};
        struct model *m = NULL;
        struct err err;

        gguf_builder_init(&b);
        tiny_keys(&b, "llama");
        if (i == SHAPE) {
            gguf_builder_tensor(&b, "token_embd.weight", GGUF_F32, 64, 50, zeros, 64 * 50 * 4);
            gguf_builder_tensor(&b, "output.weight", GGUF_F32, 64, 49, zeros, 64 * 49 * 4);
        }
        if (i == BIAS || i == LAYER)
            tiny_tensors(&b, "llama");
        if (i == BIAS)
            gguf_builder_tensor(&b, "blk.0.attn_q.bias", GGUF_F32, 64, 0, zeros, 64 * 4);
        if (i == LAYER)
            gguf_builder_tensor(&b, "blk.3.attn_norm.weight", GGUF_F32, 64, 0, zeros, 64 * 4);
        gguf_builder_end(&b);
        assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
        assert_int_equal(model_new(g, &o, &m, &err), -ERR_INVALID);
        if (!strstr(err.msg, says[i]))
            fail_msg("want '%s' in '%s'", says[i], err.msg);
    }
}

static void wrong_options_are_refused(void **state)
{
    static const struct model_options table[] = {
            {.device = "ref", .n_threads = 1, .slots_max = 0, .tokens_max = 8},
            {.device = "ref", .n_threads = 1, .slots_max = 1, .tokens_max = 0},
            {.device = "tpu", .n_threads = 1, .slots_max = 1, .tokens_max = 8},
            {.device = "cpu", .n_threads = 100000, .slots_max = 1, .tokens_max = 8},
    };
    struct tiny t;

    (void)state;
    tiny_init(&t, "llama");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct model *m = NULL;
        struct err err;

        assert_int_equal(model_new(t.gguf, &table[i], &m, &err), -ERR_INVALID);
        assert_null(m);
    }
    tiny_release(&t);
}

/* A plan that would leave the model's memory is refused before anything is computed. */
static void wrong_plans_are_refused(void **state)
{
    struct tiny t;
    struct model *m;
    struct err err;
    struct model_ticket ticket;

    (void)state;
    tiny_init(&t, "gemma3");
    m = tiny_model(&t, "cpu", 1);
    for (int i = 0; i <= 14; i++) {
        int32_t tokens[2] = {1, 2};
        uint32_t blocks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        struct plan_seq seq = {.n_tokens = 2, .sample = 0, .table_len = {8, 8}};
        struct plan_sample sample = {.top_p = 1};
        struct step_plan p = {.n_tokens = 2,
                              .n_seqs = 1,
                              .n_samples = 1,
                              .n_block_ids = 8,
                              .tokens = tokens,
                              .seqs = &seq,
                              .samples = &sample,
                              .block_ids = blocks};

        if (i == 1)
            tokens[1] = 70;
        if (i == 2)
            tokens[1] = -2;
        if (i == 3)
            seq.slot = 8, sample.slot = 8;
        if (i == 4)
            seq.start_pos = TINY_CONTEXT - 1;
        if (i == 5)
            seq.table_len[1] = 0;
        if (i == 6)
            seq.table_first[0] = 1;
        if (i == 7)
            blocks[0] = TINY_BLOCKS;
        if (i == 8)
            seq.first_token = 1;
        if (i == 9)
            seq.n_tokens = 1;
        if (i == 10)
            seq.sample = 1;
        if (i == 11)
            sample.top_p = 0;
        if (i == 12)
            sample.temperature = NAN;
        if (i == 13)
            sample.slot = 1;
        if (i == 14) /* group 0 still needs block 0, whatever the window has left behind */
            seq.start_pos = 100, blocks[0] = PLAN_BLOCK_NONE;
        assert_int_equal(model_submit(m, &p, &ticket, &err), i == 0 ? 0 : -ERR_INTERNAL);
    }
    ticket.step = 99;
    assert_int_equal(model_collect(m, ticket, NULL, &err), -ERR_INTERNAL);
    model_free(m);
    tiny_release(&t);
}

static int model_once(const struct tiny *t, struct err *err)
{
    struct model_options o = {.device = "cpu", .n_threads = 1, .slots_max = 2, .tokens_max = 8};
    static const uint32_t n_blocks[PLAN_GROUPS_MAX] = {2, 2, 2, 2};
    struct model *m = NULL;
    int r = model_new(t->gguf, &o, &m, err);

    if (r == 0)
        r = model_kv_init(m, n_blocks, err);
    model_free(m);
    return r;
}

static void survives_no_memory(void **state)
{
    struct tiny t;
    struct err err;

    (void)state;
    tiny_init(&t, "llama");
    mem_sweep(model_once(&t, &err));
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(info_and_progress),
            cmocka_unit_test(cpu_is_close_to_ref),
            cmocka_unit_test(greedy_steps),
            cmocka_unit_test(a_bad_row_is_alone),
            cmocka_unit_test(wrong_tensors_are_refused),
            cmocka_unit_test(wrong_options_are_refused),
            cmocka_unit_test(wrong_plans_are_refused),
            cmocka_unit_test(survives_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
