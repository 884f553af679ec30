/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/bench_report.h"

#include <stdlib.h>

#include "base/json_writer.h"
#include "base/mem.h"

void samples_add(struct samples *s, double seconds)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        double *more = mem_realloc(s->v, cap * sizeof(*more));

        if (!more)
            return;
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = seconds;
}

void samples_release(struct samples *s)
{
    mem_free(s->v);
    *s = (struct samples){0};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank; 0 without samples.  The array is sorted. */
static double percentile(const struct samples *s, double p)
{
    size_t rank = (size_t)(p / 100 * (double)s->n + 0.5);

    if (s->n == 0)
        return 0;
    return s->v[rank == 0 ? 0 : rank > s->n ? s->n - 1 : rank - 1];
}

static double mean(const struct samples *s)
{
    double sum = 0;

    for (size_t i = 0; i < s->n; i++)
        sum += s->v[i];
    return s->n ? sum / (double)s->n : 0;
}

static void sort(struct samples *s)
{
    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), compare);
}

static double per_second(const struct bench_report *r, double n)
{
    return r->seconds > 0 ? n / r->seconds : 0;
}

static void add_row(struct str *out, const char *name, struct samples *s)
{
    sort(s);
    str_addf(out, "%-24s %10.1f %10.1f %10.1f %10.1f\n", name, 1e3 * mean(s),
             1e3 * percentile(s, 50), 1e3 * percentile(s, 90), 1e3 * percentile(s, 99));
}

void bench_report_table(struct bench_report *r, struct str *out)
{
    str_addf(out, "%u of %u requests answered in %.1f s by %s (%s)\n", r->n_ok, r->n_prompts,
             r->seconds, r->url, r->model);
    if (r->n_failed)
        str_addf(out, "%u failed; the first: %s\n", r->n_failed, r->first_error);
    str_addf(out, "\n%-24s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p90", "p99");
    add_row(out, "time to first token", &r->ttft);
    add_row(out, "inter-token latency", &r->itl);
    add_row(out, "end to end", &r->e2e);
    str_addf(out, "\n%-24s %10.2f\n%-24s %10.1f\n%-24s %10.1f\n", "requests/s",
             per_second(r, r->n_ok), "output tokens/s", per_second(r, (double)r->output_tokens),
             "all tokens/s", per_second(r, (double)(r->output_tokens + r->prompt_tokens)));
}

static void write_samples(struct json_writer *w, const char *key, struct samples *s)
{
    sort(s);
    json_key(w, key);
    json_obj(w);
    json_kv_f64(w, "mean", 1e3 * mean(s));
    json_kv_f64(w, "p50", 1e3 * percentile(s, 50));
    json_kv_f64(w, "p90", 1e3 * percentile(s, 90));
    json_kv_f64(w, "p99", 1e3 * percentile(s, 99));
    json_end(w);
}

void bench_report_json(struct bench_report *r, struct str *out)
{
    struct json_writer w = json_writer_start(out);

    json_obj(&w);
    json_kv_text(&w, "url", r->url);
    json_kv_text(&w, "model", r->model);
    json_kv_i64(&w, "num_prompts", r->n_prompts);
    json_kv_i64(&w, "completed", r->n_ok);
    json_kv_i64(&w, "failed", r->n_failed);
    json_kv_text(&w, "first_error", r->n_failed ? r->first_error : NULL);
    json_kv_f64(&w, "duration_s", r->seconds);
    json_kv_i64(&w, "prompt_tokens", (int64_t)r->prompt_tokens);
    json_kv_i64(&w, "output_tokens", (int64_t)r->output_tokens);
    json_kv_f64(&w, "request_throughput", per_second(r, r->n_ok));
    json_kv_f64(&w, "output_throughput", per_second(r, (double)r->output_tokens));
    write_samples(&w, "ttft_ms", &r->ttft);
    write_samples(&w, "itl_ms", &r->itl);
    write_samples(&w, "e2e_ms", &r->e2e);
    json_end(&w);
    str_addc(out, '\n');
}
