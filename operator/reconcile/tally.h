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
    int xid;                /* an error of a GPU, 0: none */
    const char *xid_gpu, *xid_pod, *xid_node; /* borrowed from the snapshot */
    enum load_phase phase;                    /* of the pod that is furthest */
    int percent;                              /* of its load, in steps of 10 */
    int64_t bytes_total;
};

void tally_make(const struct observed *seen, const char *spec_digest, struct tally *ret);
