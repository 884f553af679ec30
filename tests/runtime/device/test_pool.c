/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <stdatomic.h>
#include <unistd.h>

#include "runtime/device/pool.h"

enum { ROUNDS = 200 };

struct job {
    struct pool *pool;
    atomic_uint arrived;
    atomic_uint wrong;
};

/* Between barriers every thread must see all of the others' arrivals. */
static void meet(void *userdata, unsigned thread)
{
    struct job *j = userdata;
    unsigned n = pool_size(j->pool);

    for (unsigned i = 1; i <= ROUNDS; i++) {
        atomic_fetch_add(&j->arrived, 1);
        pool_barrier(j->pool);
        if (atomic_load(&j->arrived) != i * n)
            atomic_fetch_add(&j->wrong, 1);
        pool_barrier(j->pool);
    }
    assert_true(thread < n);
}

static void all_threads_meet(void **state)
{
    static const unsigned sizes[] = {1, 2, 3, 9};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CLEANUP(pool_freep) struct pool *p = NULL;
        struct job j = {0};
        struct err err;

        assert_ok(pool_new(sizes[i], &p, &err), &err);
        assert_int_equal(pool_size(p), sizes[i]);
        j.pool = p;
        for (int run = 0; run < 3; run++) {
            atomic_store(&j.arrived, 0);
            pool_run(p, meet, &j);
            assert_int_equal(atomic_load(&j.arrived), ROUNDS * sizes[i]);
            if (run == 1)
                (void)usleep(20000); /* long enough for the workers to fall asleep */
        }
        assert_int_equal(atomic_load(&j.wrong), 0);
    }
}

static void sizes_have_bounds(void **state)
{
    struct pool *p = NULL;
    struct err err;

    (void)state;
    assert_int_equal(pool_new(0, &p, &err), -ERR_INVALID);
    assert_int_equal(pool_new(POOL_THREADS_MAX + 1, &p, &err), -ERR_INVALID);
    assert_null(p);
}

static int pool_once(struct err *err)
{
    struct pool *p = NULL;
    int r = pool_new(3, &p, err);

    pool_free(p);
    return r;
}

static void survives_no_memory(void **state)
{
    struct err err;

    (void)state;
    mem_sweep(pool_once(&err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(all_threads_meet),
            cmocka_unit_test(sizes_have_bounds),
            cmocka_unit_test(survives_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
