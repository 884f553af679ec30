/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/store/store.h"

#include <stdio.h>

#include "tests/support.h"

static struct object *make(const char *ns, const char *name, const char *service, const char *rv)
{
    char text[512];
    struct object *o = NULL;
    struct err err = {0};
    cJSON *json = NULL;

    (void)snprintf(text, sizeof(text),
                   "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\",\"uid\":\"u-%s\","
                   "\"resourceVersion\":\"%s\",\"managedFields\":[1,2],"
                   "\"labels\":{\"svc\":\"%s\"}}}",
                   name, ns, name, rv, service);
    assert_ok(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, &err), &err);
    assert_ok(object_new(json, "svc", &o, &err), &err);
    return o;
}

static void put(struct store *s, unsigned kind, struct object *o, bool want_changed)
{
    struct err err = {0};
    bool changed;

    assert_ok(store_put(s, kind, o, &changed, &err), &err);
    assert_int_equal(changed, want_changed);
}

static size_t count_group(struct store *s, unsigned kind, const char *group)
{
    struct object_list l;
    struct err err = {0};
    size_t n;

    assert_ok(store_list(s, kind, group, &l, &err), &err);
    n = l.n;
    object_list_release(&l);
    return n;
}

static void count_gone(void *userdata, const struct object *o)
{
    (void)o;
    ++*(int *)userdata;
}

static void resource_versions_compare_as_numbers(void **state)
{
    static const struct {
        const char *a, *b;
        int want;
    } cases[] = {
            {"1", "2", -1},  {"10", "9", 1},
            {"7", "7", 0},   {"", "1", -1},
            {"01", "1", -1}, {"12x", "1", -1},
            {"", "", 0},     {"340282366920938463463374607431768211455", "9", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(resource_version_compare(cases[i].a, cases[i].b), cases[i].want);
}

static void holds_groups_and_drops_the_older(void **state)
{
    CLEANUP(store_freep) struct store *s = NULL;
    struct object *o;
    struct err err = {0};

    (void)state;
    assert_ok(store_new(2, &s, &err), &err);
    put(s, 0, make("n", "a", "chat", "5"), true);
    put(s, 0, make("n", "b", "chat", "6"), true);
    put(s, 0, make("n", "c", "other", "7"), true);
    put(s, 1, make("n", "a", "chat", "5"), true);
    put(s, 0, make("n", "a", "chat", "4"), false); /* older */
    put(s, 0, make("n", "a", "chat", "5"), false); /* the same */
    assert_int_equal(count_group(s, 0, "n/chat"), 2);
    assert_int_equal(count_group(s, 0, "m/chat"), 0);
    put(s, 0, make("n", "b", "other", "9"), true); /* moves to another group */
    assert_int_equal(count_group(s, 0, "n/chat"), 1);
    assert_int_equal(count_group(s, 0, "n/other"), 2);
    assert_int_equal(count_group(s, 0, NULL), 3);
    o = store_get(s, 0, "n/b");
    assert_non_null(o);
    store_remove(s, 0, "n/b");
    assert_string_equal(o->resource_version, "9"); /* a reference outlives the entry */
    assert_null(json_path(o->json, "metadata.managedFields"));
    object_unref(o);
    assert_null(store_get(s, 0, "n/b"));
    assert_int_equal(store_count(s, 0), 2);
}

static void a_complete_list_removes_the_rest(void **state)
{
    CLEANUP(store_freep) struct store *s = NULL;
    struct err err = {0};
    int gone = 0;

    (void)state;
    assert_ok(store_new(1, &s, &err), &err);
    store_list_begin(s, 0);
    put(s, 0, make("n", "a", "x", "1"), true);
    put(s, 0, make("n", "b", "x", "2"), true);
    assert_false(store_is_synced(s));
    store_list_end(s, 0, count_gone, &gone);
    assert_true(store_is_synced(s));
    assert_int_equal(gone, 0);

    store_list_begin(s, 0); /* half a list: nothing may go */
    put(s, 0, make("n", "a", "x", "3"), true);
    assert_int_equal(store_count(s, 0), 2);

    store_list_begin(s, 0);
    put(s, 0, make("n", "a", "x", "3"), false);
    put(s, 0, make("n", "c", "x", "4"), true);
    store_list_end(s, 0, count_gone, &gone);
    assert_int_equal(gone, 1);
    assert_int_equal(count_group(s, 0, "n/x"), 2);
    assert_null(store_get(s, 0, "n/b"));
}

static void knows_how_far_it_has_seen(void **state)
{
    CLEANUP(store_freep) struct store *s = NULL;
    struct err err = {0};

    (void)state;
    assert_ok(store_new(1, &s, &err), &err);
    assert_false(store_has_version(s, 0, "1"));
    store_set_version(s, 0, "100");
    store_set_version(s, 0, "99"); /* never back */
    assert_true(store_has_version(s, 0, "100"));
    assert_false(store_has_version(s, 0, "101"));
}

static void refuses_what_has_no_name(void **state)
{
    struct object *o = NULL;
    struct err err = {0};
    cJSON *json = NULL;

    (void)state;
    assert_ok(json_parse("{}", 2, &JSON_LIMITS_DEFAULT, &json, &err), &err);
    assert_int_equal(object_new(json, NULL, &o, &err), -ERR_INVALID);
}

static int build(struct err *err)
{
    struct store *s = NULL;
    struct object *o = NULL;
    cJSON *json = NULL;
    const char *text = "{\"metadata\":{\"name\":\"a\",\"labels\":{\"svc\":\"b\"}}}";
    bool changed;
    int r = store_new(1, &s, err);

    if (r == 0)
        r = json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, err);
    if (r == 0)
        r = object_new(json, "svc", &o, err);
    if (r == 0)
        r = store_put(s, 0, o, &changed, err);
    store_free(s);
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
            cmocka_unit_test(resource_versions_compare_as_numbers),
            cmocka_unit_test(holds_groups_and_drops_the_older),
            cmocka_unit_test(a_complete_list_removes_the_rest),
            cmocka_unit_test(knows_how_far_it_has_seen),
            cmocka_unit_test(refuses_what_has_no_name),
            cmocka_unit_test(survives_every_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
