/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "operator/api/pod.h"
#include "operator/reconcile/observed.h"

/* The pods of a service, counted. */
struct tally {
    size_t serving, loading, failing;
    size_t old;             /* alive pods of another template */
    size_t alive;           /* serving + loading + failing */
    struct pod_cause cause; /* the one that explains most; reason "" if nothing is wrong */
    enum load_phase phase;  /* of the pod that is furthest */
    int percent;            /* of its load, in steps of 10 */
    int64_t bytes_total;
};

void tally_make(const struct observed *seen, const char *spec_digest, struct tally *ret);
