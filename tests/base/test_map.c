/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdio.h>

#include "tests/support.h"

static void put_get_remove(void **state)
{
    CLEANUP(map_freep) struct map *m = NULL;
    struct err err = {0};
    int one = 1, two = 2;

    (void)state;
    assert_ok(map_new(&m, &err), &err);
    assert_null(map_get(m, "a"));
    assert_ok(map_put(m, "a", &one, &err), &err);
    assert_ok(map_put(m, "", &two, &err), &err);
    assert_ptr_equal(map_get(m, "a"), &one);
    assert_ptr_equal(map_get(m, ""), &two);
    assert_ok(map_put(m, "a", &two, &err), &err);
    assert_int_equal(map_count(m), 2);
    assert_ptr_equal(map_remove(m, "a"), &two);
    assert_null(map_remove(m, "a"));
    assert_int_equal(map_count(m), 1);
}

/* Many keys in and out in another order: the back-shift must lose none, whatever the seed. */
static void survives_churn(void **state)
{
    enum { N = 3000 };
    CLEANUP(map_freep) struct map *m = NULL;
    static int values[N];
    struct err err = {0};
    char key[16];
    size_t iter = 0, seen = 0;
    void *value;

    (void)state;
    assert_ok(map_new(&m, &err), &err);
    for (int i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        assert_ok(map_put(m, key, &values[i], &err), &err);
    }
    for (int i = 0; i < N; i += 3) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        assert_ptr_equal(map_remove(m, key), &values[i]);
    }
    for (int i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        assert_ptr_equal(map_get(m, key), i % 3 ? &values[i] : NULL);
    }
    while (map_next(m, &iter, NULL, &value))
        seen++;
    assert_int_equal(seen, 2 * N / 3);
}

static int build(struct err *err)
{
    CLEANUP(map_freep) struct map *m = NULL;
    static int value;
    char key[16];
    int r = map_new(&m, err);

    for (int i = 0; r == 0 && i < 40; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        r = map_put(m, key, &value, err);
    }
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
            cmocka_unit_test(put_get_remove),
            cmocka_unit_test(survives_churn),
            cmocka_unit_test(survives_every_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
