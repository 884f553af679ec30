/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GPU does when it breaks, on the virtual one: every call of the runtime fails in turn,
 * every allocation in turn, a kernel faults, a kernel hangs, a rank is lost.  Each time there is an
 * error, in time, and nothing is left behind.
 *
 * CUDA_FAULT_STRIDE=n takes every n-th call only (default 97: a cut; the full form takes 1).
 */
#include "tests/support.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/str.h"
#include "tests/runtime/model/tiny_model.h"
#include "tests/vgpu/vgpu.h"

enum { UNKNOWN = 999, TIMEOUT_MS = 30000, HANG_MS = 300, STEPS = 3, STRIDE = 97 };

static const int32_t prompt[12] = {5, 9, 2, 44, 31, 7, 7, 1, 0, 12, 3, 30};

/* A prefill and some decodes. */
static int compute(struct model *m, struct err *err)
{
    static const uint32_t ids[] = {0, 1, 2, 0, 1, 2};
    int32_t next = PLAN_TOKEN_LAST_SAMPLE, drawn;
    struct plan_sample sample = {.top_p = 1};
    int r = 0;

    for (uint32_t s = 0; s < STEPS && r == 0; s++) {
        struct plan_seq seq = {.n_tokens = s ? 1 : 12,
                               .start_pos = s ? 11 + s : 0,
                               .table_first = {0, 3},
                               .table_len = {3, 3}};
        struct step_plan plan = {.n_tokens = seq.n_tokens,
                                 .n_seqs = 1,
                                 .n_samples = 1,
                                 .n_block_ids = 6,
                                 .tokens = s ? &next : prompt,
                                 .seqs = &seq,
                                 .samples = &sample,
                                 .block_ids = ids};
        struct model_ticket ticket;

        r = model_submit(m, &plan, &ticket, err);
        if (r == 0)
            r = model_collect(m, ticket, &drawn, err);
    }
    return r;
}

/* Load, compute, free; what went wrong. */
static int live(const struct tiny *t, unsigned n_ranks, uint64_t timeout_ms, struct err *err)
{
    static const uint32_t n_blocks[PLAN_GROUPS_MAX] = {4, 4, 4, 4};
    struct model_options o = {.device = "cuda",
                              .slots_max = 2,
                              .tokens_max = 16,
                              .n_ranks = n_ranks,
                              .step_timeout_ms = timeout_ms};
    struct model *m = NULL;
    int r = model_new(t->gguf, &o, &m, err);

    if (r == 0)
        r = model_kv_init(m, n_blocks, err);
    if (r == 0)
        r = compute(m, err);
    vgpu_fail_call(0, 0);
    vgpu_fail_malloc(0);
    vgpu_fault_launch(0, 0);
    model_free(m);
    return r;
}

static void assert_nothing_left(uint64_t n)
{
    struct vgpu_counts c;

    vgpu_stats(&c);
    if (c.n_allocations || c.n_pinned || c.n_streams || c.n_events || c.n_graphs || c.n_execs)
        fail_msg("after fault %llu: %llu allocations, %llu pinned, %llu streams, %llu events, %llu "
                 "graphs, %llu execs",
                 (unsigned long long)n, (unsigned long long)c.n_allocations,
                 (unsigned long long)c.n_pinned, (unsigned long long)c.n_streams,
                 (unsigned long long)c.n_events, (unsigned long long)c.n_graphs,
                 (unsigned long long)c.n_execs);
}

static uint64_t stride(void)
{
    const char *text = getenv("CUDA_FAULT_STRIDE");
    uint64_t n = STRIDE;
    struct err err;

    if (text)
        assert_ok(parse_u64(text, 1, 1000, &n, &err), &err);
    return n;
}

/* The n-th call fails, for n = 1, 1 + stride ... until a life has fewer calls. */
static void sweep_calls(unsigned n_ranks)
{
    struct tiny t;
    struct err err = {0};
    struct vgpu_counts before, after;
    uint64_t n_calls, n_failed = 0;

    tiny_init(&t, "nine");
    vgpu_stats(&before);
    assert_ok(live(&t, n_ranks, TIMEOUT_MS, &err), &err);
    vgpu_stats(&after);
    n_calls = after.n_calls - before.n_calls;
    assert_true(n_calls > 50);
    for (uint64_t n = 1; n <= n_calls; n += stride()) {
        int r;

        err = (struct err){0};
        vgpu_fail_call(n, UNKNOWN);
        r = live(&t, n_ranks, TIMEOUT_MS, &err);
        if (r != 0) {
            n_failed++;
            if (r != -ERR_DEVICE && r != -ERR_UNAVAILABLE)
                fail_msg("call %llu: %d: %s", (unsigned long long)n, r, err.msg);
            assert_true(err.msg[0] != '\0');
        }
        assert_nothing_left(n);
    }
    assert_true(n_failed > n_calls / stride() / 2);
    tiny_release(&t);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    sweep_calls(1);
}

