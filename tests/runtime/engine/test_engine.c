/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/engine.h"

#include <unistd.h>

#include "base/clock.h"
#include "runtime/engine/kv_budget.h"
#include "tests/runtime/model/tiny_model.h"
#include "tests/support.h"

enum { N = 16, PROMPT_MAX = 90, OUTPUT = 40, SEQS_MAX = 8, TOKENS_MAX = 48 };

/* Every test runs both ways: a step at a time, and the next one submitted before this one is known.
 */
static bool runs_ahead;
static unsigned n_ranks = 1;

/* An engine on a seeded model, with n_blocks in every group. */
struct rig {
    struct tiny tiny;
    struct model *model;
    struct health health;
    struct runtime_metrics *metrics;
    struct inbox *inbox;
    struct engine *engine;
};

static void rig_start(struct rig *rig, const char *arch, const char *device, uint32_t n_blocks)
{
    struct model_options mo = {.device = device,
                               .n_threads = 2,
                               .slots_max = SEQS_MAX,
                               .tokens_max = TOKENS_MAX,
                               .context_max = TINY_CONTEXT,
                               .n_ranks = n_ranks};
    struct inbox_options io = {.requests_max = 64, .tokens_max = 1 << 20};
    struct engine_options eo = {
            .sequences_max = SEQS_MAX, .tokens_max = TOKENS_MAX, .runs_ahead = runs_ahead};
    struct err err;

    memset(rig, 0, sizeof(*rig));
    tiny_init(&rig->tiny, arch);
    assert_ok(model_new(rig->tiny.gguf, &mo, &rig->model, &err), &err);
    health_init(&rig->health, 1000000000000);
    assert_ok(runtime_metrics_new("tiny", true, &rig->metrics, &err), &err);
    assert_ok(runtime_metrics_serving(rig->metrics, MODEL_BLOCK_SIZE, n_blocks, &err), &err);
    assert_ok(inbox_new(&io, &rig->inbox, &err), &err);
    eo.model = rig->model;
    eo.inbox = rig->inbox;
    eo.health = &rig->health;
    eo.metrics = rig->metrics;
    for (uint32_t g = 0; g < model_info(rig->model)->n_groups; g++)
        eo.n_blocks[g] = n_blocks;
    assert_ok(engine_start(&eo, &rig->engine, &err), &err);
}

static void rig_stop(struct rig *rig)
{
    inbox_close(rig->inbox);
    engine_free(rig->engine);
    inbox_free(rig->inbox);
    runtime_metrics_free(rig->metrics);
    model_free(rig->model);
    tiny_release(&rig->tiny);
}

/* Request i: a length, a prompt and a seed of its own; odd ones are sampled, even ones greedy. */
static struct request *make_request(const struct rig *rig, uint32_t i, uint32_t n_output)
{
    uint32_t n_vocab = model_info(rig->model)->n_vocab, n = 5 + (i * 37) % (PROMPT_MAX - 5);
    int32_t prompt[PROMPT_MAX];
    struct request *r;
    struct err err;

    for (uint32_t k = 0; k < n; k++)
        prompt[k] = (int32_t)((i * 7919u + k * k * 31u + k) % n_vocab);
    assert_ok(request_new(prompt, n, n_output, &r, &err), &err);
    r->arrival_ns = clock_ns(clock_system());
    r->ignore_eos = true;
    if (i % 2)
        r->sampling =
                (struct sampling){.temperature = 1, .top_p = 0.95f, .top_k = 20, .seed = 1000 + i};
    else
        r->sampling = (struct sampling){.top_p = 1};
    return r;
}

static void send(struct rig *rig, struct request *r)
{
    struct err err;

    assert_ok(inbox_reserve(rig->inbox, r->n_prompt, &err), &err);
    assert_true(inbox_send(rig->inbox, r));
}

static void await(const struct request *r)
{
    for (int i = 0; i < 60000 && request_finish(r) == FINISH_NONE; i++)
        (void)usleep(1000);
    assert_true(request_finish(r) != FINISH_NONE);
}

static double finished(const struct rig *rig)
{
    double n = 0;

    for (int i = 0; i < RUNTIME_FINISHES; i++)
        n += metric_get(rig->metrics->finished[i]);
    return n;
}

/* Every block is back, nothing waits, and what was accepted was ended. */
static void assert_idle(const struct rig *rig, double n_accepted)
{
    for (int i = 0; i < 5000 && (engine_in_progress(rig->engine) ||
                                 metric_get(rig->metrics->kv_blocks_used) > 0 ||
                                 metric_get(rig->metrics->running) > 0);
         i++)
        (void)usleep(1000);
    assert_int_equal(engine_in_progress(rig->engine), 0);
    assert_int_equal(inbox_waiting(rig->inbox), 0);
    assert_true(metric_get(rig->metrics->kv_blocks_used) == 0);
    assert_true(metric_get(rig->metrics->running) == 0);
    assert_true(metric_get(rig->metrics->in_progress) == 0);
    assert_true(finished(rig) == n_accepted);
}

