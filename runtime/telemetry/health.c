/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/telemetry/health.h"

const char *health_phase_name(enum health_phase p)
{
    static const char *const names[] = {
            [HEALTH_STARTING] = "starting", [HEALTH_DOWNLOADING] = "downloading",
            [HEALTH_LOADING] = "loading",   [HEALTH_READY] = "ready",
            [HEALTH_DRAINING] = "draining", [HEALTH_FAILED] = "failed",
    };
    _Static_assert(sizeof(names) / sizeof(names[0]) == HEALTH_PHASE_COUNT, "one name a phase");

    return names[p];
}

void health_init(struct health *h, uint64_t hang_limit_ns)
{
    atomic_init(&h->phase, HEALTH_STARTING);
    atomic_init(&h->bytes_done, 0);
    atomic_init(&h->bytes_total, 0);
    atomic_init(&h->step_started_ns, 0);
    atomic_init(&h->hang_limit_ns, hang_limit_ns);
}

void health_set_phase(struct health *h, enum health_phase p)
{
    atomic_store(&h->phase, (int)p);
}

enum health_phase health_phase(const struct health *h)
{
    return (enum health_phase)atomic_load(&h->phase);
}

void health_set_progress(struct health *h, uint64_t done, uint64_t total)
{
    atomic_store(&h->bytes_total, total);
    atomic_store(&h->bytes_done, done);
}

void health_step_begin(struct health *h, uint64_t now_ns)
{
    atomic_store(&h->step_started_ns, now_ns);
}

void health_step_end(struct health *h)
{
    atomic_store(&h->step_started_ns, 0);
}

bool health_is_alive(const struct health *h, uint64_t now_ns)
{
    uint64_t started = atomic_load(&h->step_started_ns);

    if (health_phase(h) == HEALTH_FAILED)
        return false;
    return started == 0 || now_ns < started || now_ns - started < atomic_load(&h->hang_limit_ns);
}
