/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - the host devices: a list of ops run by a pool of threads.
 *
 * The ops run one after the other, each shared out by the pool (an op with a single item is the
 * caller's alone).  How items are dealt does not change results (kernels.h).
 *
 * Memory is taken while the model loads and given back with the device; running the list takes
 * none.  Weights are packed here, by the same pool.  Threading: one caller.
 */
#include "runtime/device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/device/cpu_count.h"
#include "runtime/device/pool.h"

enum { ALIGN = 64, COMMANDS_MAX = 512 };

enum op {
    OP_PACK,
    OP_EMBED,
    OP_NORM,
    OP_NORM_ADD,
    OP_MATMUL,
    OP_ANGLES,
    OP_STORE,
    OP_ATTEND,
    OP_GATE,
    OP_SAMPLE,
};

struct command {
    const struct k_ops *ops;
    enum op op;
    uint32_t n_items;
    union {
        struct k_pack pack;
        struct k_embed embed;
        struct k_norm norm;
        struct k_norm_add norm_add;
        struct k_matmul matmul;
        struct k_angles angles;
        struct k_store store;
        struct k_attend attend;
        struct k_gate gate;
        struct k_sample sample;
    } args;
};

struct device_weight {
    struct k_matrix matrix;
};

/* Something to free with the device. */
struct piece {
    struct piece *next;
};

struct device {
    char name[32];
    const struct k_ops *ops;
    struct pool *pool;
    struct piece *pieces;
    bool wants_q;   /* a weight multiplies k_act's q form */
    bool wants_f32; /* a weight multiplies its f32 form */
    uint32_t n_commands;
    struct command commands[COMMANDS_MAX];
};

static int pick_ops(const char *name, const struct k_ops **ret, struct err *err)
{
    if (strcmp(name, "ref") == 0)
        *ret = k_ref_ops();
    else if (strcmp(name, "cpu") == 0 || strcmp(name, "auto") == 0)
        *ret = k_cpu_ops(0);
    else
        return err_set(err, ERR_INVALID, "device '%s', want auto, cpu or ref", name);
    return 0;
}

int device_new(const char *name, unsigned n_threads, struct device **ret, struct err *err)
{
    CLEANUP(device_freep) struct device *d = mem_calloc(1, sizeof(*d));
    int r;

    if (!d)
        return err_set(err, ERR_NO_MEMORY, "device");
    r = pick_ops(name, &d->ops, err);
    if (r == 0)
        r = pool_new(n_threads == 0 ? cpu_count() : n_threads, &d->pool, err);
    if (r < 0)
        return r;
    (void)snprintf(d->name, sizeof(d->name), "%s", d->ops->name);
    *ret = TAKE_PTR(d);
    return 0;
}

void device_free(struct device *d)
{
    if (!d)
        return;
    pool_free(d->pool);
    while (d->pieces) {
        struct piece *next = d->pieces->next;

        mem_free(d->pieces);
        d->pieces = next;
    }
    mem_free(d);
}

const char *device_name(const struct device *d)
{
    return d->name;
}

bool device_kv_f32(const struct device *d)
{
    return d->ops->kv_f32;
}

int device_alloc(struct device *d, size_t n, size_t size, void **ret, struct err *err)
{
    struct piece *piece = NULL;
    size_t bytes;

    /* calloc gives untouched pages for what is large: memory nobody uses costs nothing */
    if (!__builtin_mul_overflow(n, size, &bytes) && bytes <= SIZE_MAX - 2 * ALIGN)
        piece = mem_calloc(1, bytes + 2 * ALIGN);
    if (!piece)
        return err_set(err, ERR_NO_MEMORY, "%zu x %zu bytes for the device", n, size);
    piece->next = d->pieces;
    d->pieces = piece;
    *ret = (void *)(((uintptr_t)piece + 2 * ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    return 0;
}

static void compute(void *userdata, uint32_t first, uint32_t end)
{
    const struct command *c = userdata;
    const struct k_ops *ops = c->ops;

    switch (c->op) {
    case OP_PACK:
        ops->pack(&c->args.pack, first, end);
        break;
    case OP_EMBED:
        ops->embed(&c->args.embed, first, end);
        break;
    case OP_NORM:
        ops->norm(&c->args.norm, first, end);
        break;
    case OP_NORM_ADD:
        ops->norm_add(&c->args.norm_add, first, end);
        break;
    case OP_MATMUL:
        ops->matmul(&c->args.matmul, first, end);
        break;
    case OP_ANGLES:
        ops->angles(&c->args.angles, first, end);
        break;
    case OP_STORE:
        ops->store(&c->args.store, first, end);
        break;
    case OP_ATTEND:
        ops->attend(&c->args.attend, first, end);
        break;
    case OP_GATE:
        ops->gate(&c->args.gate, first, end);
        break;
    case OP_SAMPLE:
        ops->sample(&c->args.sample, first, end);
        break;
    }
}

void device_run(struct device *d)
{
    for (uint32_t i = 0; i < d->n_commands; i++)
        pool_do(d->pool, compute, &d->commands[i], d->commands[i].n_items);
    d->n_commands = 0;
}

/* A new command at the end of the list; NULL when there is nothing to compute. */
static struct command *append(struct device *d, enum op op, uint32_t n_items)
{
    struct command *c;

    if (n_items == 0)
        return NULL;
    if (d->n_commands == COMMANDS_MAX)
        device_run(d);
    c = &d->commands[d->n_commands++];
    c->ops = d->ops;
    c->op = op;
    c->n_items = n_items;
    return c;
}

void device_embed(struct device *d, const struct k_embed *a)
{
    struct command *c = append(d, OP_EMBED, a->n_rows);

    if (c)
        c->args.embed = *a;
}

void device_norm(struct device *d, const struct k_norm *a)
{
    struct command *c = append(d, OP_NORM, a->n_rows);

    if (c)
        c->args.norm = *a;
}

void device_norm_add(struct device *d, const struct k_norm_add *a)
{
    struct command *c = append(d, OP_NORM_ADD, a->n_rows);

    if (c)
        c->args.norm_add = *a;
}

void device_matmul(struct device *d, const struct k_matmul *a)
{
    struct command *c = append(d, OP_MATMUL, a->n_rows == 0 ? 0 : k_matmul_items(a));

    for (uint32_t m = 0; m < a->n_mats; m++)
        ASSERT(a->w[m]->n_in == a->in.n);
    if (c)
        c->args.matmul = *a;
}

void device_angles(struct device *d, const struct k_angles *a)
{
    struct command *c = append(d, OP_ANGLES, a->n_rows);

    if (c)
        c->args.angles = *a;
}

void device_store(struct device *d, const struct k_store *a)
{
    struct command *c = append(d, OP_STORE, a->n_rows);

    if (c)
        c->args.store = *a;
}

void device_attend(struct device *d, const struct k_attend *a)
{
    struct command *c = append(d, OP_ATTEND, a->n_spans * a->kv.n_kv_heads);

    if (c)
        c->args.attend = *a;
}

void device_gate(struct device *d, const struct k_gate *a)
{
    struct command *c = append(d, OP_GATE, a->n_rows);

    if (c)
        c->args.gate = *a;
}

void device_sample(struct device *d, const struct k_sample *a)
{
    struct command *c = append(d, OP_SAMPLE, a->n_rows);

    if (c)
        c->args.sample = *a;
}

static int pack(struct device *d, const struct device_weight_desc *desc, const void *stored,
                void **ret, struct err *err)
{
    struct k_pack a = {
            .type = desc->type, .n_in = desc->n_in, .n_out = desc->n_out, .stored = stored};
    struct command *c;
    int r = device_alloc(d, 1, d->ops->packed_bytes(desc->type, desc->n_in, desc->n_out), &a.packed,
                         err);

    if (r < 0)
        return r;
    c = append(d, OP_PACK, (desc->n_out + K_TILE - 1) / K_TILE);
    if (c)
        c->args.pack = a;
    device_run(d);
    *ret = a.packed;
    return 0;
}

int device_weight(struct device *d, const struct device_weight_desc *desc, const void *bytes,
                  struct device_shard shard, const struct device_weight **ret, bool *ret_aliases,
                  struct err *err)
{
    size_t row_bytes = (size_t)(desc->n_in / k_block_len(desc->type)) * k_block_bytes(desc->type);
    const uint8_t *stored = (const uint8_t *)bytes + shard.first_out * row_bytes;
    struct device_weight_desc part = {.type = desc->type, .n_in = desc->n_in, .n_out = shard.n_out};
    struct device_weight *w;
    void *p = NULL;
    int r;

    ASSERT(shard.n_out > 0 && shard.first_out <= desc->n_out - shard.n_out);
    r = device_alloc(d, 1, sizeof(*w), &p, err);
    if (r < 0)
        return r;
    w = p;
    w->matrix = (struct k_matrix){
            .type = desc->type, .n_in = desc->n_in, .n_out = shard.n_out, .data = stored};
    *ret_aliases = d->ops->packed_bytes == NULL;
    if (!*ret_aliases) {
        r = pack(d, &part, stored, &p, err);
        if (r < 0)
            return r;
        w->matrix.data = p;
    }
    if (d->ops->wants_q && d->ops->wants_q(desc->type))
        d->wants_q = true;
    else
        d->wants_f32 = true;
    *ret = w;
    return 0;
}

const struct k_matrix *device_weight_matrix(const struct device_weight *w)
{
    return &w->matrix;
}

int device_vector(struct device *d, enum k_type type, uint32_t n, const void *bytes,
                  const float **ret, struct err *err)
{
    void *p = NULL;
    int r = device_alloc(d, n, sizeof(float), &p, err);

    if (r < 0)
        return r;
    k_dequantise(type, bytes, n, p);
    *ret = p;
    return 0;
}

int device_act(struct device *d, uint32_t n_rows, uint32_t n, struct k_act *ret, struct err *err)
{
    size_t n_groups = (n + K_GROUP - 1) / K_GROUP;
    void *p = NULL;
    int r = 0;

    *ret = (struct k_act){.n = n};
    if (d->wants_f32) {
        r = device_alloc(d, n_rows, n * sizeof(float), &p, err);
        ret->f32 = p;
    }
    if (r == 0 && d->wants_q) {
        r = device_alloc(d, n_rows, n_groups * K_GROUP, &p, err);
        ret->q = p;
        if (r == 0)
            r = device_alloc(d, n_rows, n_groups * sizeof(float), &p, err);
        ret->scale = p;
        if (r == 0)
            r = device_alloc(d, n_rows, n_groups * sizeof(int32_t), &p, err);
        ret->total = p;
        if (r == 0)
            r = device_alloc(d, n_rows, n_groups * sizeof(float), &p, err);
        ret->sum = p;
    }
    return r;
}
