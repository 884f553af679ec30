/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c - samples the GPUs, waits for their errors.
 *
 * A call into the driver of a sick GPU may take seconds, or never return.  So no other thread makes
 * one: the sampler asks for all figures of a GPU first and publishes them after, and the watcher
 * waits for Xids, each wait bounded.  The lock guards the series, never a call into NVML.  When the
 * sampler is stuck the watcher takes its last figures away, since an old figure would be believed;
 * when a thread is stuck at the end, it is left behind with what it uses, and touches nothing that
 * is ours any more ('closed').
 *
 * Series belong to this file: made when a figure first comes, dropped when it stops coming.  The
 * counts of Xids stay: they are true whether or not the GPU still answers.
 */
#include "runtime/telemetry/gpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "runtime/telemetry/nvml.h"

enum { GPUS_MAX = 16, INTERVAL_MS = 1000, STALE_INTERVALS = 10, JOIN_S = 2, POLL_US = 10000 };

enum figure {
    UTILIZATION,
    MEMORY_BANDWIDTH,
    MEMORY_USED,
    MEMORY_TOTAL,
    POWER,
    TEMPERATURE,
    SM_CLOCK,
    MEMORY_CLOCK,
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    THROTTLE_FIRST,
    THROTTLE_LAST = THROTTLE_FIRST + 8,
    SAMPLED_COUNT, /* figures up to here come from a sample */
    XID_COUNT = SAMPLED_COUNT,
    XID_LAST,
    FIGURE_COUNT,
};

/* Each figure's metric and the value of the label that it has besides gpu and uuid. */
static const struct {
    const char *metric, *label;
} FIGURES[FIGURE_COUNT] = {
        [UTILIZATION] = {"penstock_gpu_utilization_ratio", NULL},
        [MEMORY_BANDWIDTH] = {"penstock_gpu_memory_bandwidth_utilization_ratio", NULL},
        [MEMORY_USED] = {"penstock_gpu_memory_used_bytes", NULL},
        [MEMORY_TOTAL] = {"penstock_gpu_memory_total_bytes", NULL},
        [POWER] = {"penstock_gpu_power_watts", NULL},
        [TEMPERATURE] = {"penstock_gpu_temperature_celsius", NULL},
        [SM_CLOCK] = {"penstock_gpu_clock_hertz", "sm"},
        [MEMORY_CLOCK] = {"penstock_gpu_clock_hertz", "memory"},
        [ECC_CORRECTED] = {"penstock_gpu_ecc_errors_total", "corrected"},
        [ECC_UNCORRECTED] = {"penstock_gpu_ecc_errors_total", "uncorrected"},
        /* the bits of NVML's clocks event reasons, in their order */
        [THROTTLE_FIRST] = {"penstock_gpu_throttle_reason", "idle"},
        [THROTTLE_FIRST + 1] = {"penstock_gpu_throttle_reason", "application_clocks"},
        [THROTTLE_FIRST + 2] = {"penstock_gpu_throttle_reason", "power_cap"},
        [THROTTLE_FIRST + 3] = {"penstock_gpu_throttle_reason", "hardware_slowdown"},
        [THROTTLE_FIRST + 4] = {"penstock_gpu_throttle_reason", "sync_boost"},
        [THROTTLE_FIRST + 5] = {"penstock_gpu_throttle_reason", "thermal"},
        [THROTTLE_FIRST + 6] = {"penstock_gpu_throttle_reason", "hardware_thermal"},
        [THROTTLE_FIRST + 7] = {"penstock_gpu_throttle_reason", "hardware_power_brake"},
        [THROTTLE_LAST] = {"penstock_gpu_throttle_reason", "display_clocks"},
        [XID_COUNT] = {"penstock_gpu_xid_errors_total", NULL},
        [XID_LAST] = {"penstock_gpu_last_xid", NULL},
};

struct card {
    struct nvml_device *device;
    char index[8], uuid[NVML_UUID_BYTES];
    struct metric *series[FIGURE_COUNT]; /* NULL: absent */
};

struct gpu {
    struct nvml nvml;
    struct metrics *metrics;
    struct logger *logger;
    uint64_t interval_ms;
    struct nvml_event_set *events; /* NULL: no GPU tells of errors */
    size_t n_cards;
    struct card cards[GPUS_MAX];
    struct mailbox *stop; /* closed: end; nothing travels through it */
    pthread_t sampler, watcher;
    bool sampling, watching;
    pthread_mutex_t lock; /* over all below, and the cards' series */
    bool closed;
    uint64_t published_ms;
    const struct card *failed; /* the last that told an Xid */
    unsigned long long xid;
};

/* --- series; under the lock --- */

static struct metric *series_of(struct gpu *g, struct card *c, enum figure f)
{
    const char *values[] = {c->index, c->uuid, FIGURES[f].label};
    struct err err;

