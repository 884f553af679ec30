/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/parallel/communicator.h"

/* What a kind of communicator does; the first member of its ends. */
struct communicator_kind {
    void (*free)(struct communicator *c);
    int (*all_reduce)(struct communicator *c, float *data, size_t n, void *stream, struct err *err);
    int (*all_gather)(struct communicator *c, const float *part, size_t n, float *all, void *stream,
                      struct err *err);
    int (*check)(struct communicator *c, struct err *err);
    void (*abort)(struct communicator *c);
};

struct communicator {
    const struct communicator_kind *kind;
    unsigned rank;
    unsigned size;
};
