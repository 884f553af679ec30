/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden tests of planning.  tests/golden/operator/NAME.in.json is a world: the service, its
 * children, pods and their signals.  NAME.out.json is the plan: steps, status, events.  The word
 * "@plan" as a child in a world means "as the plan of the same world without it made it", which
 * shows that a second look has nothing to do.  With PENSTOCK_GOLDEN_WRITE=1 in the environment
 * the outputs are written instead of compared; read the diff before you commit it.
 */
#include "operator/reconcile/plan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "operator/reconcile/merge.h"
#include "tests/operator/test_plan.h"
#include "tests/support.h"

#define GOLDEN TEST_DATA_DIR "/golden/operator"

enum { PODS_MAX = 8 };

static const uint64_t NOW = 1787392800000u; /* 2026-08-22T10:00:00Z */

struct world {
    cJSON *json;
    struct arena *mem;
    struct inference_service spec;
    struct err refused;
    bool is_refused;
    struct observed seen;
    struct observed_pod pods[PODS_MAX];
    const cJSON *revisions[PODS_MAX];
    struct template_defaults defaults;
};

static cJSON *read_json(const char *path)
{
    CLEANUP(str_release) struct str text = STR_INIT(1 << 20);
    struct err err = {0};
    cJSON *json = NULL;

    assert_ok(file_read(path, &text, &err), &err);
    assert_ok(json_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &json, &err), &err);
    return json;
}

static enum load_phase phase_of(const char *name)
{
    static const char *const names[] = {"", "downloading", "loading", "ready", "failed"};

    for (int i = 0; i < 5; i++) {
        if (strcmp(names[i], name) == 0)
            return (enum load_phase)i;
    }
    fail_msg("no phase \"%s\"", name);
    return LOAD_UNKNOWN;
}

static void take_pods(struct world *w)
{
    const cJSON *p;

    cJSON_ArrayForEach(p, json_get(w->json, "pods"))
    {
        struct observed_pod *op = &w->pods[w->seen.n_pods++];
        const cJSON *s = json_get(p, "signal");

        op->pod = json_get(p, "pod");
        op->signal.phase = phase_of(json_str(s, "phase", ""));
        op->signal.percent = (int)json_int(s, "percent", 0);
        op->signal.bytes_total = json_int(s, "bytesTotal", 0);
        (void)snprintf(op->signal.error, sizeof(op->signal.error), "%s", json_str(s, "error", ""));
        op->signal.xid = (int)json_int(s, "xid", 0);
        (void)snprintf(op->signal.xid_gpu, sizeof(op->signal.xid_gpu), "%s",
                       json_str(s, "gpu", ""));
    }
}

/* "DIGEST" in a world stands for the digest of its own spec. */
static void fill_digest(struct world *w)
{
    const cJSON *p;
    char digest[DIGEST_BYTES];
    struct err err = {0};

    assert_ok(template_spec_digest(&w->spec, digest, &err), &err);
    cJSON_ArrayForEach(p, json_get(w->json, "pods"))
    {
        cJSON *annotations = (cJSON *)json_path(p, "pod.metadata.annotations");
        const char *key = "serving.penstock.io/template";

        if (strcmp(json_str(annotations, key, ""), "DIGEST") == 0)
            (void)cJSON_ReplaceItemInObject(annotations, key, cJSON_CreateString(digest));
    }
}

static void world_open(struct world *w, const char *path)
{
    const char *api;
    const cJSON *r;
    struct err err = {0};

    *w = (struct world){.json = read_json(path)};
    assert_ok(arena_new(8 << 20, &w->mem, &err), &err);
    w->seen.service = json_get(w->json, "service");
    w->is_refused = inference_service_decode(w->seen.service, w->mem, &w->spec, &w->refused) != 0;
    for (unsigned c = 0; c < CHILD_COUNT; c++)
        w->seen.children[c] = json_get(w->json, child_kind((enum child)c));
    cJSON_ArrayForEach(r, json_get(w->json, "revisions")) w->revisions[w->seen.n_revisions++] = r;
    w->seen.revisions = w->revisions;
    w->seen.pods = w->pods;
    if (!w->is_refused)
        fill_digest(w);
    take_pods(w);
    w->seen.foreign = (unsigned)json_int(w->json, "foreign", 0);
    w->seen.decision.hold_down = json_bool(w->json, "holdDown", false);
    (void)snprintf(w->seen.decision.reason, sizeof(w->seen.decision.reason), "%s",
                   json_str(w->json, "decision", "no request waits"));
    api = json_str(w->json, "metricsApi", "serving");
    w->seen.metrics_api = strcmp(api, "serving") == 0 ? METRICS_API_SERVING : METRICS_API_CONFLICT;
    (void)snprintf(w->seen.metrics_api_owner, sizeof(w->seen.metrics_api_owner), "%s", api);
    (void)snprintf(w->seen.trouble, sizeof(w->seen.trouble), "%s",
                   json_str(w->json, "trouble", ""));
    (void)snprintf(w->seen.trouble_reason, sizeof(w->seen.trouble_reason), "ApplyFailed");
    w->defaults = (struct template_defaults){.image = "penstock/runtime:1",
                                             .cuda_image = "penstock/runtime:1-cuda",
                                             .gpu_runtime_class =
                                                     json_str(w->json, "gpuRuntimeClass", NULL)};
    w->seen.defaults = &w->defaults;
    w->seen.now_wall_ms = NOW;
}

