/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism: shards cover the model once, and several ranks compute what one does.
 */
#include "tests/support.h"

#include <math.h>

#include "runtime/model/shard.h"
#include "tests/runtime/model/tiny_model.h"

enum { VOCAB_MAX = 70, RANKS_MAX = 8 };

static struct arch arch_with(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                             uint32_t n_ff)
{
    return (struct arch){.n_heads = n_heads,
                         .n_kv_heads = n_kv_heads,
                         .head_dim = head_dim,
                         .n_ff = n_ff,
                         .n_vocab = 1000};
}

/* Heads, feed-forward and vocabulary are covered once, in order; a rank's heads use its KV heads
 * evenly. */
static void check_cover(const struct arch *a, unsigned size, uint32_t head_block, uint32_t ff_block)
{
    uint32_t group = a->n_heads / a->n_kv_heads, head = 0, ff = 0, vocab = 0;

    for (unsigned k = 0; k < size; k++) {
        struct shard s;
        struct err err;

        assert_ok(shard_make(a, k, size, head_block, ff_block, &s, &err), &err);
        assert_int_equal(s.first_head, head);
        assert_int_equal(s.first_ff, ff);
        assert_int_equal(s.first_vocab, vocab);
        assert_true(s.n_heads > 0 && s.n_kv_heads > 0 && s.n_ff > 0 && s.n_vocab > 0);
        assert_int_equal(s.n_heads % s.n_kv_heads, 0);
        assert_int_equal(s.first_head / group, s.first_kv_head);
        assert_int_equal((s.first_head + s.n_heads - 1) / group,
                         s.first_kv_head + s.n_kv_heads - 1);
        assert_true(s.n_kv_heads == 1 || s.n_heads == s.n_kv_heads * group);
        assert_int_equal(s.first_head * a->head_dim % head_block, 0);
        assert_int_equal(s.first_ff % ff_block, 0);
        assert_true(s.n_vocab <= s.n_vocab_part);
        head += s.n_heads;
        ff += s.n_ff;
        vocab += s.n_vocab;
    }
    assert_int_equal(head, a->n_heads);
    assert_int_equal(ff, a->n_ff);
    assert_int_equal(vocab, a->n_vocab);
}

static void shards_cover_the_model(void **state)
{
    static const struct {
        uint32_t n_heads, n_kv_heads, head_dim, n_ff, head_block, ff_block;
        unsigned size_max;
    } table[] = {
            {9, 3, 64, 1536, 32, 32, 8},      {4, 1, 256, 2048, 256, 256, 4},
            {32, 8, 128, 14336, 256, 256, 8}, {64, 8, 128, 28672, 32, 32, 8},
            {16, 16, 64, 4096, 256, 256, 4},  {5, 5, 32, 160, 1, 1, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct arch a =
                arch_with(table[i].n_heads, table[i].n_kv_heads, table[i].head_dim, table[i].n_ff);
        unsigned size_max = table[i].size_max;
        struct shard s;
        struct err err;

        for (unsigned size = 1; size <= size_max; size++)
            check_cover(&a, size, table[i].head_block, table[i].ff_block);
        if (size_max == RANKS_MAX)
            continue;
        assert_int_equal(
                shard_make(&a, 0, size_max + 1, table[i].head_block, table[i].ff_block, &s, &err),
                -ERR_INVALID);
        assert_non_null(strstr(err.msg, "--tensor-parallel-size can be at most"));
    }
}

static void check_ranks(const char *arch, const char *device, float tolerance)
{
    static float want[TINY_ROWS * VOCAB_MAX], got[TINY_ROWS * VOCAB_MAX];
    struct tiny t;
    struct model *m;
    float largest = 0;
    size_t n;

    tiny_init(&t, arch);
    m = tiny_model(&t, device, 2);
    n = (size_t)TINY_ROWS * model_info(m)->n_vocab;
    tiny_two_chunks(m, want);
    model_free(m);
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(want[i]));
    for (unsigned n_ranks = 2; n_ranks <= 3; n_ranks++) {
        m = tiny_ranks(&t, device, n_ranks);
        assert_int_equal(model_info(m)->n_ranks, n_ranks);
        tiny_two_chunks(m, got);
        for (size_t i = 0; i < n; i++)
            if (!(fabsf(want[i] - got[i]) <= tolerance * largest))
                fail_msg("%s on %u ranks of %s: %g, want %g", arch, n_ranks, device, (double)got[i],
                         (double)want[i]);
        model_free(m);
    }
    tiny_release(&t);
}

