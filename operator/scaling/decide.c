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
    double load[SCALE_METRIC_COUNT];
    size_t known[SCALE_METRIC_COUNT]; /* of the serving pods: those that tell the figure */
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
        for (unsigned m = 0; m < SCALE_METRIC_COUNT; m++) {
            double value;

            if (!scale_metric_value((enum scale_metric)m, &p->signal, &value))
                continue;
            sum.load[m] += value;
            sum.known[m]++;
        }
    }
    return sum;
}

static int64_t clamp(int64_t v, int64_t min, int64_t max)
{
    return v < min ? min : v > max ? max : v;
}

/* The metric that asks for most.  *ret_partial: a pod does not tell one of them. */
static int64_t largest(const struct inference_service *s, const struct sums *sum,
                       struct scaling_target *ret_by, bool *ret_partial)
{
    struct scaling_target targets[SCALING_METRICS_MAX];
    size_t n = inference_service_targets(s, targets);
    double most = -1;

    *ret_by = targets[0];
    *ret_partial = false;
    for (size_t i = 0; i < n; i++) {
        enum scale_metric m = targets[i].metric;
        double wanted = sum->load[m] / targets[i].target;
        double current = (double)clamp(s->replicas, 1, CURRENT_MAX);

        *ret_partial = *ret_partial || sum->known[m] < sum->serving;
        if (sum->known[m] == 0)
            continue;
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

static void explain(const struct sums *sum, const struct scaling_target *by, char *out, size_t size)
{
    static const char *const words[] = {
            [SCALE_QUEUE_LENGTH] = "queued",
            [SCALE_REQUESTS] = "queued or running",
            [SCALE_GPU_UTILIZATION] = "% GPU utilization",
            [SCALE_GPU_MEMORY] = "% GPU memory",
    };
    enum scale_metric m = by->metric;
    const char *more = sum->loading ? "; more are loading" : "";
    size_t known = sum->known[m];

    if (known == 0)
        (void)snprintf(out, size, "no serving pod tells its %s: replicas are held%s",
                       scale_metric_name(m), more);
    else if (scale_metric_is_gpu(m))
        (void)snprintf(out, size, "%.0f%s over %zu serving pod%s, target %g%s",
                       sum->load[m] / (double)known, words[m], known, plural(known), by->target,
                       more);
    else
        (void)snprintf(out, size, "%g %s over %zu serving pod%s, target %g%s", sum->load[m],
                       words[m], known, plural(known), by->target, more);
}

void decide(const struct inference_service *s, const struct decide_pod *pods, size_t n,
            struct scale_decision *ret)
{
    struct sums sum = add_up(pods, n);
    struct scaling_target by;
    int64_t wanted = s->replicas;
    bool partial;

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
    wanted = largest(s, &sum, &by, &partial);
    if (wanted < s->replicas && (ret->hold_down || partial))
        wanted = s->replicas;
    ret->desired = clamp(wanted, s->scaling.min, s->scaling.max);
    explain(&sum, &by, ret->reason, sizeof(ret->reason));
}
