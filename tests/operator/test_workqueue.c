/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/queue/workqueue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support.h"

struct fixture {
    struct clock_fake clock;
    struct workqueue *q;
    char key[WORKQUEUE_KEY_BYTES];
};

static int set_up(void **state)
{
    struct fixture *f = mem_calloc(1, sizeof(*f));
    struct workqueue_options o = {.n_keys_max = 8, .clock = &f->clock.clock};
    struct err err = {0};

    clock_fake_init(&f->clock, 0);
    *state = f;
    return workqueue_new(&o, &f->q, &err);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    workqueue_free(f->q);
    mem_free(f);
    return 0;
}

static void a_key_is_never_with_two(void **state)
{
    struct fixture *f = *state;
    struct workqueue_stats stats;

    assert_true(workqueue_add(f->q, "a/x"));
    assert_true(workqueue_add(f->q, "a/x"));
    assert_true(workqueue_try_get(f->q, f->key));
    assert_string_equal(f->key, "a/x");
    assert_false(workqueue_try_get(f->q, f->key));
    for (int i = 0; i < 1000; i++)
        assert_true(workqueue_add(f->q, "a/x")); /* while it is held */
    assert_false(workqueue_try_get(f->q, f->key));
    workqueue_done(f->q, "a/x");
    assert_true(workqueue_try_get(f->q, f->key)); /* once more, not a thousand times */
    workqueue_done(f->q, "a/x");
    assert_false(workqueue_try_get(f->q, f->key));
    workqueue_stats(f->q, &stats);
    assert_int_equal(stats.n_taken, 2);
    assert_int_equal(stats.depth, 0);
}

static void backoff_doubles_and_is_forgotten(void **state)
{
    static const unsigned delays[] = {5, 10, 20, 40};
    struct fixture *f = *state;

    assert_true(workqueue_add(f->q, "k"));
    for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
        assert_true(workqueue_try_get(f->q, f->key));
        assert_true(workqueue_retry(f->q, "k", 0));
        workqueue_done(f->q, "k");
        clock_fake_advance_ms(&f->clock, delays[i] - 1);
        assert_false(workqueue_try_get(f->q, f->key));
        clock_fake_advance_ms(&f->clock, 1);
    }
    assert_true(workqueue_try_get(f->q, f->key));
    workqueue_forget(f->q, "k");
    assert_true(workqueue_retry(f->q, "k", 0));
    workqueue_done(f->q, "k");
    clock_fake_advance_ms(&f->clock, 5);
    assert_true(workqueue_try_get(f->q, f->key));
    workqueue_done(f->q, "k");
}

static void backoff_has_a_ceiling_and_a_floor(void **state)
{
    struct fixture *f = *state;

    assert_true(workqueue_retry(f->q, "floor", 700)); /* Retry-After of the server */
    clock_fake_advance_ms(&f->clock, 699);
    assert_false(workqueue_try_get(f->q, f->key));
    clock_fake_advance_ms(&f->clock, 1);
    assert_true(workqueue_try_get(f->q, f->key));
    workqueue_done(f->q, "floor");
    for (int i = 0; i < 100; i++) {
        assert_true(workqueue_retry(f->q, "k", 0));
        clock_fake_advance_ms(&f->clock, 300000);
        assert_true(workqueue_try_get(f->q, f->key));
        workqueue_done(f->q, f->key);
    }
}

static void the_earlier_time_wins(void **state)
{
    struct fixture *f = *state;

    assert_true(workqueue_add_after(f->q, "k", 100));
    assert_true(workqueue_add_after(f->q, "k", 10));
    assert_true(workqueue_add_after(f->q, "k", 50));
    clock_fake_advance_ms(&f->clock, 10);
    assert_true(workqueue_try_get(f->q, f->key));
    workqueue_done(f->q, "k");
    clock_fake_advance_ms(&f->clock, 1000);
    assert_false(workqueue_try_get(f->q, f->key)); /* one timer a key */
    assert_true(workqueue_add_after(f->q, "k", 100));
    assert_true(workqueue_add(f->q, "k")); /* now: the timer is moot */
    assert_true(workqueue_try_get(f->q, f->key));
    workqueue_done(f->q, "k");
    clock_fake_advance_ms(&f->clock, 1000);
    assert_false(workqueue_try_get(f->q, f->key));
}