static void world_close(struct world *w)
{
    arena_free(w->mem);
    cJSON_Delete(w->json);
}

static void make(struct world *w, struct plan *plan)
{
    struct err err = {0};

    assert_ok(plan_make(&w->spec, w->is_refused ? &w->refused : NULL, &w->seen, w->mem, plan, &err),
              &err);
}

/* The plan as text that people can read. */
static cJSON *plan_to_json(const struct plan *plan)
{
    cJSON *out = cJSON_CreateObject(), *steps = cJSON_AddArrayToObject(out, "steps"), *events;
    struct err err = {0};

    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *s = &plan->steps[i];
        cJSON *step = cJSON_CreateObject();

        (void)cJSON_AddStringToObject(step, "verb", s->verb == PLAN_APPLY ? "apply" : "delete");
        (void)cJSON_AddStringToObject(step, "kind", child_kind(s->child));
        (void)cJSON_AddStringToObject(step, "name", s->name);
        if (s->body)
            (void)cJSON_AddItemToObject(step, "body", cJSON_Duplicate(s->body, true));
        (void)cJSON_AddItemToArray(steps, step);
    }
    if (plan->status.body) {
        cJSON *body = NULL;

        assert_ok(json_parse(plan->status.body, strlen(plan->status.body), &JSON_LIMITS_DEFAULT,
                             &body, &err),
                  &err);
        (void)cJSON_AddItemToObject(out, "status", cJSON_DetachItemFromObject(body, "status"));
        cJSON_Delete(body);
    }
    events = cJSON_AddArrayToObject(out, "events");
    for (size_t i = 0; i < plan->status.n_events; i++) {
        const struct status_event *e = &plan->status.events[i];
        char text[900];

        (void)snprintf(text, sizeof(text), "%s %s %s: %s", e->warning ? "Warning" : "Normal",
                       e->action, e->reason, e->note);
        (void)cJSON_AddItemToArray(events, cJSON_CreateString(text));
    }
    return out;
}

static void compare(const char *path, const cJSON *got)
{
    struct err err = {0};

    if (getenv("PENSTOCK_GOLDEN_WRITE")) {
        char *text = cJSON_Print(got);
        CLEANUP(str_release) struct str out = STR_INIT(1 << 20);

        str_addf(&out, "%s\n", text);
        cJSON_free(text);
        assert_ok(file_write_atomic(path, out.data, out.len, 0644, &err), &err);
        return;
    }
    cJSON *want = read_json(path);
    if (!json_equal(got, want)) {
        char *text = cJSON_Print(got);

        print_message("%s\n", text);
        cJSON_free(text);
        fail_msg("%s differs", path);
    }
    cJSON_Delete(want);
}

/* The live object after an apply: what was there, and what we said. */
static cJSON *server_answer(const cJSON *live, const struct plan_step *s)
{
    cJSON *answer = live ? cJSON_Duplicate(live, true) : cJSON_CreateObject();
    struct err err = {0};

    assert_ok(merge_over(answer, s->body, &err), &err);
    return answer;
}

