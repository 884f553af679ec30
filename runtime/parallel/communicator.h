/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* How the ranks of a model, each on a thread of its own, put their partial results together.  A
 * group is made at once, one end for each rank; an end belongs to its rank's thread.  All ranks
 * make the same calls in the same order.
 *
 * Two kinds: threads (buffers in this process's memory; a call returns when it is done) and NCCL
 * (buffers on the ranks' GPUs; a call queues on the stream).  Sums are taken in rank order or by
 * NCCL's algorithm, so that every rank gets the same bits.
 *
 * A rank that does not come within the timeout, or comes with something else, is an error for all:
 * ERR_DEVICE, and the group is of no use any more. */
struct communicator;

enum { COMMUNICATOR_RANKS_MAX = 8 };

/* n_max: most floats of one call. */
int communicator_new_threads(unsigned n_ranks, size_t n_max, uint64_t timeout_ms,
                             struct communicator **ret /* [n_ranks] */, struct err *err) MUST_CHECK;
/* One GPU each, 0 .. n_ranks - 1; in a build without CUDA ERR_UNAVAILABLE. */
int communicator_new_nccl(unsigned n_ranks, struct communicator **ret, struct err *err) MUST_CHECK;
/* Each end is freed; the last one takes the group along. */
void communicator_free(struct communicator *c);
DEFINE_FREEP(communicator)

unsigned communicator_rank(const struct communicator *c);
unsigned communicator_size(const struct communicator *c);

/* data[i] = sum over the ranks, in place. */
int communicator_all_reduce(struct communicator *c, float *data, size_t n, void *stream,
                            struct err *err) MUST_CHECK;
/* all[k x n ..] = rank k's part. */
int communicator_all_gather(struct communicator *c, const float *part, size_t n, float *all,
                            void *stream, struct err *err) MUST_CHECK;
/* Is the group still whole?  For calls that were queued. */
int communicator_check(struct communicator *c, struct err *err) MUST_CHECK;
/* From any thread: calls under way and to come fail on every rank. */
void communicator_abort(struct communicator *c);
