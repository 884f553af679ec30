/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/communicator.h"

#include "runtime/parallel/communicator_kind.h"

void communicator_free(struct communicator *c)
{
    if (c)
        c->kind->free(c);
}

unsigned communicator_rank(const struct communicator *c)
{
    return c->rank;
}

unsigned communicator_size(const struct communicator *c)
{
    return c->size;
}

int communicator_all_reduce(struct communicator *c, float *data, size_t n, void *stream,
                            struct err *err)
{
    return c->kind->all_reduce(c, data, n, stream, err);
}

int communicator_all_gather(struct communicator *c, const float *part, size_t n, float *all,
                            void *stream, struct err *err)
{
    return c->kind->all_gather(c, part, n, all, stream, err);
}

int communicator_check(struct communicator *c, struct err *err)
{
    return c->kind->check(c, err);
}

void communicator_abort(struct communicator *c)
{
    c->kind->abort(c);
}
