/* SPDX-License-Identifier: Apache-2.0
 *
 * Leader election as a script: two replicas and a record that a small server of ours keeps.
 */
#include "operator/kube/lease.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "tests/support.h"

/* The API server's side of one Lease: optimistic locking and nothing else. */
struct server {
    bool exists;
    int version;
    char spec[1024];
};

struct replica {
    struct lease *lease;
    struct lease_options opt;
};

struct fixture {
    struct clock_fake clock;
    struct server server;
    struct replica a, b;
};

static void make_replica(struct fixture *f, struct replica *r, const char *identity)
{
    struct err err = {0};

    r->opt = (struct lease_options){
            .namespace = "n", .name = "l", .identity = identity, .clock = &f->clock.clock};
    assert_ok(lease_new(&r->opt, &r->lease, &err), &err);
}

static int set_up(void **state)
{
    struct fixture *f = mem_calloc(1, sizeof(*f));

    clock_fake_init(&f->clock, 1787392800000u);
    make_replica(f, &f->a, "a");
    make_replica(f, &f->b, "b");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    lease_free(f->a.lease);
    lease_free(f->b.lease);
    mem_free(f);
    return 0;
}

static void store_spec(struct server *s, const cJSON *body)
{
    char *text = json_print(json_get(body, "spec"));

    (void)snprintf(s->spec, sizeof(s->spec), "%s", text);
    mem_free(text);
    s->exists = true;
    s->version++;
}

static int64_t number_of(const char *text)
{
    struct err err = {0};
    int64_t v = -1;

    (void)!parse_i64(text, 0, 1 << 30, &v, &err);
    return v;
}

/* What a server answers; the body goes to out. */
static int serve(struct server *s, enum lease_want want, const char *request, char *out,
                 size_t size)
{
    CLEANUP(json_freep) cJSON *body = NULL;
    struct err err = {0};

    if (want != LEASE_GET) {
        const char *version;

        assert_ok(json_parse(request, strlen(request), &JSON_LIMITS_DEFAULT, &body, &err), &err);
        version = json_path_str(body, "metadata.resourceVersion", "");
        if (want == LEASE_CREATE && s->exists)
            return 409;
        if (want == LEASE_UPDATE && (!s->exists || number_of(version) != s->version))
            return s->exists ? 409 : 404;
        store_spec(s, body);
    }
    if (!s->exists)
        return 404;
    (void)snprintf(out, size, "{\"metadata\":{\"resourceVersion\":\"%d\"},\"spec\":%s}", s->version,
                   s->spec);
    return 200;
}

/* One turn of a replica: ask, serve, answer; cut: no answer arrives. */
static enum lease_want turn(struct fixture *f, struct replica *r, bool cut)
{
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    uint64_t wait_ms;
    enum lease_want want = lease_next(r->lease, &body, &wait_ms);
    char out[2048] = "";

    if (want == LEASE_WAIT)
        return want;
    if (cut) {
        lease_answer(r->lease, -ERR_UNAVAILABLE, 0, NULL, 0);
    } else {
        int status = serve(&f->server, want, str_text(&body), out, sizeof(out));

        lease_answer(r->lease, 0, status, out, strlen(out));
    }
    return want;
}

/* Both replicas, as often as they want, for so long; the loop's step is 100 ms. */
static void run(struct fixture *f, unsigned ms, bool cut_a)
{
    for (unsigned t = 0; t < ms; t += 100) {
        for (int i = 0; i < 4; i++) {
            (void)turn(f, &f->a, cut_a);
            (void)turn(f, &f->b, false);
        }
        assert_false(lease_is_valid(f->a.lease) && lease_is_valid(f->b.lease));
        clock_fake_advance_ms(&f->clock, 100);
    }
}

static const char *spec_text(struct fixture *f, const char *key, char *out, size_t size)
{
    CLEANUP(json_freep) cJSON *spec = NULL;
    struct err err = {0};

    assert_ok(json_parse(f->server.spec, strlen(f->server.spec), &JSON_LIMITS_DEFAULT, &spec, &err),
              &err);
    (void)snprintf(out, size, "%s", json_str(spec, key, ""));
    return out;
}

static void the_first_takes_it_and_keeps_it(void **state)
{
    struct fixture *f = *state;
    char acquired[64], again[64];

    run(f, 1000, false);
    assert_int_equal(lease_state(f->a.lease), LEASE_LEADER);
    assert_int_equal(lease_state(f->b.lease), LEASE_FOLLOWER);
    assert_string_equal(lease_holder(f->b.lease), "a");
    (void)spec_text(f, "acquireTime", acquired, sizeof(acquired));
    assert_string_equal(acquired, "2026-08-22T10:00:00.000000Z");
    run(f, 60000, false);
    assert_true(lease_is_valid(f->a.lease));
    assert_int_equal(lease_state(f->b.lease), LEASE_FOLLOWER);
    assert_string_equal(spec_text(f, "acquireTime", again, sizeof(again)), acquired);
    /* one renewal each two seconds, no more */
    assert_in_range(f->server.version, 28, 33);
}

