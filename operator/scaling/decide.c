/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.c - the scaling decision.
 *
 * Today the autoscaler of the cluster acts, on the figures that metrics_api.c serves; this
 * decision explains it (status, events) and guards it (hold_down closes the way down while a pod
 * loads or is silent, which the HPA itself would take for idle pods).
 */
#include "operator/scaling/decide.h"

#include <math.h>
#include <stdio.h>

enum { CURRENT_MAX = 10000 };

static const double TOLERANCE = 0.1;

struct sums {
    size_t serving, loading, silent;
    double waiting, running;
};

static struct sums add_up(const struct decide_pod *pods, size_t n)
{
    struct sums sum = {0};

    for (size_t i = 0; i < n; i++) {
        const struct decide_pod *p = &pods[i];

        if (p->state == POD_LOADING)
            sum.loading++;
        if (p->state != POD_SERVING)
            continue;
        if (!p->signal.fresh) {
            sum.silent++;
            continue;
        }
        sum.serving++;
        sum.waiting += p->signal.waiting;
        sum.running += p->signal.running;
    }
    return sum;
}

static double load_of(enum scale_metric m, const struct sums *sum)
{
    return m == SCALE_QUEUE_LENGTH ? sum->waiting : sum->waiting + sum->running;
}

static int64_t clamp(int64_t v, int64_t min, int64_t max)
{
    return v < min ? min : v > max ? max : v;
}

/* The metric that asks for most. */
static int64_t largest(const struct inference_service *s, const struct sums *sum,
                       struct scaling_target *ret_by)
{
    struct scaling_target targets[SCALING_METRICS_MAX];
    size_t n = inference_service_targets(s, targets);
    double most = -1;

    *ret_by = targets[0];
    for (size_t i = 0; i < n; i++) {
        double wanted = load_of(targets[i].metric, sum) / targets[i].target;
        double current = (double)clamp(s->replicas, 1, CURRENT_MAX);

        if (fabs(wanted / current - 1) <= TOLERANCE)
            wanted = current;
        if (wanted > most) {
            most = wanted;
            *ret_by = targets[i];
        }
    }
    return (int64_t)ceil(fmin(most, CURRENT_MAX));
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

void decide(const struct inference_service *s, const struct decide_pod *pods, size_t n,
            struct scale_decision *ret)
{
    struct sums sum = add_up(pods, n);
    struct scaling_target by;
    int64_t wanted = s->replicas;

    ret->hold_down = sum.loading > 0 || sum.silent > 0;
    if (!s->scaling.enabled) {
        ret->desired = s->replicas;
        (void)snprintf(ret->reason, sizeof(ret->reason), "set by /scale");
        return;
    }
    if (sum.serving == 0) {
        ret->desired = clamp(wanted, s->scaling.min, s->scaling.max);
        (void)snprintf(ret->reason, sizeof(ret->reason), "%s: replicas are held",
                       sum.silent ? "no serving pod answers its metrics port"
                                  : "no pod serves yet");
        return;
    }
    wanted = largest(s, &sum, &by);
    if (wanted < s->replicas && ret->hold_down)
        wanted = s->replicas;
    ret->desired = clamp(wanted, s->scaling.min, s->scaling.max);
    (void)snprintf(ret->reason, sizeof(ret->reason), "%g %s over %zu serving pod%s, target %g%s",
                   load_of(by.metric, &sum),
                   by.metric == SCALE_QUEUE_LENGTH ? "queued" : "queued or running", sum.serving,
                   plural(sum.serving), by.target, sum.loading ? "; more are loading" : "");
}