static void run_alone(struct rig *rig, int32_t out[N][OUTPUT])
{
    for (uint32_t i = 0; i < N; i++) {
        struct request *r = make_request(rig, i, OUTPUT);

        send(rig, r);
        await(r);
        assert_int_equal(request_finish(r), FINISH_LENGTH);
        assert_int_equal(request_n_output(r), OUTPUT);
        memcpy(out[i], r->tokens + r->n_prompt, sizeof(out[i]));
        request_unref(r);
    }
}

static void run_together(struct rig *rig, int32_t want[N][OUTPUT])
{
    struct request *r[N];

    for (uint32_t i = 0; i < N; i++) {
        r[i] = make_request(rig, i, OUTPUT);
        send(rig, r[i]);
    }
    for (uint32_t i = 0; i < N; i++) {
        await(r[i]);
        assert_int_equal(request_finish(r[i]), FINISH_LENGTH);
        for (uint32_t k = 0; k < OUTPUT; k++)
            if (r[i]->tokens[r[i]->n_prompt + k] != want[i][k])
                fail_msg("request %u differs at token %u", i, k);
        request_unref(r[i]);
    }
}

/* Alone, together, and together with blocks for two or three of the eight that could run. */
static void check_same_answers(const char *arch, const char *device, int32_t alone[N][OUTPUT])
{
    struct rig rig;

    if (!runs_ahead) { /* the other way must give the same */
        rig_start(&rig, arch, device, 100);
        run_alone(&rig, alone);
        rig_stop(&rig);
    }
    rig_start(&rig, arch, device, 100);
    run_together(&rig, alone);
    assert_true(metric_get(rig.metrics->preemptions) == 0);
    assert_idle(&rig, N);
    rig_stop(&rig);

    rig_start(&rig, arch, device, 11);
    run_together(&rig, alone);
    assert_true(metric_get(rig.metrics->preemptions) > 0);
    assert_idle(&rig, N);
    rig_stop(&rig);
}

static void batches_and_preemption_change_no_token_llama(void **state)
{
    static int32_t alone[N][OUTPUT];

    (void)state;
    check_same_answers("llama", "cpu", alone);
}

static void batches_and_preemption_change_no_token_gemma3(void **state)
{
    static int32_t alone[N][OUTPUT];

    (void)state;
    check_same_answers("gemma3", "cpu", alone);
}

static void cancelling_in_every_state_gives_all_back(void **state)
{
    struct rig rig;
    double n = 0;

    (void)state;
    rig_start(&rig, "gemma3", "cpu", 20);
    for (uint32_t round = 0; round < 40; round++) {
        struct request *r[N];

        for (uint32_t i = 0; i < N; i++) {
            r[i] = make_request(&rig, i, 100);
            if (i == round % N)
                request_end(r[i], FINISH_CANCELED); /* before it is even sent */
            send(&rig, r[i]);
            n++;
        }
        (void)usleep(round * 300);
        for (uint32_t i = 0; i < N; i++)
            request_end(r[(i * 5) % N], i % 3 ? FINISH_CANCELED : FINISH_STOP);
        for (uint32_t i = 0; i < N; i++) {
            await(r[i]);
            assert_true(request_n_output(r[i]) <= 100);
            request_unref(r[i]);
        }
        assert_idle(&rig, n);
    }
    rig_stop(&rig);
}

static void an_end_token_stops(void **state)
{
    struct request *r;
    struct rig rig;
    int32_t third;

    (void)state;
    rig_start(&rig, "llama", "cpu", 40);
    r = make_request(&rig, 1, OUTPUT);
    send(&rig, r);
    await(r);
    third = r->tokens[r->n_prompt + 2];
    request_unref(r);

    r = make_request(&rig, 1, OUTPUT);
    r->ignore_eos = false;
    r->end_ids[0] = third;
    r->n_end_ids = 1;
    send(&rig, r);
    await(r);
    assert_int_equal(request_finish(r), FINISH_STOP);
    assert_in_range(request_n_output(r), 1, 3);
    assert_int_equal(r->tokens[r->n_prompt + request_n_output(r) - 1], third);
    assert_true(r->queued_ns <= r->scheduled_ns && r->scheduled_ns <= r->first_token_ns &&
                r->first_token_ns <= r->finished_ns);
    request_unref(r);
    rig_stop(&rig);
}

static void leaving_ends_what_runs_and_what_waits(void **state)
{
    struct request *r[N];
    struct rig rig;

    (void)state;
    rig_start(&rig, "llama", "cpu", 40);
    for (uint32_t i = 0; i < N; i++) {
        r[i] = make_request(&rig, i, 100);
        send(&rig, r[i]);
    }
    (void)usleep(5000);
    rig_stop(&rig);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(request_finish(r[i]) != FINISH_NONE);
        request_unref(r[i]);
    }
}

struct told {
    int requests;
    int64_t tokens;
};