    if (!c->series[f] &&
        metrics_series(g->metrics, FIGURES[f].metric, values, &c->series[f], &err) != 0)
        return NULL; /* no memory: this figure comes with the next sample */
    return c->series[f];
}

static void show(struct gpu *g, struct card *c, enum figure f, double value)
{
    struct metric *s = isnan(value) ? NULL : series_of(g, c, f);

    if (s) {
        metric_set(s, value);
    } else if (isnan(value) && c->series[f]) {
        metrics_drop(g->metrics, c->series[f]);
        c->series[f] = NULL;
    }
}

/* --- sampling --- */

static void read_load(const struct nvml *n, struct nvml_device *d, double v[SAMPLED_COUNT])
{
    struct nvml_utilization u = {0};
    struct nvml_memory m = {0};

    if (n->utilization(d, &u) == 0) {
        v[UTILIZATION] = u.gpu / 100.0;
        v[MEMORY_BANDWIDTH] = u.memory / 100.0;
    }
    if (n->memory(d, &m) == 0) {
        v[MEMORY_USED] = (double)m.used;
        v[MEMORY_TOTAL] = (double)m.total;
    }
}

static void read_health(const struct nvml *n, struct nvml_device *d, double v[SAMPLED_COUNT])
{
    unsigned small = 0;
    unsigned long long large = 0;

    if (n->power(d, &small) == 0)
        v[POWER] = small / 1e3;
    if (n->temperature(d, NVML_SENSOR_GPU, &small) == 0)
        v[TEMPERATURE] = small;
    if (n->clock(d, NVML_CLOCK_SM, &small) == 0)
        v[SM_CLOCK] = small * 1e6;
    if (n->clock(d, NVML_CLOCK_MEMORY, &small) == 0)
        v[MEMORY_CLOCK] = small * 1e6;
    if (n->ecc_errors(d, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE, &large) == 0)
        v[ECC_CORRECTED] = (double)large;
    if (n->ecc_errors(d, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &large) == 0)
        v[ECC_UNCORRECTED] = (double)large;
    if (n->throttle_reasons(d, &large) == 0) {
        for (int i = THROTTLE_FIRST; i <= THROTTLE_LAST; i++)
            v[i] = (large >> (i - THROTTLE_FIRST) & 1) ? 1 : 0;
    }
}