/* Give the world what the plan asked for, as a server would show it, and plan again. */
static void second_look_is_quiet(struct world *w, const struct plan *first)
{
    struct plan again;
    cJSON *service = cJSON_Duplicate(w->seen.service, true), *body = NULL;
    cJSON *made[CHILD_COUNT] = {NULL};
    struct err err = {0};
    size_t kept = 0;

    if (first->status.body) {
        assert_ok(json_parse(first->status.body, strlen(first->status.body), &JSON_LIMITS_DEFAULT,
                             &body, &err),
                  &err);
        cJSON_DeleteItemFromObject(service, "status");
        (void)cJSON_AddItemToObject(service, "status", cJSON_DetachItemFromObject(body, "status"));
        cJSON_Delete(body);
    }
    for (size_t i = 0; i < first->n_steps; i++) {
        const struct plan_step *s = &first->steps[i];

        if (s->child == CHILD_REVISION && s->verb == PLAN_APPLY) {
            w->revisions[0] = s->body;
            kept = 1;
        } else if (s->child != CHILD_REVISION) {
            cJSON_Delete(made[s->child]);
            made[s->child] =
                    s->verb == PLAN_APPLY ? server_answer(w->seen.children[s->child], s) : NULL;
            w->seen.children[s->child] = made[s->child];
        }
    }
    w->seen.n_revisions = kept ? 1 : w->seen.n_revisions;
    w->seen.service = service;
    w->seen.now_wall_ms += 60000;
    arena_reset(w->mem);
    w->is_refused = inference_service_decode(service, w->mem, &w->spec, &w->refused) != 0;
    make(w, &again);
    for (size_t i = 0; i < again.n_steps; i++)
        assert_int_not_equal(again.steps[i].verb, PLAN_APPLY);
    assert_int_equal(again.status.n_events, 0);
    assert_null(again.status.body);
    plan_release(&again);
    for (size_t i = 0; i < CHILD_COUNT; i++)
        cJSON_Delete(made[i]);
    cJSON_Delete(service);
}

static void golden_files(void **state)
{
    DIR *dir = opendir(GOLDEN);
    struct dirent *e;
    unsigned n = 0;

    (void)state;
    assert_non_null(dir);
    while ((e = readdir(dir))) {
        char in[512], out[512];
        struct world w;
        struct plan plan;
        cJSON *got;
        const char *dot = strstr(e->d_name, ".in.json");

        if (!dot)
            continue;
        (void)snprintf(in, sizeof(in), GOLDEN "/%s", e->d_name);
        (void)snprintf(out, sizeof(out), GOLDEN "/%.*s.out.json", (int)(dot - e->d_name),
                       e->d_name);
        world_open(&w, in);
        make(&w, &plan);
        got = plan_to_json(&plan);
        compare(out, got);
        cJSON_Delete(got);
        second_look_is_quiet(&w, &plan);
        plan_release(&plan);
        world_close(&w);
        n++;
    }
    (void)closedir(dir);
    assert_true(n >= 10);
}

/* The template of a service that is pinned is applied, whatever this version would render. */
static void an_upgrade_restarts_no_pod(void **state)
{
    struct world w;
    struct plan first, second;

    (void)state;
    world_open(&w, GOLDEN "/minimal.in.json");
    make(&w, &first);
    w.revisions[0] = first.steps[0].body;
    w.seen.n_revisions = 1;
    w.seen.children[CHILD_DEPLOYMENT] = first.steps[1].body;
    w.seen.children[CHILD_SERVICE] = first.steps[2].body;
    w.defaults.image = "penstock/runtime:2";
    make(&w, &second);
    assert_int_equal(second.n_steps, 0);
    assert_non_null(strstr(second.status.body, "\"reason\":\"TemplateDiffers\""));
    plan_release(&second);

    /* ... until somebody asks. */
    w.spec.refresh = "now";
    make(&w, &second);
    assert_int_equal(second.n_steps, 3);
    assert_int_equal(second.steps[0].child, CHILD_REVISION);
    assert_int_equal(second.steps[1].child, CHILD_DEPLOYMENT);
    assert_int_equal(second.steps[2].verb, PLAN_DELETE);
    assert_int_equal(second.steps[2].child, CHILD_REVISION);
    plan_release(&second);
    plan_release(&first);
    world_close(&w);
}

static int plan_once(struct world *w, struct err *err)
{
    struct plan plan;
    struct arena *mem = NULL;
    int r = arena_new(8 << 20, &mem, err);

    if (r == 0)
        r = plan_make(&w->spec, NULL, &w->seen, mem, &plan, err);
    if (r == 0)
        plan_release(&plan);
    arena_free(mem);
    return r;
}

static void survives_every_oom(void **state)
{
    struct world w;
    struct err err = {0};

    (void)state;
    world_open(&w, GOLDEN "/full.in.json");
    mem_sweep(plan_once(&w, &err));
    world_close(&w);
    world_open(&w, GOLDEN "/cuda_tensor.in.json");
    mem_sweep(plan_once(&w, &err));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(merge_lays_one_tree_over_another),
            cmocka_unit_test(merge_covers_what_was_asked),
            cmocka_unit_test(golden_files),
            cmocka_unit_test(an_upgrade_restarts_no_pod),
            cmocka_unit_test(survives_every_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
