/* SPDX-License-Identifier: Apache-2.0
 *
 * device_host.c - the host devices: a list of ops run by a pool of threads.
 *
 * The ops run one after the other, each shared out by the pool (an op with a single item is the
 * caller's alone).  How items are dealt does not change results (kernels.h).  A meeting with other
 * ranks is the caller's, between two ops.
 *
 * Memory is taken while the model loads and given back with the device; running the list takes
 * none.  Weights are packed here, by the same pool.  Threading: one caller.
 */
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/device/cpu_count.h"
#include "runtime/device/device_kind.h"
#include "runtime/device/pool.h"

enum {
    ALIGN = 64,
    COMMANDS_MAX = 512,
    LOGIT_ROWS = 8, /* a row may be a megabyte, and the cache is small */
};

struct command {
    const struct k_ops *ops;
    enum device_op op;
    uint32_t n_items;
    union device_args args;
};

/* Something to free with the device. */
struct piece {
    struct piece *next;
};

struct host {
    struct device base;
    const struct k_ops *ops;
    struct pool *pool;
    struct piece *pieces;
    struct err failed; /* code 0: nothing did */
    uint32_t n_commands;
    struct command commands[COMMANDS_MAX];
};

static struct host *host_of(struct device *d)
{
    return (struct host *)d;
}

static void host_free(struct device *d)
{
    struct host *h = host_of(d);

    pool_free(h->pool);
    while (h->pieces) {
        struct piece *next = h->pieces->next;

        mem_free(h->pieces);
        h->pieces = next;
    }
    mem_free(h);
}

