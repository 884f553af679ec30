/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_pool.c - who holds which block of the KV cache.
 *
 * The cache is one device allocation cut into equal blocks.  This file deals in block
 * ids and never touches the device (kernels turn an id into an address), so it runs,
 * and is tested, without a GPU.  All memory is taken in kv_pool_new(): serving can run
 * out of blocks (ERR_BUSY, the scheduler preempts) but not out of memory.
 *
 * Threading: the engine thread is the only caller, hence no lock.
 */
#include "runtime/engine/kv_pool.h"

#include <stdbool.h>

#include "base/assertion.h"
#include "base/mem.h"

struct kv_pool {
    uint32_t n_blocks;
    uint32_t n_free;
    uint32_t *free_ids; /* stack: the first n_free entries are free, the last goes out next */
    bool *held;         /* each block: catches one that is given back twice */
};

int kv_pool_new(uint32_t n_blocks, struct kv_pool **ret, struct err *err)
{
    CLEANUP(kv_pool_freep) struct kv_pool *pool = NULL;

    if (n_blocks == 0 || n_blocks > KV_POOL_BLOCKS_MAX)
        return err_set(err, ERR_INVALID, "%u kv blocks, want 1..%d", n_blocks, KV_POOL_BLOCKS_MAX);

    pool = mem_calloc(1, sizeof(*pool));
    if (!pool)
        return err_set(err, ERR_NO_MEMORY, "kv pool");
    pool->free_ids = mem_calloc(n_blocks, sizeof(*pool->free_ids));
    pool->held = mem_calloc(n_blocks, sizeof(*pool->held));
    if (!pool->free_ids || !pool->held)
        return err_set(err, ERR_NO_MEMORY, "kv pool of %u blocks", n_blocks);

    pool->n_blocks = pool->n_free = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++)
        pool->free_ids[i] = n_blocks - 1 - i; /* id 0 goes out first: dumps read in order */

    *ret = TAKE_PTR(pool);
    return 0;
}

int kv_pool_take(struct kv_pool *pool, uint32_t n, uint32_t *ret_ids, struct err *err)
{
    /* All or none: two sequences each holding half of what they need would starve. */
    if (n > pool->n_free)
        return err_set(err, ERR_BUSY, "%u kv blocks wanted, %u free", n, pool->n_free);

    for (uint32_t i = 0; i < n; i++) {
        ret_ids[i] = pool->free_ids[--pool->n_free];
        ASSERT(!pool->held[ret_ids[i]]);
        pool->held[ret_ids[i]] = true;
    }
    return 0;
}

void kv_pool_put(struct kv_pool *pool, uint32_t id)
{
    ASSERT(id < pool->n_blocks);
    ASSERT(pool->held[id]);
    pool->held[id] = false;
    pool->free_ids[pool->n_free++] = id;
}

void kv_pool_free(struct kv_pool *pool)
{
    if (!pool)
        return;
    mem_free(pool->free_ids);
    mem_free(pool->held);
    mem_free(pool);
}

uint32_t kv_pool_n_free(const struct kv_pool *pool)
{
    return pool->n_free;
}

uint32_t kv_pool_n_blocks(const struct kv_pool *pool)
{
    return pool->n_blocks;
}