static void sample(struct gpu *g)
{
    double v[GPUS_MAX][SAMPLED_COUNT];

    for (size_t i = 0; i < g->n_cards; i++) {
        for (int f = 0; f < SAMPLED_COUNT; f++)
            v[i][f] = NAN;
        read_load(&g->nvml, g->cards[i].device, v[i]);
        read_health(&g->nvml, g->cards[i].device, v[i]);
    }
    (void)pthread_mutex_lock(&g->lock);
    if (!g->closed) {
        for (size_t i = 0; i < g->n_cards; i++)
            for (int f = 0; f < SAMPLED_COUNT; f++)
                show(g, &g->cards[i], (enum figure)f, v[i][f]);
        g->published_ms = clock_ms(clock_system());
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void *run_sampler(void *arg)
{
    struct gpu *g = arg;

    while (!mailbox_closed(g->stop)) {
        sample(g);
        (void)mailbox_get(g->stop, (int)g->interval_ms);
    }
    return NULL;
}

/* --- errors --- */

static struct card *card_of(struct gpu *g, const struct nvml_device *d)
{
    for (size_t i = 0; i < g->n_cards; i++)
        if (g->cards[i].device == d)
            return &g->cards[i];
    return NULL;
}

static void take_event(struct gpu *g, const struct nvml_event *e)
{
    struct card *c = card_of(g, e->device);
    struct metric *count;

    if (!c || e->type != NVML_EVENT_XID)
        return;
    log_error(g->logger, "GPU error", F_U64("xid", e->data), F_STR("gpu", c->index),
              F_STR("uuid", c->uuid));
    (void)pthread_mutex_lock(&g->lock);
    count = g->closed ? NULL : series_of(g, c, XID_COUNT);
    if (count) {
        g->failed = c;
        g->xid = e->data;
        metric_add(count, 1);
        show(g, c, XID_LAST, (double)e->data);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

bool gpu_last_error(struct gpu *g, unsigned wait_ms, char *out, size_t size)
{
    uint64_t until = clock_ms(clock_system()) + wait_ms;
    bool found;

    for (;;) {
        (void)pthread_mutex_lock(&g->lock);
        found = g->failed != NULL;
        if (found)
            (void)snprintf(out, size, "GPU %s (%s): Xid %llu", g->failed->index, g->failed->uuid,
                           g->xid);
        (void)pthread_mutex_unlock(&g->lock);
        if (found || clock_ms(clock_system()) >= until)
            return found;
        (void)usleep(POLL_US);
    }
}

/* The sampler is stuck: its figures are none any more. */
static void drop_stale(struct gpu *g)
{
    (void)pthread_mutex_lock(&g->lock);
    if (!g->closed && g->published_ms &&
        clock_ms(clock_system()) - g->published_ms > STALE_INTERVALS * g->interval_ms) {
        log_error(g->logger, "the GPU driver does not answer");
        for (size_t i = 0; i < g->n_cards; i++)
            for (int f = 0; f < SAMPLED_COUNT; f++)
                show(g, &g->cards[i], (enum figure)f, NAN);
        g->published_ms = 0;
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void *run_watcher(void *arg)
{
    struct gpu *g = arg;
    int wait_ms = (int)(g->interval_ms / 2) + 1;

    while (!mailbox_closed(g->stop)) {
        struct nvml_event e = {0};
        int code = g->events ? g->nvml.event_wait(g->events, &e, (unsigned)wait_ms) : NVML_TIMEOUT;

        if (code == 0)
            take_event(g, &e);
        else if (!g->events || code != NVML_TIMEOUT)
            (void)mailbox_get(g->stop, wait_ms); /* an error returns at once */
        drop_stale(g);
    }
    return NULL;
}

/* Not every GPU tells of errors; the count of one that does starts at 0. */
static void register_events(struct gpu *g)
{
    if (g->nvml.event_set(&g->events) != 0) {
        g->events = NULL;
        return;
    }
    for (size_t i = 0; i < g->n_cards; i++) {
        struct card *c = &g->cards[i];

        if (g->nvml.event_register(c->device, NVML_EVENT_XID, g->events) == 0)
            show(g, c, XID_COUNT, 0);
        else
            log_warn(g->logger, "GPU tells no Xid errors", F_STR("gpu", c->index));
    }
}

/* --- life --- */

/* A GPU that is lost has no handle; the others are watched all the same. */
static int find_cards(struct gpu *g, struct err *err)
{
    unsigned n = 0;
    int code = g->nvml.count(&n);

    if (code)
        return err_set(err, ERR_UNAVAILABLE, "NVML: %s", g->nvml.error_string(code));
    for (unsigned i = 0; i < n && g->n_cards < GPUS_MAX; i++) {
        struct card *c = &g->cards[g->n_cards];

        (void)snprintf(c->index, sizeof(c->index), "%u", i);
        code = g->nvml.handle(i, &c->device);
        if (code == 0)
            code = g->nvml.uuid(c->device, c->uuid, sizeof(c->uuid));
        c->uuid[sizeof(c->uuid) - 1] = '\0';
        if (code)
            log_warn(g->logger, "GPU cannot be watched", F_STR("gpu", c->index),
                     F_STR("error", g->nvml.error_string(code)));
        else
            g->n_cards++;
    }
    return g->n_cards ? 0 : err_set(err, ERR_UNAVAILABLE, "NVML: no GPU that can be watched");
}

static void gpu_free(struct gpu *g)
{
    if (g->events)
        (void)g->nvml.event_set_free(g->events);
    nvml_close(&g->nvml);
    mailbox_free(g->stop);
    (void)pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

int gpu_start(const struct gpu_options *o, struct gpu **ret, struct err *err)
{
    struct gpu *g = mem_calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_set(err, ERR_NO_MEMORY, "GPU metrics");
    g->metrics = o->metrics;
    g->logger = o->logger;
    g->interval_ms = o->interval_ms ? o->interval_ms : INTERVAL_MS;
    (void)pthread_mutex_init(&g->lock, NULL);
    r = mailbox_new(1, &g->stop, err);
    if (r == 0)
        r = nvml_open(&g->nvml, o->library ? o->library : "libnvidia-ml.so.1", err);
    if (r == 0)
        r = find_cards(g, err);
    if (r) {
        gpu_free(g);
        return r;
    }
    register_events(g);
    g->sampling = pthread_create(&g->sampler, NULL, run_sampler, g) == 0;
    g->watching = pthread_create(&g->watcher, NULL, run_watcher, g) == 0;
    if (!g->sampling || !g->watching) {
        gpu_stop(g);
        return err_set(err, ERR_NO_MEMORY, "GPU threads");
    }
    *ret = g;
    return 0;
}

static bool join(pthread_t thread)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_S;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

void gpu_stop(struct gpu *g)
{
    bool done = true;

    if (!g)
        return;
    (void)pthread_mutex_lock(&g->lock);
    g->closed = true;
    (void)pthread_mutex_unlock(&g->lock);
    mailbox_close(g->stop);
    if (g->sampling)
        done = join(g->sampler);
    if (g->watching)
        done = join(g->watcher) && done;
    if (done)
        gpu_free(g);
    else
        log_error(g->logger, "the GPU driver does not answer; its threads are left behind");
}
