/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence's logits, bit for bit: whatever it is batched with, however its prompt is cut into
 * chunks, on any number of threads, on either device, and with the blocks gone that a window has
 * left behind.
 */
#include "tests/support.h"

#include "runtime/model/decoder.h"
#include "tests/kernels/kernel_data.h"
#include "tests/runtime/model/tiny_model.h"

enum { N = 150, VOCAB_MAX = 70 };

static int32_t tokens_a[N];
static int32_t tokens_b[N];

static int make_tokens(void **state)
{
    struct random r = {7};

    (void)state;
    for (int i = 0; i < N; i++) {
        tokens_a[i] = (int32_t)(random_u32(&r) % 50);
        tokens_b[i] = (int32_t)(random_u32(&r) % 50);
    }
    return 0;
}

/* Logits of tokens_a in slot 2, computed in chunks of the given sizes (0 ends; the last repeats),
 * each chunk beside tokens of another sequence (company), without the blocks behind the window
 * (left_behind). */
static float *logits_of(const struct tiny *t, const char *device, unsigned n_threads,
                        const uint32_t *chunks, bool company, bool left_behind)
{
    struct model *m = tiny_model(t, device, n_threads);
    uint32_t n_vocab = model_info(m)->n_vocab;
    float *out = test_alloc((size_t)N * n_vocab, sizeof(*out));
    float *both = test_alloc((size_t)2 * N * n_vocab, sizeof(*both));
    uint32_t other = 0;

    for (uint32_t at = 0; at < N;) {
        uint32_t n = *chunks < N - at ? *chunks : N - at;
        uint32_t n_other = company && other + 13 <= N ? 13 : 0;
        struct tiny_seq seqs[2] = {
                {.slot = 5, .tokens = tokens_b + other, .n_tokens = n_other, .start_pos = other},
                {.slot = 2,
                 .tokens = tokens_a + at,
                 .n_tokens = n,
                 .start_pos = at,
                 .left_behind = left_behind},
        };

        if (n_other == 0)
            tiny_logits(m, seqs + 1, 1, both);
        else
            tiny_logits(m, seqs, 2, both);
        memcpy(out + (size_t)at * n_vocab, both + (size_t)n_other * n_vocab,
               (size_t)n * n_vocab * sizeof(*out));
        at += n;
        other += n_other;
        chunks += chunks[1] != 0;
    }
    mem_free(both);
    model_free(m);
    return out;
}

static void check(const char *arch, const char *device)
{
    static const uint32_t whole[] = {N, 0};
    static const uint32_t single[] = {1, 0};
    static const uint32_t odd[] = {3, 31, 1, 64, 2, 17, 0};
    static const struct {
        unsigned n_threads;
        const uint32_t *chunks;
        bool company;
        bool left_behind;
    } table[] = {
            {1, single, false, false}, {2, odd, false, true},   {3, whole, false, false},
            {5, odd, true, false},     {2, single, true, true}, {1, whole, true, false},
    };
    struct tiny t;
    float *want;
    size_t bytes;

    tiny_init(&t, arch);
    want = logits_of(&t, device, 1, whole, false, false);
    bytes = (size_t)N * (strcmp(arch, "llama") == 0 ? 50 : 70) * sizeof(*want);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        float *got = logits_of(&t, device, table[i].n_threads, table[i].chunks, table[i].company,
                               table[i].left_behind);

        if (memcmp(want, got, bytes) != 0)
            fail_msg("%s on %s differs in row %zu", arch, device, i);
        mem_free(got);
    }
    mem_free(want);
    tiny_release(&t);
}

static void batches_change_no_bit(void **state)
{
    (void)state;
    check("llama", "cpu");
    check("gemma3", "cpu");
    check("llama", "ref");
    check("gemma3", "ref");
}

/* Many sequences at once, more tokens than a slice, sampled: each draws what it draws alone. */
static void streams_draw_what_they_draw_alone(void **state)
{
    enum { SEQS = 7, STEPS = 12 };
    int32_t together[STEPS][SEQS];
    int32_t alone;
    int32_t last = PLAN_TOKEN_LAST_SAMPLE;
    struct tiny t;
    struct model *m;

    (void)state;
    tiny_init(&t, "gemma3");
    m = tiny_model(&t, "cpu", 2);
    for (int solo = 0; solo < 2; solo++) {
        struct tiny_seq seqs[SEQS];

        for (uint32_t s = 0; s < SEQS; s++)
            seqs[s] = (struct tiny_seq){.slot = s,
                                        .tokens = s % 2 ? tokens_a : tokens_b,
                                        .n_tokens = 5 + s * 7,
                                        .sample = true,
                                        .temperature = (float)s * 0.3F};
        for (uint32_t i = 0; i < STEPS; i++) {
            if (!solo)
                tiny_step(m, seqs, SEQS, together[i]);
            for (uint32_t s = 0; s < SEQS; s++) {
                if (solo) {
                    tiny_step(m, &seqs[s], 1, &alone);
                    assert_int_equal(alone, together[i][s]);
                }
                seqs[s].start_pos += seqs[s].n_tokens;
                seqs[s].n_tokens = 1;
                seqs[s].tokens = &last;
            }
        }
    }
    model_free(m);
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(batches_change_no_bit),
            cmocka_unit_test(streams_draw_what_they_draw_alone),
    };

    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
