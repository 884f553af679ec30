/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <stdatomic.h>
#include <unistd.h>

#include "runtime/device/pool.h"

enum { ITEMS = 1000, ROUNDS = 300 };

/* Round r adds 1 to each item, which must stand at r: an item that was dealt twice, or before the
 * round before was over, is seen. */
struct job {
    unsigned items[ITEMS];
    unsigned round;
    atomic_uint wrong;
};

static void add_one(void *userdata, uint32_t first, uint32_t end)
{
    struct job *j = userdata;

    for (uint32_t i = first; i < end; i++)
        if (j->items[i]++ != j->round)
            atomic_fetch_add(&j->wrong, 1);
}

static void each_item_once(void **state)
{
    static const unsigned sizes[] = {1, 2, 3, 9};
    static const uint32_t counts[] = {ITEMS, 1, 2, 3, 17, 0, 640};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CLEANUP(pool_freep) struct pool *p = NULL;
        struct err err;

        assert_ok(pool_new(sizes[i], &p, &err), &err);
        assert_int_equal(pool_size(p), sizes[i]);
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            struct job j = {0};

            for (j.round = 0; j.round < ROUNDS; j.round++) {
                pool_do(p, add_one, &j, counts[c]);
                if (j.round == 5)
                    (void)usleep(5000); /* long enough for the workers to fall asleep */
            }
            assert_int_equal(atomic_load(&j.wrong), 0);
            for (uint32_t k = 0; k < ITEMS; k++)
                assert_int_equal(j.items[k], k < counts[c] ? ROUNDS : 0);
        }
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
            cmocka_unit_test(each_item_once),
            cmocka_unit_test(sizes_have_bounds),
            cmocka_unit_test(survives_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
