/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c - Prometheus metrics from one table.
 *
 * A value is 64 bits of a double behind an atomic; an update is a compare-and-swap loop, a set is
 * one store.  The list of series grows under a lock, at start-up and when an object of a known
 * kind comes or goes, and rendering holds that lock; updates never do.
 */
#include "base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/mem.h"

enum { LABEL_TEXT_MAX = 1024, CONST_TEXT_MAX = 1024 };

struct metric {
    const struct metric_desc *desc;
    struct metric *next;
    char *values[METRIC_LABELS_MAX]; /* escaped */
    _Atomic double value;            /* histogram: the sum */
    atomic_ullong *counts;           /* histogram: n_buckets + 1, not cumulative */
};

struct metrics {
    const struct metric_desc *descs;
    size_t n_descs;
    bool with_aliases;
    size_t n_series;
    struct str const_labels; /* name="value",... */
    pthread_mutex_t lock;
    struct metric *series; /* newest first */
};

#define PROCESS_ROW(n, t, u, h)                                     \
    {                                                               \
        .name = "process_" n, .type = (t), .unit = (u), .help = (h) \
    }
const struct metric_desc METRICS_PROCESS[] = {
        PROCESS_ROW("cpu_seconds_total", METRIC_COUNTER, "seconds", "User and system CPU time."),
        PROCESS_ROW("resident_memory_bytes", METRIC_GAUGE, "bytes", "Resident memory."),
        PROCESS_ROW("max_fds", METRIC_GAUGE, "", "Limit of open file descriptors."),
};
const size_t METRICS_PROCESS_COUNT = sizeof(METRICS_PROCESS) / sizeof(METRICS_PROCESS[0]);

int metrics_new(const struct metric_desc *descs, size_t n_descs, bool with_aliases,
                struct metrics **ret, struct err *err)
{
    struct metrics *m = mem_calloc(1, sizeof(*m));

    if (!m)
        return err_set(err, ERR_NO_MEMORY, "metrics");
    *m = (struct metrics){.descs = descs, .n_descs = n_descs, .with_aliases = with_aliases};
    m->const_labels.max = CONST_TEXT_MAX;
    (void)pthread_mutex_init(&m->lock, NULL);
    *ret = m;
    return 0;
}

static void metric_free(struct metric *s)
{
    for (size_t i = 0; i < METRIC_LABELS_MAX; i++)
        mem_free(s->values[i]);
    mem_free(s->counts);
    mem_free(s);
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (struct metric *s = m->series, *next; s; s = next) {
        next = s->next;
        metric_free(s);
    }
    str_release(&m->const_labels);
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

/* Label values: backslash, quote and newline escaped, other control bytes replaced by '?'. */
static char *escape_label(const char *value)
{
    struct str out = STR_INIT(LABEL_TEXT_MAX);

    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            str_addf(&out, "\\%c", *value);
        else if (*value == '\n')
            str_adds(&out, "\\n");
        else
            str_addc(&out, (unsigned char)*value < 0x20 ? '?' : *value);
    }
    if (!out.data && !out.failed)
        return mem_strdup("");
    return str_take(&out);
}

int metrics_const_label(struct metrics *m, const char *name, const char *value, struct err *err)
{
    char *escaped = escape_label(value);

    if (!escaped)
        return err_set(err, ERR_NO_MEMORY, "metric label");
    str_addf(&m->const_labels, "%s%s=\"%s\"", m->const_labels.len ? "," : "", name, escaped);
    mem_free(escaped);
    return str_check(&m->const_labels, "metric labels", err);
}

static const struct metric_desc *find_desc(const struct metrics *m, const char *name)
{
    for (size_t i = 0; i < m->n_descs; i++)
        if (strcmp(m->descs[i].name, name) == 0)
            return &m->descs[i];
    return NULL;
}

static size_t n_labels(const struct metric_desc *d)
{
    size_t n = 0;

    while (n < METRIC_LABELS_MAX && d->labels[n])
        n++;
    return n;
}

