/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads: sums and gathers, the same bits on all; and the ways in which a group breaks.
 */
#include "runtime/parallel/communicator.h"

#include <pthread.h>

#include "tests/support.h"

enum { RANKS = 3, N = 1001, ROUNDS = 50, TIMEOUT_MS = 20000 };

struct rank {
    struct communicator *comm;
    pthread_t thread;
    float data[N];
    float all[RANKS * N];
    int r;
    struct err err;
};

static struct rank ranks[RANKS];

static void with_group(uint64_t timeout_ms, void *(*work)(void *))
{
    struct communicator *ends[RANKS];
    struct err err;

    assert_ok(communicator_new_threads(RANKS, N, timeout_ms, ends, &err), &err);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].comm = ends[i];
        ranks[i].r = 0;
        assert_int_equal(communicator_rank(ends[i]), i);
        assert_int_equal(communicator_size(ends[i]), RANKS);
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, work, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < RANKS; i++)
        communicator_free(ends[i]);
}

static float value(int rank, int i, int round)
{
    return (float)(rank + 1) * 0.1F + (float)(i % 17) * 0.3F + (float)round;
}

static void *reduce_and_gather(void *arg)
{
    struct rank *k = arg;
    int me = (int)communicator_rank(k->comm);

    for (int round = 0; round < ROUNDS && k->r == 0; round++) {
        int n = round % 3 == 0 ? 1 : N;

        for (int i = 0; i < N; i++)
            k->data[i] = value(me, i, round);
        k->r = communicator_all_gather(k->comm, k->data, (size_t)n, k->all, NULL, &k->err);
        for (int i = 0; i < RANKS * n; i++)
            if (k->all[i] < value(i / n, i % n, round) || k->all[i] > value(i / n, i % n, round))
                k->r = -1;
        if (k->r == 0)
            k->r = communicator_all_reduce(k->comm, k->data, (size_t)n, NULL, &k->err);
    }
    return NULL;
}

static void every_rank_gets_the_same_bits(void **state)
{
    (void)state;
    with_group(TIMEOUT_MS, reduce_and_gather);
    for (int k = 0; k < RANKS; k++) {
        assert_ok(ranks[k].r, &ranks[k].err);
        assert_memory_equal(ranks[k].data, ranks[0].data, sizeof(ranks[k].data));
    }
    for (int i = 0; i < N; i++) {
        float sum = value(0, i, ROUNDS - 1);

        for (int k = 1; k < RANKS; k++)
            sum += value(k, i, ROUNDS - 1);
        assert_memory_equal(&ranks[1].data[i], &sum, sizeof(sum)); /* in rank order */
    }
}

static void *disagree(void *arg)
{
    struct rank *k = arg;
    size_t n = communicator_rank(k->comm) == 1 ? 7 : 8;

    k->r = communicator_all_reduce(k->comm, k->data, n, NULL, &k->err);
    if (k->r != 0) /* broken for good */
        k->r = communicator_all_reduce(k->comm, k->data, 8, NULL, &k->err);
    return NULL;
}

static void *gather_against_reduce(void *arg)
{
    struct rank *k = arg;

    k->r = communicator_rank(k->comm) == 2
                   ? communicator_all_gather(k->comm, k->data, 8, k->all, NULL, &k->err)
                   : communicator_all_reduce(k->comm, k->data, 8, NULL, &k->err);
    return NULL;
}

static void *stay_away(void *arg)
{
    struct rank *k = arg;

    if (communicator_rank(k->comm) != 0)
        k->r = communicator_all_reduce(k->comm, k->data, 8, NULL, &k->err);
    else
        k->r = -ERR_DEVICE;
    return NULL;
}

static void *one_aborts(void *arg)
{
    struct rank *k = arg;

    if (communicator_rank(k->comm) == 0)
        communicator_abort(k->comm);
    k->r = communicator_all_gather(k->comm, k->data, 8, k->all, NULL, &k->err);
    return NULL;
}

static void a_broken_group_fails_on_every_rank(void **state)
{
    void *(*const ways[])(void *) = {disagree, gather_against_reduce, stay_away, one_aborts};

    (void)state;
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        with_group(ways[w] == stay_away ? 50 : TIMEOUT_MS, ways[w]);
        for (int k = 0; k < RANKS; k++)
            assert_int_equal(ranks[k].r, -ERR_DEVICE);
    }
}

static int make_group(struct err *err)
{
    struct communicator *ends[RANKS];
    int r = communicator_new_threads(RANKS, N, 1, ends, err);

    for (int i = 0; i < RANKS && r == 0; i++)
        communicator_free(ends[i]);
    return r;
}

static void groups_survive_every_oom(void **state)
{
    struct err err;

    (void)state;
    mem_sweep(make_group(&err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(every_rank_gets_the_same_bits),
            cmocka_unit_test(a_broken_group_fails_on_every_rank),
            cmocka_unit_test(groups_survive_every_oom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
