/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

/* Prometheus metrics from one table.  A binary declares its metrics once (name, type, unit, help,
 * labels); /metrics and docs/reference are made from that table.  Series exist from the moment
 * metrics_series() made them, never from data: no client can create one.  Updating a series is
 * an atomic operation, any thread; rendering takes no lock that an update waits for. */
struct metrics;
struct metric; /* one series; lives as long as its struct metrics */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
enum { METRIC_LABELS_MAX = 3, METRIC_SERIES_MAX = 1024 };

struct metric_desc {
    const char *name; /* full name as exposed, unit and _total included */
    enum metric_type type;
    const char *unit; /* for the docs: "seconds", "tokens", "ratio", "" */
    const char *help;
    const char *labels[METRIC_LABELS_MAX]; /* names; NULL after the last */
    const double *buckets;                 /* histogram: ascending upper bounds without +Inf */
    size_t n_buckets;
    /* A second exposition of another row under this name (routers and dashboards know it):
     * name of that row, or NULL.  Its type and buckets are that row's; labels, when set, rename. */
    const char *alias_of;
};

/* descs must outlive the object.  const_labels, e.g. model_name="chat" rendered already, stands
 * on every series; NULL for none.  with_aliases = false drops alias rows. */
int metrics_new(const struct metric_desc *descs, size_t n_descs, bool with_aliases,
                struct metrics **ret, struct err *err) MUST_CHECK;
void metrics_free(struct metrics *m);
DEFINE_FREEP(metrics)
/* Adds name="value" to every series; call before the first render. */
int metrics_const_label(struct metrics *m, const char *name, const char *value,
                        struct err *err) MUST_CHECK;

/* The series of descs[i] named 'name' with these label values (copied); made on first call. */
int metrics_series(struct metrics *m, const char *name, const char *const *label_values,
                   struct metric **ret, struct err *err) MUST_CHECK;
/* Remove a series of a gauge or counter (its object is gone); the pointer is dead after. */
void metrics_drop(struct metrics *m, struct metric *s);

void metric_add(struct metric *s, double delta);     /* counter (delta >= 0) or gauge */
void metric_set(struct metric *s, double value);     /* gauge; counter only to mirror a kernel's */
void metric_observe(struct metric *s, double value); /* histogram */
double metric_get(const struct metric *s);           /* histogram: the count */

/* Text format 0.0.4, appended. */
void metrics_render(struct metrics *m, struct str *out);
/* The table as Markdown, for docs/reference. */
void metrics_markdown(const struct metric_desc *descs, size_t n_descs, struct str *out);
/* Sets process_cpu_seconds_total, process_resident_memory_bytes and its kin if the table has
 * them; called by metrics_render(). */
extern const struct metric_desc METRICS_PROCESS[];
extern const size_t METRICS_PROCESS_COUNT;
