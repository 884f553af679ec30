/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Latencies of a benchmark run, and what is printed of them. */

/* Samples in seconds; grows as needed. */
struct samples {
    double *v;
    size_t n, cap;
};
void samples_add(struct samples *s, double seconds); /* out of memory: the sample is lost */
void samples_release(struct samples *s);

struct bench_report {
    const char *url, *model;
    uint32_t n_prompts, n_ok, n_failed;
    char first_error[256];
    double seconds; /* the whole run */
    uint64_t prompt_tokens, output_tokens;
    struct samples ttft, itl, e2e;
};

void bench_report_table(struct bench_report *r, struct str *out);
void bench_report_json(struct bench_report *r, struct str *out);