static void on_change(void *userdata, int requests, int64_t tokens)
{
    struct told *t = userdata;

    t->requests += requests;
    t->tokens += tokens;
}

static void a_full_queue_says_so(void **state)
{
    struct told told = {0};
    struct inbox_options o = {
            .requests_max = 3, .tokens_max = 100, .on_change = on_change, .userdata = &told};
    CLEANUP(inbox_freep) struct inbox *b = NULL;
    struct err err;

    (void)state;
    assert_ok(inbox_new(&o, &b, &err), &err);
    assert_ok(inbox_reserve(b, 1000, &err), &err); /* alone, however long */
    assert_int_equal(inbox_reserve(b, 1, &err), -ERR_BUSY);
    inbox_correct(b, 1000, 90);
    assert_ok(inbox_reserve(b, 10, &err), &err);
    assert_int_equal(inbox_reserve(b, 1, &err), -ERR_BUSY);
    inbox_release(b, 10);
    assert_ok(inbox_reserve(b, 1, &err), &err);
    assert_ok(inbox_reserve(b, 1, &err), &err);
    assert_int_equal(inbox_reserve(b, 1, &err), -ERR_BUSY);
    assert_int_equal(inbox_waiting(b), 3);
    assert_int_equal(told.requests, 3);
    assert_int_equal(told.tokens, 92);
    inbox_close(b);
    inbox_release(b, 1);
    assert_int_equal(inbox_reserve(b, 1, &err), -ERR_UNAVAILABLE);
    assert_int_equal(told.requests, 2);
    assert_int_equal(told.tokens, 91);
}

/* Each token of an answer is the reference's best after what came before it, or nearly: a GPU
 * rounds, and by how much depends on the batch. */
static void check_answer(struct model *reference, const struct request *r)
{
    enum { VOCAB_MAX = 70 };
    static float logits[(PROMPT_MAX + OUTPUT) * VOCAB_MAX];
    uint32_t n = r->n_prompt + OUTPUT, n_vocab = model_info(reference)->n_vocab;
    struct tiny_seq seq = {.tokens = r->tokens, .n_tokens = n};

    tiny_logits(reference, &seq, 1, logits);
    for (uint32_t t = r->n_prompt; t < n; t++) {
        const float *row = logits + (size_t)(t - 1) * n_vocab;
        float best = row[0], largest = 0;

        for (uint32_t v = 0; v < n_vocab; v++) {
            best = row[v] > best ? row[v] : best;
            largest = row[v] * row[v] > largest * largest ? row[v] : largest;
        }
        if (best - row[r->tokens[t]] > 0.02F * (largest < 0 ? -largest : largest))
            fail_msg("token %u of an answer is %g below the best", t,
                     (double)(best - row[r->tokens[t]]));
    }
}

/* Prefill chunks beside decodes, a step ahead, with blocks for two or three of eight. */
static void check_on_gpu(const char *arch, unsigned ranks)
{
    struct request *r[N];
    struct model *reference;
    struct rig rig;

    n_ranks = ranks;
    rig_start(&rig, arch, "cuda", 11);
    for (uint32_t i = 0; i < N; i++) {
        r[i] = make_request(&rig, i, OUTPUT);
        r[i]->sampling = (struct sampling){.top_p = 1};
        send(&rig, r[i]);
    }
    reference = tiny_model(&rig.tiny, "ref", 1);
    for (uint32_t i = 0; i < N; i++) {
        await(r[i]);
        assert_int_equal(request_finish(r[i]), FINISH_LENGTH);
        check_answer(reference, r[i]);
        request_unref(r[i]);
    }
    assert_true(metric_get(rig.metrics->preemptions) > 0);
    assert_idle(&rig, N);
    model_free(reference);
    rig_stop(&rig);
}

static void answers_on_a_gpu_follow_the_reference(void **state)
{
    (void)state;
    check_on_gpu("nine", 1);
    check_on_gpu("nine", 2);
    check_on_gpu("gemma3", 1);
}

static int run_ahead(void **state)
{
    (void)state;
    runs_ahead = true;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest on_gpu[] = {
            cmocka_unit_test(answers_on_a_gpu_follow_the_reference),
    };
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(batches_and_preemption_change_no_token_llama),
            cmocka_unit_test(batches_and_preemption_change_no_token_gemma3),
            cmocka_unit_test(cancelling_in_every_state_gives_all_back),
            cmocka_unit_test(an_end_token_stops),
            cmocka_unit_test(leaving_ends_what_runs_and_what_waits),
            cmocka_unit_test(a_full_queue_says_so),
    };

    if (argc == 2 && strcmp(argv[1], "cuda") == 0)
        return cmocka_run_group_tests_name("on a GPU", on_gpu, run_ahead, NULL);
    return cmocka_run_group_tests_name("a step at a time", tests, NULL, NULL) +
           cmocka_run_group_tests_name("a step ahead", tests, run_ahead, NULL);
}
