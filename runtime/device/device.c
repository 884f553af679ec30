/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - the public calls, and what is the same on every device: which forms of activations
 * are wanted, shards, empty ops.
 *
 * Threading: one caller.
 */
#include "runtime/device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/device/device_kind.h"

/* "auto" takes a GPU when there is one that works, and tells in its name why not otherwise. */
static int new_auto(const struct device_options *o, struct device **ret, struct err *err)
{
    struct err why = {0};
    int r;

    if (device_cuda_new(o, ret, &why) == 0)
        return 0;
    r = device_host_new(o, ret, err);
    if (r == 0 && why.code != ERR_UNAVAILABLE) {
        size_t n = strlen((*ret)->name);

        (void)snprintf((*ret)->name + n, sizeof((*ret)->name) - n, "; no GPU: %s", why.msg);
    }
    return r;
}

int device_new(const struct device_options *o, struct device **ret, struct err *err)
{
    if (strcmp(o->name, "auto") == 0)
        return new_auto(o, ret, err);
    if (strcmp(o->name, "cuda") == 0)
        return device_cuda_new(o, ret, err);
    return device_host_new(o, ret, err);
}

void device_free(struct device *d)
{
    if (!d)
        return;
    while (d->weights) {
        struct device_weight *next = d->weights->next;

        mem_free(d->weights);
        d->weights = next;
    }
    d->kind->free(d);
}

const char *device_name(const struct device *d)
{
    return d->name;
}

bool device_is_host(const struct device *d)
{
    return d->is_host;
}

void device_join(struct device *d, struct communicator *comm)
{
    d->comm = comm;
}

uint32_t device_logit_rows(const struct device *d)
{
    return d->logit_rows;
}

bool device_kv_f32(const struct device *d)
{
    return d->kv_f32;
}

int device_alloc(struct device *d, size_t n, size_t size, void **ret, struct err *err)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return err_set(err, ERR_NO_MEMORY, "%zu x %zu bytes for the device", n, size);
    return d->kind->alloc(d, bytes, ret, err);
}

uint64_t device_memory_left(const struct device *d)
{
    return d->kind->memory_left(d);
}

int device_mirror_new(struct device *d, size_t bytes, struct device_mirror *ret, struct err *err)
{
    return d->kind->mirror_new(d, bytes, ret, err);
}

int device_mirror_wait(struct device *d, const struct device_mirror *m, struct err *err)
{
    return d->kind->mirror_wait(d, m, err);
}

void device_mirror_put(struct device *d, const struct device_mirror *m, size_t bytes)
{
    d->kind->mirror_put(d, m, bytes);
}

void device_mirror_get(struct device *d, const struct device_mirror *m, size_t bytes)
{
    d->kind->mirror_get(d, m, bytes);
}

int device_submit(struct device *d, struct err *err)
{
    return d->kind->submit(d, err);
}

bool device_keeps_lists(const struct device *d)
{
    return d->keeps_lists;
}

int device_replay(struct device *d, unsigned key, enum device_replay *ret, struct err *err)
{
    ASSERT(key < DEVICE_REPLAYS_MAX);
    return d->kind->replay(d, key, ret, err);
}

int device_record_end(struct device *d, unsigned key, struct err *err)
{
    return d->kind->record_end(d, key, err);
}

/* weights */

/* A shard that leaves out columns is not contiguous in the file: a copy of it is made. */
static int cut_columns(const struct device_weight_desc *desc, const uint8_t *rows,
                       struct device_shard shard, uint8_t **ret, struct err *err)
{
    size_t length = k_block_len(desc->type), bytes = k_block_bytes(desc->type);
    size_t row_bytes = desc->n_in / length * bytes, part_bytes = shard.n_in / length * bytes;
    size_t skip = shard.first_in / length * bytes;
    uint8_t *copy = mem_calloc(shard.n_out, part_bytes);

    ASSERT(shard.first_in % length == 0 && shard.n_in % length == 0);
    if (!copy)
        return err_set(err, ERR_NO_MEMORY, "shard of %u x %u weights", shard.n_out, shard.n_in);
    for (size_t i = 0; i < shard.n_out; i++)
        memcpy(copy + i * part_bytes, rows + i * row_bytes + skip, part_bytes);
    *ret = copy;
    return 0;
}

static void note_form(struct device *d, enum k_type type)
{
    if (d->wants_q && d->wants_q(type))
        d->some_want_q = true;
    else
        d->some_want_f32 = true;
}

/* A handle is host memory that lives with the device's; a device that aliases may keep the copy
 * for good, so the copy is of the device's memory then. */
static int keep_matrix(struct device *d, const struct device_weight_desc *part, const uint8_t *rows,
                       const uint8_t *copy, const void **ret, struct err *err)
{
    size_t bytes = part->n_in / k_block_len(part->type) * (size_t)k_block_bytes(part->type);
    void *kept = NULL;
    int r;

    if (!d->aliases)
        return d->kind->matrix(d, part, copy ? copy : rows, ret, err);
    *ret = rows;
    if (!copy)
        return 0;
    r = device_alloc(d, part->n_out, bytes, &kept, err);
    if (r == 0)
        memcpy(kept, copy, part->n_out * bytes);
    *ret = kept;
    return r;
}

