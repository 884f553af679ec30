/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/schedule.h"

#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "runtime/engine/kv_budget.h"
#include "tests/support.h"

enum { SEQS = 16 };

static uint32_t u32(const cJSON *obj, const char *key)
{
    return (uint32_t)json_int(obj, key, 0);
}

static uint32_t read_seqs(const cJSON *list, struct sched_seq *seqs)
{
    const cJSON *item, *pair;
    uint32_t n = 0;

    cJSON_ArrayForEach(item, list)
    {
        struct sched_seq *s = &seqs[n++];
        uint32_t g = 0;

        *s = (struct sched_seq){.n_tokens = u32(item, "tokens"),
                                .n_computed = u32(item, "computed")};
        cJSON_ArrayForEach(pair, json_get(item, "held"))
        {
            s->first[g] = (uint32_t)cJSON_GetArrayItem(pair, 0)->valueint;
            s->end[g++] = (uint32_t)cJSON_GetArrayItem(pair, 1)->valueint;
        }
    }
    return n;
}

static void read_input(const cJSON *c, struct sched_input *in, struct sched_seq *running,
                       struct sched_seq *waiting)
{
    const cJSON *limits = json_get(c, "limits"), *group;

    *in = (struct sched_input){.limits = {.sequences_max = u32(limits, "sequences"),
                                          .tokens_max = u32(limits, "tokens"),
                                          .block_size = u32(limits, "block")},
                               .running = running,
                               .waiting = waiting};
    cJSON_ArrayForEach(group, json_get(c, "groups"))
    {
        in->groups[in->limits.n_groups++] = (struct sched_group){.window = u32(group, "window"),
                                                                 .n_free = u32(group, "free"),
                                                                 .n_blocks = u32(group, "blocks")};
    }
    in->n_running = read_seqs(json_get(c, "running"), running);
    in->n_waiting = read_seqs(json_get(c, "waiting"), waiting);
}

static void check_case(const cJSON *c)
{
    struct sched_seq running[SEQS], waiting[SEQS];
    const cJSON *want = json_get(c, "want"), *n;
    static struct sched_output out;
    struct sched_input in;
    uint32_t i = 0, sum = 0;

    read_input(c, &in, running, waiting);
    schedule(&in, &out);
    if (out.n_kept != u32(want, "kept") || out.n_admitted != u32(want, "admitted"))
        fail_msg("%s: kept %u, admitted %u", json_str(c, "name", "?"), out.n_kept, out.n_admitted);
    cJSON_ArrayForEach(n, json_get(want, "new"))
    {
        if (out.n_new[i] != (uint32_t)n->valueint)
            fail_msg("%s: sequence %u computes %u, want %d", json_str(c, "name", "?"), i,
                     out.n_new[i], n->valueint);
        sum += out.n_new[i++];
    }
    assert_int_equal(out.n_tokens, sum);
    assert_int_equal(i, out.n_kept + out.n_admitted);
}

static void decisions_are_as_written_down(void **state)
{
    CLEANUP(str_release) struct str text = STR_INIT(1u << 20);
    CLEANUP(json_freep) cJSON *cases = NULL;
    const cJSON *c;
    struct err err;

    (void)state;
    assert_ok(file_read(TEST_DATA_DIR "/golden/schedule/cases.json", &text, &err), &err);
    assert_ok(json_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &cases, &err), &err);
    assert_true(cJSON_GetArraySize(cases) >= 12);
    cJSON_ArrayForEach(c, cases)
    {
        check_case(c);
    }
}

static uint32_t below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* Whatever the input: never over budget, never over the pool, the oldest always moves. */
static void no_decision_breaks_the_bounds(void **state)
{
    static struct sched_output out;
    uint32_t seed = 7;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct sched_seq running[SEQS] = {0}, waiting[SEQS] = {0};
        struct sched_input in = {.limits = {.sequences_max = SEQS,
                                            .tokens_max = SEQS + below(&seed, 40),
                                            .block_size = 8,
                                            .n_groups = 2},
                                 .running = running,
                                 .waiting = waiting,
                                 .n_running = below(&seed, SEQS),
                                 .n_waiting = below(&seed, SEQS)};
        uint32_t used[2] = {0, 0};

        in.groups[1].window = 8 + below(&seed, 20);
        for (uint32_t i = 0; i < in.n_running; i++) {
            struct sched_seq *s = &running[i];

            s->n_computed = below(&seed, 60);
            s->n_tokens = s->n_computed + 1 + below(&seed, 3) * below(&seed, 30);
            for (uint32_t g = 0; g < 2; g++) {
                uint32_t from = s->n_computed ? s->n_computed - 1 : 0;

                sched_block_range(in.groups[g].window, 8, from, s->n_computed, &s->first[g],
                                  &s->end[g]);
                used[g] += s->end[g] - s->first[g];
            }
        }
        for (uint32_t i = 0; i < in.n_waiting; i++)
            waiting[i].n_tokens = 1 + below(&seed, 60);
        for (uint32_t g = 0; g < 2; g++) {
            in.groups[g].n_free = 16 + below(&seed, 10); /* the oldest always fits alone */
            in.groups[g].n_blocks = used[g] + in.groups[g].n_free;
        }
        schedule(&in, &out);
        assert_true(out.n_tokens <= in.limits.tokens_max);
        assert_true(out.n_kept + out.n_admitted <= SEQS);
        assert_true(in.n_running == 0 || out.n_kept > 0);
        assert_true(out.n_kept == in.n_running || out.n_admitted == 0);
        for (uint32_t g = 0; g < 2; g++) {
            uint32_t held = 0;

            for (uint32_t i = 0; i < out.n_kept + out.n_admitted; i++) {
                const struct sched_seq *s = i < out.n_kept ? &running[i] : &waiting[i - out.n_kept];
                uint32_t first = s->first[g], end = s->end[g];

                if (out.n_new[i])
                    sched_block_range(in.groups[g].window, 8, s->n_computed,
                                      s->n_computed + out.n_new[i], &first, &end);
                held += end - first;
            }
            assert_true(held <= in.groups[g].n_blocks);
        }
    }
}

static void memory_is_cut_within_the_budget(void **state)
{
    struct model_info info = {
            .context_max = 4096,
            .n_groups = 2,
            .groups = {{.block_bytes = 1000}, {.window = 512, .block_bytes = 3000}}};
    struct kv_budget_options o = {.sequences_max = 8, .tokens_max = 256};
    struct kv_budget b;
    struct err err;

    (void)state;
    o.bytes_max = 1000000000;
    assert_ok(kv_budget_make(&info, &o, &b, &err), &err);
    assert_int_equal(b.n_blocks[0], 8 * 128);
    assert_int_equal(b.n_blocks[1], 8 * 25);
    assert_int_equal(b.sequence_tokens, 4096);
    o.bytes_max = 700000; /* not for eight */
    assert_ok(kv_budget_make(&info, &o, &b, &err), &err);
    assert_in_range(b.bytes, 600000, 700000);
    assert_int_equal(b.sequence_tokens, 4096);
    o.bytes_max = 100000; /* not even for one whole */
    assert_ok(kv_budget_make(&info, &o, &b, &err), &err);
    assert_in_range(b.sequence_tokens, 100, 2000);
    assert_true(b.bytes <= 100000);
    o.bytes_max = 1000;
    assert_int_equal(kv_budget_make(&info, &o, &b, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, "raise --kv-cache-memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(decisions_are_as_written_down),
            cmocka_unit_test(no_decision_breaks_the_bounds),
            cmocka_unit_test(memory_is_cut_within_the_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