static int metric_new(const struct metric_desc *d, const char *const *values, struct metric **ret,
                      struct err *err)
{
    struct metric *s = mem_calloc(1, sizeof(*s));
    bool ok = s != NULL;

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "metric '%s'", d->name);
    s->desc = d;
    for (size_t i = 0; i < n_labels(d) && ok; i++) {
        s->values[i] = escape_label(values[i]);
        ok = s->values[i] != NULL;
    }
    if (ok && d->type == METRIC_HISTOGRAM) {
        s->counts = mem_calloc(d->n_buckets + 1, sizeof(*s->counts));
        ok = s->counts != NULL;
    }
    if (!ok) {
        metric_free(s);
        return err_set(err, ERR_NO_MEMORY, "metric '%s'", d->name);
    }
    *ret = s;
    return 0;
}

static bool same_values(const struct metric *a, const struct metric *b)
{
    for (size_t i = 0; i < n_labels(a->desc); i++)
        if (strcmp(a->values[i], b->values[i]) != 0)
            return false;
    return true;
}

int metrics_series(struct metrics *m, const char *name, const char *const *label_values,
                   struct metric **ret, struct err *err)
{
    const struct metric_desc *d = find_desc(m, name);
    struct metric *fresh = NULL, *s;
    int r;

    ASSERT(d && !d->alias_of);
    r = metric_new(d, label_values, &fresh, err);
    if (r)
        return r;
    (void)pthread_mutex_lock(&m->lock);
    for (s = m->series; s; s = s->next)
        if (s->desc == d && same_values(s, fresh))
            break;
    if (!s && m->n_series < METRIC_SERIES_MAX) {
        s = fresh;
        fresh = NULL;
        s->next = m->series;
        m->series = s;
        m->n_series++;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (fresh)
        metric_free(fresh);
    if (!s)
        return err_set(err, ERR_BUSY, "more than %d metric series", METRIC_SERIES_MAX);
    *ret = s;
    return 0;
}

void metrics_drop(struct metrics *m, struct metric *s)
{
    (void)pthread_mutex_lock(&m->lock);
    for (struct metric **at = &m->series; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            m->n_series--;
            break;
        }
    }
    (void)pthread_mutex_unlock(&m->lock);
    metric_free(s);
}