static void busy_keys_do_not_starve_quiet_ones(void **state)
{
    struct fixture *f = *state;

    assert_true(workqueue_add(f->q, "busy"));
    assert_true(workqueue_try_get(f->q, f->key));
    assert_true(workqueue_add(f->q, "busy"));
    assert_true(workqueue_add(f->q, "quiet"));
    workqueue_done(f->q, "busy");
    assert_true(workqueue_try_get(f->q, f->key));
    assert_string_equal(f->key, "quiet");
    workqueue_done(f->q, "quiet");
}

static void is_bounded(void **state)
{
    struct fixture *f = *state;
    struct workqueue_stats stats;
    char long_key[WORKQUEUE_KEY_BYTES + 1];
    char key[16];

    for (int i = 0; i < 8; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        assert_true(workqueue_add(f->q, key));
    }
    assert_false(workqueue_add(f->q, "one more"));
    assert_true(workqueue_add(f->q, "k3")); /* known already */
    memset(long_key, 'x', sizeof(long_key) - 1);
    long_key[sizeof(long_key) - 1] = '\0';
    assert_false(workqueue_add(f->q, long_key));
    workqueue_stats(f->q, &stats);
    assert_int_equal(stats.n_refused, 2);
    assert_int_equal(stats.depth, 8);
}

/* Real threads: two workers must never hold one key, and no add may be lost. */
enum { KEYS = 5, ROUNDS = 2000, WORKERS = 3 };

struct race {
    struct workqueue *q;
    atomic_int holders[KEYS];
    atomic_int overlaps, handled;
};

static void *work(void *arg)
{
    struct race *race = arg;
    char key[WORKQUEUE_KEY_BYTES];

    while (workqueue_get(race->q, key)) {
        atomic_int *h = &race->holders[key[0] - '0'];

        if (atomic_fetch_add(h, 1) != 0)
            (void)atomic_fetch_add(&race->overlaps, 1);
        (void)atomic_fetch_sub(h, 1);
        (void)atomic_fetch_add(&race->handled, 1);
        workqueue_done(race->q, key);
    }
    return NULL;
}

static void workers_do_not_overlap(void **state)
{
    struct workqueue_options o = {.clock = clock_system()};
    struct race race = {0};
    pthread_t threads[WORKERS];
    struct workqueue_stats stats;
    struct err err = {0};

    (void)state;
    assert_ok(workqueue_new(&o, &race.q, &err), &err);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &race), 0);
    for (int i = 0; i < ROUNDS; i++) {
        char key[2] = {(char)('0' + i % KEYS), '\0'};

        assert_true(workqueue_add(race.q, key));
    }
    do {
        workqueue_stats(race.q, &stats);
    } while (stats.depth || stats.n_processing);
    workqueue_shut_down(race.q);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&race.overlaps), 0);
    assert_true(atomic_load(&race.handled) >= KEYS);
    workqueue_free(race.q);
}

static int build(struct err *err)
{
    struct clock_fake clock;
    struct workqueue *q = NULL;
    struct workqueue_options o = {.clock = &clock.clock};
    int r;

    clock_fake_init(&clock, 0);
    r = workqueue_new(&o, &q, err);
    workqueue_free(q);
    return r;
}

static void survives_every_oom(void **state)
{
    struct err err = {0};

    (void)state;
    mem_sweep(build(&err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(a_key_is_never_with_two, set_up, tear_down),
            cmocka_unit_test_setup_teardown(backoff_doubles_and_is_forgotten, set_up, tear_down),
            cmocka_unit_test_setup_teardown(backoff_has_a_ceiling_and_a_floor, set_up, tear_down),
            cmocka_unit_test_setup_teardown(the_earlier_time_wins, set_up, tear_down),
            cmocka_unit_test_setup_teardown(busy_keys_do_not_starve_quiet_ones, set_up, tear_down),
            cmocka_unit_test_setup_teardown(is_bounded, set_up, tear_down),
            cmocka_unit_test(workers_do_not_overlap),
            cmocka_unit_test(survives_every_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