static void every_call_may_fail_on_two_ranks(void **state)
{
    (void)state;
    sweep_calls(2);
}

static void every_allocation_may_fail(void **state)
{
    struct tiny t;
    struct err err = {0};
    int r = -1;

    (void)state;
    tiny_init(&t, "nine");
    for (uint64_t n = 1; r != 0; n++) {
        assert_in_range(n, 1, 1000);
        vgpu_fail_malloc(n);
        r = live(&t, 1, TIMEOUT_MS, &err);
        assert_true(r == 0 || r == -ERR_NO_MEMORY || r == -ERR_DEVICE);
        assert_nothing_left(n);
    }
    tiny_release(&t);
}

static void a_hung_kernel_is_a_lost_device(void **state)
{
    struct tiny t;
    struct err err = {0};
    uint64_t start = clock_ns(clock_system());

    (void)state;
    tiny_init(&t, "nine");
    vgpu_hang_kernel("sample");
    assert_int_equal(live(&t, 1, HANG_MS, &err), -ERR_DEVICE);
    assert_non_null(strstr(err.msg, "hangs"));
    assert_true(clock_ns(clock_system()) - start < 20000000000);
    vgpu_hang_kernel(NULL);
    tiny_release(&t);
}

/* After the warm-up decodes of up to slots_max sequences make no graph and take no memory. */
static void nothing_is_made_after_the_warm_up(void **state)
{
    static const uint32_t n_blocks[PLAN_GROUPS_MAX] = {4, 4, 4, 4};
    struct model_options o = {.device = "cuda", .slots_max = 3, .tokens_max = 16};
    struct vgpu_counts warm, after;
    struct model *m = NULL;
    struct tiny t;
    struct err err = {0};

    (void)state;
    tiny_init(&t, "nine");
    assert_ok(model_new(t.gguf, &o, &m, &err), &err);
    assert_ok(model_kv_init(m, n_blocks, &err), &err);
    assert_ok(model_warm_up(m, &err), &err);
    assert_null(strstr(model_info(m)->device, "no cuBLASLt"));
    vgpu_stats(&warm);
    assert_int_equal(warm.n_execs, 3 * MODEL_STEPS); /* for 1, 2 and up to 4 rows */
    assert_ok(compute(m, &err), &err);
    vgpu_stats(&after);
    assert_int_equal(after.n_execs, warm.n_execs);
    assert_int_equal(after.n_allocations, warm.n_allocations);
    assert_int_equal(after.n_pinned, warm.n_pinned);
    assert_int_equal(after.n_events, warm.n_events);
    assert_true(after.n_replays > warm.n_replays);
    model_free(m);
    tiny_release(&t);
}

/* With VGPU_NCCL_LOSE=1,5 rank 1 never comes to the fifth collective: rank 0 waits until the
 * timeout, then everybody gives up. */
static void a_lost_rank_is_a_lost_device(void **state)
{
    struct tiny t;
    struct err err = {0};
    uint64_t start = clock_ns(clock_system());

    (void)state;
    tiny_init(&t, "nine");
    assert_int_equal(live(&t, 2, HANG_MS, &err), -ERR_DEVICE);
    assert_true(err.msg[0] != '\0');
    assert_true(clock_ns(clock_system()) - start < 30000000000);
    tiny_release(&t);
}

int main(void)
{
    const struct CMUnitTest lost[] = {cmocka_unit_test(a_lost_rank_is_a_lost_device)};
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(nothing_is_made_after_the_warm_up),
            cmocka_unit_test(every_call_may_fail),
            cmocka_unit_test(every_allocation_may_fail),
            cmocka_unit_test(every_call_may_fail_on_two_ranks),
            cmocka_unit_test(a_hung_kernel_is_a_lost_device), /* the device stays lost: last */
    };

    return getenv("VGPU_NCCL_LOSE") ? cmocka_run_group_tests(lost, NULL, NULL)
                                    : cmocka_run_group_tests(tests, NULL, NULL);
}