void metric_add(struct metric *s, double delta)
{
    double old = atomic_load_explicit(&s->value, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&s->value, &old, old + delta,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metric_set(struct metric *s, double value)
{
    atomic_store_explicit(&s->value, value, memory_order_relaxed);
}

void metric_observe(struct metric *s, double value)
{
    const struct metric_desc *d = s->desc;
    size_t i = 0;

    while (i < d->n_buckets && value > d->buckets[i])
        i++;
    atomic_fetch_add_explicit(&s->counts[i], 1, memory_order_relaxed);
    metric_add(s, value);
}

double metric_get(const struct metric *s)
{
    double n = 0;

    if (s->desc->type != METRIC_HISTOGRAM)
        return atomic_load_explicit(&s->value, memory_order_relaxed);
    for (size_t i = 0; i <= s->desc->n_buckets; i++)
        n += (double)atomic_load_explicit(&s->counts[i], memory_order_relaxed);
    return n;
}

static void add_number(struct str *out, double v)
{
    if (isnan(v))
        str_adds(out, "NaN");
    else if (isinf(v))
        str_adds(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 1e15)
        str_addf(out, "%.0f", v);
    else
        str_addf(out, "%.17g", v);
}

/* {const labels, own labels, le}, or nothing when there are none */
static void add_labels(struct str *out, const struct metrics *m, const struct metric_desc *names,
                       const struct metric *s, const char *le)
{
    const char *comma = "";
    size_t from = out->len;

    str_addc(out, '{');
    if (m->const_labels.len) {
        str_adds(out, m->const_labels.data);
        comma = ",";
    }
    for (size_t i = 0; i < n_labels(s->desc); i++) {
        const char *name = names->labels[i] ? names->labels[i] : s->desc->labels[i];

        str_addf(out, "%s%s=\"%s\"", comma, name, s->values[i]);
        comma = ",";
    }
    if (le)
        str_addf(out, "%sle=\"%s\"", comma, le);
    if (!out->failed && out->len == from + 1) {
        out->len = from;
        out->data[from] = '\0';
    } else {
        str_addc(out, '}');
    }
}

static void add_sample(struct str *out, const struct metrics *m, const struct metric_desc *as,
                       const struct metric *s, const char *suffix, const char *le, double v)
{
    str_addf(out, "%s%s", as->name, suffix);
    add_labels(out, m, as, s, le);
    str_addc(out, ' ');
    add_number(out, v);
    str_addc(out, '\n');
}

static void add_histogram(struct str *out, const struct metrics *m, const struct metric_desc *as,
                          const struct metric *s)
{
    double sum = atomic_load_explicit(&s->value, memory_order_relaxed);
    double n = 0;

    for (size_t i = 0; i <= s->desc->n_buckets; i++) {
        char le[32] = "+Inf";

        if (i < s->desc->n_buckets)
            (void)snprintf(le, sizeof(le), "%g", s->desc->buckets[i]);
        n += (double)atomic_load_explicit(&s->counts[i], memory_order_relaxed);
        add_sample(out, m, as, s, "_bucket", le, n);
    }
    add_sample(out, m, as, s, "_sum", NULL, sum);
    add_sample(out, m, as, s, "_count", NULL, n);
}

/* All series of d, under the name and label names of 'as' (d itself, or an alias of it). */
static void add_family(struct str *out, const struct metrics *m, const struct metric_desc *d,
                       const struct metric_desc *as)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    bool any = false;

    for (const struct metric *s = m->series; s; s = s->next) {
        if (s->desc != d)
            continue;
        if (!any)
            str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", as->name, as->help, as->name,
                     types[as->type]);
        any = true;
        if (d->type == METRIC_HISTOGRAM)
            add_histogram(out, m, as, s);
        else
            add_sample(out, m, as, s, "", NULL, metric_get(s));
    }
}

/* 0 when /proc/self/statm cannot be read */
static double resident_bytes(void)
{
    unsigned long size, resident;
    FILE *f = fopen("/proc/self/statm", "re");
    double bytes = 0;

    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &size, &resident) == 2)
        bytes = (double)resident * (double)sysconf(_SC_PAGESIZE);
    (void)fclose(f);
    return bytes;
}

static void set_process(struct metrics *m)
{
    struct rusage ru;
    struct rlimit fds;

    (void)getrusage(RUSAGE_SELF, &ru);
    (void)getrlimit(RLIMIT_NOFILE, &fds);
    for (struct metric *s = m->series; s; s = s->next) {
        const char *name = s->desc->name;

        if (strcmp(name, "process_cpu_seconds_total") == 0)
            metric_set(s, (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
                                  1e-6 * (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec));
        else if (strcmp(name, "process_resident_memory_bytes") == 0)
            metric_set(s, resident_bytes());
        else if (strcmp(name, "process_max_fds") == 0)
            metric_set(s, (double)fds.rlim_cur);
    }
}

void metrics_render(struct metrics *m, struct str *out)
{
    (void)pthread_mutex_lock(&m->lock);
    set_process(m);
    for (size_t i = 0; i < m->n_descs; i++) {
        const struct metric_desc *as = &m->descs[i];

        if (as->alias_of && !m->with_aliases)
            continue;
        add_family(out, m, as->alias_of ? find_desc(m, as->alias_of) : as, as);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

void metrics_markdown(const struct metric_desc *descs, size_t n_descs, struct str *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    str_adds(out, "| metric | type | labels | unit | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < n_descs; i++) {
        str_addf(out, "| `%s` | %s | ", descs[i].name, types[descs[i].type]);
        for (size_t l = 0; l < METRIC_LABELS_MAX && descs[i].labels[l]; l++)
            str_addf(out, "%s%s", l ? ", " : "", descs[i].labels[l]);
        str_addf(out, " | %s | %s |\n", descs[i].unit ? descs[i].unit : "", descs[i].help);
    }
}