int device_weight(struct device *d, const struct device_weight_desc *desc, const void *bytes,
                  struct device_shard shard, const struct device_weight **ret, bool *ret_aliases,
                  struct err *err)
{
    size_t row_bytes = (size_t)(desc->n_in / k_block_len(desc->type)) * k_block_bytes(desc->type);
    const uint8_t *rows = (const uint8_t *)bytes + shard.first_out * row_bytes;
    struct device_weight_desc part = {desc->type, shard.n_in, shard.n_out};
    CLEANUP(mem_freep) uint8_t *copy = NULL;
    struct device_weight *w;
    int r = 0;

    ASSERT(shard.n_out > 0 && shard.first_out <= desc->n_out - shard.n_out);
    ASSERT(shard.n_in > 0 && shard.first_in <= desc->n_in - shard.n_in);
    w = mem_calloc(1, sizeof(*w));
    if (!w)
        return err_set(err, ERR_NO_MEMORY, "weight");
    w->next = d->weights;
    d->weights = w;
    if (shard.n_in != desc->n_in)
        r = cut_columns(desc, rows, shard, &copy, err);
    w->matrix = (struct k_matrix){.type = desc->type, .n_in = shard.n_in, .n_out = shard.n_out};
    if (r == 0)
        r = keep_matrix(d, &part, rows, copy, &w->matrix.data, err);
    if (r < 0)
        return r;
    note_form(d, desc->type);
    *ret_aliases = d->aliases && !copy;
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
    float *p = NULL;
    int r = d->kind->vector(d, type, n, bytes, &p, err);

    *ret = p;
    return r;
}

int device_act(struct device *d, uint32_t n_rows, uint32_t n, struct k_act *ret, struct err *err)
{
    size_t n_groups = (n + K_GROUP - 1) / K_GROUP;
    void *p = NULL;
    int r = 0;

    *ret = (struct k_act){.n = n};
    if (d->some_want_f32) {
        r = device_alloc(d, n_rows, n * sizeof(float), &p, err);
        ret->f32 = p;
    }
    if (r == 0 && d->some_want_q) {
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

/* ops */

static void append(struct device *d, enum device_op op, const void *args, size_t size,
                   uint32_t n_items)
{
    if (n_items > 0)
        d->kind->append(d, op, args, size, n_items);
}

void device_embed(struct device *d, const struct k_embed *a)
{
    append(d, OP_EMBED, a, sizeof(*a), a->n_rows);
}

void device_norm(struct device *d, const struct k_norm *a)
{
    append(d, OP_NORM, a, sizeof(*a), a->n_rows);
}

void device_norm_add(struct device *d, const struct k_norm_add *a)
{
    append(d, OP_NORM_ADD, a, sizeof(*a), a->n_rows);
}

void device_angles(struct device *d, const struct k_angles *a)
{
    append(d, OP_ANGLES, a, sizeof(*a), a->n_rows);
}

void device_store(struct device *d, const struct k_store *a)
{
    append(d, OP_STORE, a, sizeof(*a), a->n_rows);
}

void device_attend(struct device *d, const struct k_attend *a)
{
    append(d, OP_ATTEND, a, sizeof(*a), a->n_spans * a->kv.n_kv_heads);
}

void device_gate(struct device *d, const struct k_gate *a)
{
    append(d, OP_GATE, a, sizeof(*a), a->n_rows);
}

void device_adjust(struct device *d, const struct k_adjust *a)
{
    append(d, OP_ADJUST, a, sizeof(*a), a->n_rows);
}

void device_sample(struct device *d, const struct k_sample *a)
{
    append(d, OP_SAMPLE, a, sizeof(*a), a->n_rows);
}

void device_gather(struct device *d, const struct k_gather *a)
{
    append(d, OP_GATHER, a, sizeof(*a), a->n_rows);
}

void device_matmul(struct device *d, const struct k_matmul *a)
{
    for (uint32_t m = 0; m < a->n_mats; m++)
        ASSERT(a->w[m]->n_in == a->in.n);
    append(d, OP_MATMUL, a, sizeof(*a), a->n_rows == 0 ? 0 : k_matmul_items(a));
}

void device_all_reduce(struct device *d, float *data, size_t n)
{
    struct device_reduce a = {data, n};

    append(d, OP_ALL_REDUCE, &a, sizeof(a), d->comm ? 1 : 0);
}

void device_all_gather(struct device *d, const float *part, size_t n, float *all)
{
    struct device_collect a = {part, n, all};

    append(d, OP_ALL_GATHER, &a, sizeof(a), d->comm ? 1 : 0);
}
