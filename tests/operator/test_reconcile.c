/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "operator/api/kinds.h"
#include "operator/reconcile/barrier.h"
#include "operator/reconcile/policy.h"
#include "operator/reconcile/snapshot.h"
#include "tests/support.h"

static void errors_have_a_policy(void **state)
{
    static const struct {
        enum err_code code;
        int64_t retry_after_ms;
        bool retry, tell;
        uint64_t min_ms;
    } cases[] = {
            {ERR_NONE, 0, false, false, 0},
            {ERR_CANCELED, 0, false, false, 0}, /* no longer the leader, or ending */
            {ERR_CONFLICT, 0, true, false, 0},
            {ERR_BUSY, 0, true, false, 1000},
            {ERR_BUSY, 20000, true, false, 20000}, /* Retry-After */
            {ERR_INVALID, 0, true, true, 10000},
            {ERR_DENIED, 0, true, true, 5000},
            {ERR_UNAVAILABLE, 0, true, false, 500},
            {ERR_NO_MEMORY, 0, true, false, 5000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct retry_policy p = policy_of(cases[i].code, cases[i].retry_after_ms, 0);

        assert_int_equal(p.retry, cases[i].retry);
        assert_int_equal(p.tell, cases[i].tell);
        assert_int_equal(p.min_ms, cases[i].min_ms);
    }
    /* What does not go away is told, too; a conflict is our own business. */
    assert_false(policy_of(ERR_UNAVAILABLE, 0, 2).tell);
    assert_true(policy_of(ERR_UNAVAILABLE, 0, 3).tell);
    assert_false(policy_of(ERR_CONFLICT, 0, 100).tell);
    assert_false(policy_of(ERR_CANCELED, 0, 100).tell);
}

static void a_key_waits_for_its_own_writes(void **state)
{
    struct clock_fake clock;
    CLEANUP(barrier_freep) struct barrier *b = NULL;
    CLEANUP(store_freep) struct store *s = NULL;
    struct err err = {0};

    (void)state;
    clock_fake_init(&clock, 0);
    assert_ok(barrier_new(&clock.clock, &b, &err), &err);
    assert_ok(store_new(WATCHED_COUNT, &s, &err), &err);
    assert_true(barrier_is_open(b, "n/a", s));
    barrier_expect(b, "n/a", WATCHED_DEPLOYMENT, "10");
    barrier_expect(b, "n/a", WATCHED_DEPLOYMENT, "9"); /* the later one counts */
    barrier_expect(b, "n/a", WATCHED_SERVICE, "12");
    assert_false(barrier_is_open(b, "n/a", s));
    assert_true(barrier_is_open(b, "n/b", s));
    store_set_version(s, WATCHED_DEPLOYMENT, "10");
    assert_false(barrier_is_open(b, "n/a", s));
    store_set_version(s, WATCHED_SERVICE, "100");
    assert_true(barrier_is_open(b, "n/a", s));

    /* A watch that shows nothing for long must not hold the key for ever. */
    barrier_expect(b, "n/a", WATCHED_SCALER, "7");
    assert_false(barrier_is_open(b, "n/a", s));
    clock_fake_advance_ms(&clock, BARRIER_PATIENCE_MS + 1);
    assert_true(barrier_is_open(b, "n/a", s));
    barrier_expect(b, "n/a", WATCHED_SCALER, "7");
    barrier_forget(b, "n/a");
    assert_true(barrier_is_open(b, "n/a", s));
}

static void put(struct store *s, unsigned kind, const char *name, const char *uid,
                const char *owner)
{
    char text[512];
    struct object *o = NULL;
    struct err err = {0};
    cJSON *json = NULL;
    bool changed;

    (void)snprintf(text, sizeof(text),
                   "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"%s\","
                   "\"resourceVersion\":\"1\",\"labels\":{\"svc\":\"a\"},"
                   "\"ownerReferences\":[{\"controller\":true,\"uid\":\"%s\"}]}}",
                   name, uid, owner);
    assert_ok(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, &err), &err);
    assert_ok(object_new(json, kind == WATCHED_INFERENCE_SERVICE ? NULL : "svc", &o, &err), &err);
    assert_ok(store_put(s, kind, o, &changed, &err), &err);
}

static void a_snapshot_tells_ours_from_others(void **state)
{
    CLEANUP(store_freep) struct store *s = NULL;
    CLEANUP(arena_freep) struct arena *mem = NULL;
    struct snapshot snap;
    struct err err = {0};

    (void)state;
    assert_ok(store_new(WATCHED_COUNT, &s, &err), &err);
    assert_ok(arena_new(1 << 20, &mem, &err), &err);
    assert_ok(snapshot_take(s, "n/a", mem, &snap, &err), &err);
    assert_null(snap.service);
    snapshot_release(&snap);

    put(s, WATCHED_INFERENCE_SERVICE, "a", "u", "");
    put(s, WATCHED_DEPLOYMENT, "a", "d", "u");
    put(s, WATCHED_DEPLOYMENT, "a-copy", "d2", "u"); /* our label, not our name */
    put(s, WATCHED_SERVICE, "a", "s", "former-u");   /* of a service of that name that is gone */
    put(s, WATCHED_POD, "p1", "p1", "rs");
    put(s, WATCHED_POD, "p2", "p2", "rs");
    put(s, WATCHED_REVISION, "a-1", "r1", "u");
    assert_ok(snapshot_take(s, "n/a", mem, &snap, &err), &err);
    assert_string_equal(json_path_str(snap.seen.children[CHILD_DEPLOYMENT], "metadata.uid", ""),
                        "d");
    assert_null(snap.seen.children[CHILD_SERVICE]);
    assert_int_equal(snap.seen.foreign, 1u << CHILD_SERVICE);
    assert_int_equal(snap.seen.n_pods, 2);
    assert_int_equal(snap.seen.n_revisions, 1);
    snapshot_release(&snap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(errors_have_a_policy),
            cmocka_unit_test(a_key_waits_for_its_own_writes),
            cmocka_unit_test(a_snapshot_tells_ours_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