static void a_holder_that_is_cut_off_is_lost_before_another_takes_over(void **state)
{
    struct fixture *f = *state;

    run(f, 5000, false);
    run(f, 10100, true);
    assert_int_equal(lease_state(f->a.lease), LEASE_LOST);
    assert_int_equal(lease_state(f->b.lease), LEASE_FOLLOWER); /* 5 s of margin */
    run(f, 9000, true);
    assert_int_equal(lease_state(f->b.lease), LEASE_LEADER);
    assert_non_null(strstr(f->server.spec, "\"leaseTransitions\":1"));
    run(f, 60000, false);
    assert_int_equal(lease_state(f->a.lease), LEASE_LOST); /* for good */
}

/* SIGSTOP: no turn, no answer, the clock runs on. */
static void a_holder_that_slept_is_lost_at_once(void **state)
{
    struct fixture *f = *state;
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    uint64_t wait_ms;

    run(f, 5000, false);
    assert_true(lease_is_valid(f->a.lease));
    clock_fake_advance_ms(&f->clock, 30000);
    assert_false(lease_is_valid(f->a.lease)); /* before anything else ran */
    assert_int_equal(lease_next(f->a.lease, &body, &wait_ms), LEASE_WAIT);
    assert_int_equal(lease_state(f->a.lease), LEASE_LOST);
}

static void a_short_gap_is_survived(void **state)
{
    struct fixture *f = *state;

    run(f, 5000, false);
    run(f, 7000, true);
    run(f, 30000, false);
    assert_int_equal(lease_state(f->a.lease), LEASE_LEADER);
    assert_true(lease_is_valid(f->a.lease));
}

static void a_lease_given_back_is_taken_at_once(void **state)
{
    struct fixture *f = *state;
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    char out[2048];

    run(f, 5000, false);
    assert_false(lease_release(f->b.lease, &body));
    assert_true(lease_release(f->a.lease, &body));
    assert_false(lease_is_valid(f->a.lease));
    assert_int_equal(serve(&f->server, LEASE_UPDATE, str_text(&body), out, sizeof(out)), 200);
    for (int i = 0; i < 25; i++) {
        (void)turn(f, &f->b, false);
        clock_fake_advance_ms(&f->clock, 100);
    }
    assert_int_equal(lease_state(f->b.lease), LEASE_LEADER);
}

/* The record names a time far off; only our own clock counts. */
static void remote_clocks_do_not_matter(void **state)
{
    struct fixture *f = *state;

    f->server.exists = true;
    f->server.version = 5;
    (void)snprintf(f->server.spec, sizeof(f->server.spec),
                   "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,"
                   "\"renewTime\":\"1999-01-01T00:00:00.000000Z\",\"leaseTransitions\":7}");
    run(f, 14000, false);
    assert_int_equal(lease_state(f->a.lease), LEASE_FOLLOWER);
    assert_int_equal(lease_state(f->b.lease), LEASE_FOLLOWER);
    run(f, 4000, false);
    assert_true(lease_is_valid(f->a.lease) || lease_is_valid(f->b.lease));
    assert_non_null(strstr(f->server.spec, "\"leaseTransitions\":8"));
}

static void a_thief_ends_us(void **state)
{
    struct fixture *f = *state;

    run(f, 5000, false);
    f->server.version++;
    (void)snprintf(f->server.spec, sizeof(f->server.spec),
                   "{\"holderIdentity\":\"thief\",\"leaseDurationSeconds\":15}");
    run(f, 5000, false);
    assert_int_equal(lease_state(f->a.lease), LEASE_LOST);
    assert_string_equal(lease_holder(f->a.lease), "thief");
}

static void nonsense_is_survived(void **state)
{
    static const char *const bodies[] = {"", "{}", "[1]", "{\"metadata\":{\"resourceVersion\":7}}",
                                         "{\"spec\":{}}"};
    struct fixture *f = *state;
    CLEANUP(str_release) struct str body = STR_INIT(8192);
    uint64_t wait_ms;

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        char copy[64];

        (void)snprintf(copy, sizeof(copy), "%s", bodies[i]);
        assert_int_equal(lease_next(f->a.lease, &body, &wait_ms), LEASE_GET);
        lease_answer(f->a.lease, 0, 200, copy, strlen(copy));
        assert_int_equal(lease_state(f->a.lease), LEASE_FOLLOWER);
        clock_fake_advance_ms(&f->clock, 2000);
    }
}

#define STEP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
            STEP(the_first_takes_it_and_keeps_it),
            STEP(a_holder_that_is_cut_off_is_lost_before_another_takes_over),
            STEP(a_holder_that_slept_is_lost_at_once),
            STEP(a_short_gap_is_survived),
            STEP(a_lease_given_back_is_taken_at_once),
            STEP(remote_clocks_do_not_matter),
            STEP(a_thief_ends_us),
            STEP(nonsense_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
