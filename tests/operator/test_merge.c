/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/merge.h"

#include "tests/operator/test_plan.h"
#include "tests/support.h"

static cJSON *parse(const char *text)
{
    struct err err = {0};
    cJSON *json = NULL;

    assert_ok(json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &json, &err), &err);
    return json;
}

void merge_lays_one_tree_over_another(void **state)
{
    static const struct {
        const char *base, *over, *want;
    } cases[] = {
            {"{\"a\":1,\"b\":{\"c\":2}}", "{\"b\":{\"d\":3}}", "{\"a\":1,\"b\":{\"c\":2,\"d\":3}}"},
            {"{\"a\":1,\"b\":2}", "{\"a\":null}", "{\"b\":2}"},
            {"{\"args\":[\"x\",\"y\"]}", "{\"args\":[\"z\"]}", "{\"args\":[\"z\"]}"},
            {"{\"containers\":[{\"name\":\"r\",\"image\":\"i\"}]}",
             "{\"containers\":[{\"name\":\"own\"},{\"name\":\"r\",\"tty\":true}]}",
             "{\"containers\":[{\"name\":\"r\",\"image\":\"i\",\"tty\":true},{\"name\":\"own\"}]}"},
            {"{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}",
             "{\"env\":[{\"name\":\"A\",\"value\":\"2\"},{\"name\":\"B\"}]}",
             "{\"env\":[{\"name\":\"A\",\"value\":\"2\"},{\"name\":\"B\"}]}"},
            {"{\"volumes\":[{\"name\":\"c\",\"emptyDir\":{}}]}",
             "{\"volumes\":[{\"name\":\"c\",\"hostPath\":{\"path\":\"/x\"}}]}",
             "{\"volumes\":[{\"name\":\"c\",\"hostPath\":{\"path\":\"/x\"}}]}"},
            {"{\"livenessProbe\":{\"httpGet\":{\"path\":\"/\"},\"periodSeconds\":5}}",
             "{\"livenessProbe\":{\"exec\":{\"command\":[\"true\"]}}}",
             "{\"livenessProbe\":{\"periodSeconds\":5,\"exec\":{\"command\":[\"true\"]}}}"},
            {"{\"ports\":[{\"containerPort\":1,\"name\":\"a\"}]}",
             "{\"ports\":[{\"containerPort\":1,\"hostPort\":9},{\"containerPort\":2}]}",
             "{\"ports\":[{\"containerPort\":1,\"name\":\"a\",\"hostPort\":9},"
             "{\"containerPort\":2}]}"},
            {"{\"volumes\":[{\"name\":\"c\"}]}", "{\"volumes\":[]}",
             "{\"volumes\":[{\"name\":\"c\"}]}"},
            {"{\"args\":[\"x\"]}", "{\"args\":[]}", "{\"args\":[]}"},
            {"{\"a\":{\"b\":1}}", "{\"a\":5}", "{\"a\":5}"},
            {"{\"tolerations\":[{\"key\":\"a\"}]}", "{\"tolerations\":[{\"key\":\"b\"}]}",
             "{\"tolerations\":[{\"key\":\"b\"}]}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(json_freep) cJSON *base = parse(cases[i].base);
        CLEANUP(json_freep) cJSON *over = parse(cases[i].over);
        CLEANUP(json_freep) cJSON *want = parse(cases[i].want);
        struct err err = {0};

        assert_ok(merge_over(base, over, &err), &err);
        if (!json_equal(base, want))
            fail_msg("case %zu: want %s", i, cases[i].want);
    }
}

void merge_covers_what_was_asked(void **state)
{
    static const struct {
        const char *live, *want;
        bool covered;
    } cases[] = {
            {"{\"a\":1,\"b\":2}", "{\"a\":1}", true},
            {"{\"a\":1}", "{\"a\":2}", false},
            {"{}", "{\"a\":{},\"b\":[],\"c\":null}", true},
            {"{}", "{\"a\":{\"b\":1}}", false},
            {"{\"cpu\":\"1\"}", "{\"cpu\":\"1000m\"}", true},
            {"{\"cpu\":\"1\"}", "{\"cpu\":1}", true},
            {"{\"cpu\":\"1\"}", "{\"cpu\":\"1001m\"}", false},
            {"{\"args\":[\"a\"]}", "{\"args\":[\"a\",\"b\"]}", false},
            {"{\"args\":[\"a\",\"b\"]}", "{\"args\":[\"b\",\"a\"]}", false},
            {"{\"env\":[{\"name\":\"X\"},{\"name\":\"A\",\"value\":\"1\"}]}",
             "{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}", true},
            {"{\"env\":[{\"name\":\"A\",\"value\":\"2\"}]}",
             "{\"env\":[{\"name\":\"A\",\"value\":\"1\"}]}", false},
            {"{\"env\":[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"A\",\"value\":\"2\"}]}",
             "{\"env\":[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"A\",\"value\":\"2\"}]}", true},
            {"{\"ports\":[{\"port\":80,\"nodePort\":3}]}", "{\"ports\":[{\"port\":80}]}", true},
            {"{\"rules\":[{\"a\":1,\"d\":0}]}", "{\"rules\":[{\"a\":1}]}", true},
            {"{\"a\":true}", "{\"a\":false}", false},
            {"{}", "{\"a\":false,\"b\":\"\",\"c\":0}", true},
            {"{}", "{\"a\":true}", false},
            {"{\"b\":\"x\"}", "{\"b\":\"\"}", false},
            {"{\"a\":\"x\"}", "{\"a\":{\"b\":1}}", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CLEANUP(json_freep) cJSON *live = parse(cases[i].live);
        CLEANUP(json_freep) cJSON *want = parse(cases[i].want);

        if (merge_covers(live, want) != cases[i].covered)
            fail_msg("case %zu: %s against %s", i, cases[i].live, cases[i].want);
    }
}
