/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/tally.h"

#include <string.h>

#include "operator/api/names.h"

enum { PERCENT_STEP = 10 };

/* Progress goes into the status, so it moves in steps: ten writes a load, not a thousand. */
static void take_progress(struct tally *t, enum pod_state state, const struct pod_signal *s)
{
    enum load_phase phase = state == POD_SERVING ? LOAD_READY : s->phase;
    int percent = state == POD_SERVING ? 100 : s->percent / PERCENT_STEP * PERCENT_STEP;

    if (s->bytes_total > t->bytes_total)
        t->bytes_total = s->bytes_total;
    if (state == POD_FAILING || phase == LOAD_FAILED)
        return;
    /* A pod that says ready but is not in rotation yet is in the last step of loading. */
    if (phase == LOAD_READY && state != POD_SERVING)
        phase = LOAD_LOADING;
    if (phase > t->phase || (phase == t->phase && percent > t->percent)) {
        t->phase = phase;
        t->percent = percent;
    }
}

void tally_make(const struct observed *seen, const char *spec_digest, struct tally *ret)
{
    struct tally t = {.phase = LOAD_UNKNOWN};
    bool cause_fails = false;

    for (size_t i = 0; i < seen->n_pods; i++) {
        const struct observed_pod *p = &seen->pods[i];
        struct pod_cause cause;
        enum pod_state state = pod_state_of(p->pod, &p->signal, &cause);
        const cJSON *annotations = json_path(p->pod, "metadata.annotations");

        if (state == POD_GONE || state == POD_LEAVING)
            continue;
        t.alive++;
        t.serving += state == POD_SERVING;
        t.loading += state == POD_LOADING;
        t.failing += state == POD_FAILING;
        t.old += strcmp(json_str(annotations, ANNOTATION_TEMPLATE, ""), spec_digest) != 0;
        if (cause.reason[0] && (!t.cause.reason[0] || (state == POD_FAILING && !cause_fails))) {
            t.cause = cause;
            cause_fails = state == POD_FAILING;
        }
        if (p->signal.xid && !t.xid) {
            t.xid = p->signal.xid;
            t.xid_gpu = p->signal.xid_gpu;
            t.xid_pod = json_path_str(p->pod, "metadata.name", "?");
            t.xid_node = json_path_str(p->pod, "spec.nodeName", "?");
        }
        take_progress(&t, state, &p->signal);
    }
    if (t.phase == LOAD_UNKNOWN && t.failing && !t.loading)
        t.phase = LOAD_FAILED;
    *ret = t;
}