static int host_alloc(struct device *d, size_t bytes, void **ret, struct err *err)
{
    struct host *h = host_of(d);
    struct piece *piece = NULL;

    /* calloc gives untouched pages for what is large: memory nobody uses costs nothing */
    if (bytes <= SIZE_MAX - 2 * ALIGN)
        piece = mem_calloc(1, bytes + 2 * ALIGN);
    if (!piece)
        return err_set(err, ERR_NO_MEMORY, "%zu bytes for the device", bytes);
    piece->next = h->pieces;
    h->pieces = piece;
    *ret = (void *)(((uintptr_t)piece + 2 * ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    return 0;
}

static uint64_t host_memory_left(const struct device *d)
{
    (void)d;
    return UINT64_MAX;
}

static int host_mirror_new(struct device *d, size_t bytes, struct device_mirror *ret,
                           struct err *err)
{
    void *p = NULL;
    int r = host_alloc(d, bytes, &p, err);

    *ret = (struct device_mirror){.host = p, .device = p};
    return r;
}

static int host_mirror_wait(struct device *d, const struct device_mirror *m, struct err *err)
{
    (void)d;
    (void)m;
    (void)err;
    return 0;
}

static void host_mirror_copy(struct device *d, const struct device_mirror *m, size_t bytes)
{
    (void)d;
    (void)m;
    (void)bytes;
}

static void compute(void *userdata, uint32_t first, uint32_t end)
{
    const struct command *c = userdata;
    const struct k_ops *ops = c->ops;
    const union device_args *a = &c->args;

    switch (c->op) {
    case OP_EMBED:
        ops->embed(&a->embed, first, end);
        break;
    case OP_NORM:
        ops->norm(&a->norm, first, end);
        break;
    case OP_NORM_ADD:
        ops->norm_add(&a->norm_add, first, end);
        break;
    case OP_MATMUL:
        ops->matmul(&a->matmul, first, end);
        break;
    case OP_ANGLES:
        ops->angles(&a->angles, first, end);
        break;
    case OP_STORE:
        ops->store(&a->store, first, end);
        break;
    case OP_ATTEND:
        ops->attend(&a->attend, first, end);
        break;
    case OP_GATE:
        ops->gate(&a->gate, first, end);
        break;
    case OP_ADJUST:
        ops->adjust(&a->adjust, first, end);
        break;
    case OP_SAMPLE:
        ops->sample(&a->sample, first, end);
        break;
    case OP_GATHER:
        ops->gather(&a->gather, first, end);
        break;
    case OP_PACK:
        ops->pack(&a->pack, first, end);
        break;
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
        break; /* meet()'s */
    }
}

/* The other ranks may be gone: that ends this device. */
static int meet(struct host *h, const struct command *c)
{
    const union device_args *a = &c->args;

    if (c->op == OP_ALL_REDUCE)
        return communicator_all_reduce(h->base.comm, a->all_reduce.data, a->all_reduce.n, NULL,
                                       &h->failed);
    return communicator_all_gather(h->base.comm, a->all_gather.part, a->all_gather.n,
                                   a->all_gather.all, NULL, &h->failed);
}

static void run(struct host *h)
{
    for (uint32_t i = 0; i < h->n_commands && h->failed.code == ERR_NONE; i++) {
        struct command *c = &h->commands[i];

        if (c->op == OP_ALL_REDUCE || c->op == OP_ALL_GATHER)
            (void)meet(h, c);
        else
            pool_do(h->pool, compute, c, c->n_items);
    }
    h->n_commands = 0;
}

static void host_append(struct device *d, enum device_op op, const void *args, size_t size,
                        uint32_t n_items)
{
    struct host *h = host_of(d);
    struct command *c;

    if (h->n_commands == COMMANDS_MAX)
        run(h);
    c = &h->commands[h->n_commands++];
    c->ops = h->ops;
    c->op = op;
    c->n_items = n_items;
    memcpy(&c->args, args, size);
}

static int host_submit(struct device *d, struct err *err)
{
    struct host *h = host_of(d);

    run(h);
    if (h->failed.code != ERR_NONE)
        *err = h->failed;
    return -(int)h->failed.code;
}

static int host_replay(struct device *d, unsigned key, enum device_replay *ret, struct err *err)
{
    (void)d;
    (void)key;
    (void)err;
    *ret = DEVICE_PLAIN;
    return 0;
}

static int host_record_end(struct device *d, unsigned key, struct err *err)
{
    (void)key;
    return host_submit(d, err);
}

static int host_matrix(struct device *d, const struct device_weight_desc *desc, const void *rows,
                       const void **ret, struct err *err)
{
    struct host *h = host_of(d);
    struct k_pack a = {
            .type = desc->type, .n_in = desc->n_in, .n_out = desc->n_out, .stored = rows};
    int r = host_alloc(d, h->ops->packed_bytes(desc->type, desc->n_in, desc->n_out), &a.packed,
                       err);

    if (r < 0)
        return r;
    host_append(d, OP_PACK, &a, sizeof(a), (desc->n_out + K_TILE - 1) / K_TILE);
    run(h);
    *ret = a.packed;
    return 0;
}

static int host_vector(struct device *d, enum k_type type, uint32_t n, const void *bytes,
                       float **ret, struct err *err)
{
    void *p = NULL;
    int r = host_alloc(d, n * sizeof(float), &p, err);

    if (r == 0)
        k_dequantise(type, bytes, n, p);
    *ret = p;
    return r;
}

static int pick_ops(const char *name, const struct k_ops **ret, struct err *err)
{
    if (strcmp(name, "ref") == 0)
        *ret = k_ref_ops();
    else if (strcmp(name, "cpu") == 0 || strcmp(name, "auto") == 0)
        *ret = k_cpu_ops(0);
    else
        return err_set(err, ERR_INVALID, "device '%s', want auto, cpu, cuda or ref", name);
    return 0;
}

int device_host_new(const struct device_options *o, struct device **ret, struct err *err)
{
    static const struct device_kind kind = {
            .free = host_free,
            .alloc = host_alloc,
            .memory_left = host_memory_left,
            .mirror_new = host_mirror_new,
            .mirror_wait = host_mirror_wait,
            .mirror_put = host_mirror_copy,
            .mirror_get = host_mirror_copy,
            .matrix = host_matrix,
            .vector = host_vector,
            .append = host_append,
            .submit = host_submit,
            .replay = host_replay,
            .record_end = host_record_end,
    };
    struct host *h = mem_calloc(1, sizeof(*h));
    int r;

    if (!h)
        return err_set(err, ERR_NO_MEMORY, "device");
    h->base.kind = &kind;
    h->base.is_host = true;
    h->base.logit_rows = LOGIT_ROWS;
    r = pick_ops(o->name, &h->ops, err);
    if (r == 0)
        r = pool_new(o->n_threads == 0 ? cpu_count() : o->n_threads, &h->pool, err);
    if (r < 0) {
        host_free(&h->base);
        return r;
    }
    (void)snprintf(h->base.name, sizeof(h->base.name), "%s", h->ops->name);
    h->base.aliases = h->ops->packed_bytes == NULL;
    h->base.kv_f32 = h->ops->kv_f32;
    h->base.wants_q = h->ops->wants_q;
    *ret = &h->base;
    return 0;
}