static void ranks_compute_what_one_does(void **state)
{
    (void)state;
    check_ranks("llama", "ref", 1e-5F);
    check_ranks("gemma3", "ref", 1e-5F);
    check_ranks("llama", "cpu", 2e-2F);
    check_ranks("gemma3", "cpu", 2e-2F);
}

/* Greedy tokens, with each step started before the one before it is collected: what a slot drew is
 * known to the ranks alone. */
static void draw_ahead(const struct tiny *t, const char *device, unsigned n_ranks, int32_t *ret,
                       uint32_t n_steps)
{
    struct model *m = tiny_ranks(t, device, n_ranks);
    static const uint32_t ids[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
    int32_t prompt[7], last = PLAN_TOKEN_LAST_SAMPLE;
    struct plan_seq seqs[2];
    struct plan_sample sample = {.temperature = 0, .top_p = 1};
    struct step_plan plans[2];
    struct model_ticket tickets[2];
    struct err err;

    tiny_tokens(prompt, 7, 11);
    for (uint32_t i = 0; i <= n_steps; i++) {
        struct plan_seq *s = &seqs[i % 2];

        if (i < n_steps) {
            *s = (struct plan_seq){.n_tokens = i ? 1 : 7,
                                   .start_pos = i ? 6 + i : 0,
                                   .table_first = {0, 5},
                                   .table_len = {5, 5}};
            plans[i % 2] = (struct step_plan){.n_tokens = s->n_tokens,
                                              .n_seqs = 1,
                                              .n_samples = 1,
                                              .n_block_ids = 10,
                                              .tokens = i ? &last : prompt,
                                              .seqs = s,
                                              .samples = &sample,
                                              .block_ids = ids};
            assert_ok(model_submit(m, &plans[i % 2], &tickets[i % 2], &err), &err);
        }
        if (i > 0)
            assert_ok(model_collect(m, tickets[(i - 1) % 2], &ret[i - 1], &err), &err);
    }
    model_free(m);
}

static void steps_run_ahead(void **state)
{
    enum { STEPS = 20 };
    int32_t one[STEPS], two[STEPS];
    struct tiny t;

    (void)state;
    tiny_init(&t, "llama");
    draw_ahead(&t, "ref", 1, one, STEPS);
    draw_ahead(&t, "ref", 2, two, STEPS);
    assert_memory_equal(one, two, sizeof(one));
    tiny_release(&t);
}

static void too_many_ranks_are_refused(void **state)
{
    struct model_options o = {.device = "ref", .slots_max = 1, .tokens_max = 1, .n_ranks = 4};
    struct model *m = NULL;
    struct tiny t;
    struct err err;

    (void)state;
    tiny_init(&t, "llama"); /* 96 feed-forward values are three groups */
    assert_int_equal(model_new(t.gguf, &o, &m, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, "at most 3"));
    o.n_ranks = 9;
    assert_int_equal(model_new(t.gguf, &o, &m, &err), -ERR_INVALID);
    tiny_release(&t);
}

static int make_model(const struct tiny *t, struct err *err)
{
    struct model_options o = {
            .device = "cpu", .n_threads = 2, .slots_max = 2, .tokens_max = 4, .n_ranks = 2};
    struct model *m = NULL;
    int r = model_new(t->gguf, &o, &m, err);

    model_free(m);
    return r;
}

static void ranks_survive_every_oom(void **state)
{
    struct tiny t;
    struct err err = {0};

    (void)state;
    tiny_init(&t, "llama");
    mem_sweep(make_model(&t, &err));
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(shards_cover_the_model),
            cmocka_unit_test(ranks_compute_what_one_does),
            cmocka_unit_test(steps_run_ahead),
            cmocka_unit_test(too_many_ranks_are_refused),
            cmocka_unit_test(ranks_survive_every_oom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
