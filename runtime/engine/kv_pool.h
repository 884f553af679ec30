/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* A fixed set of KV-cache blocks; one pool a group of layers.  Engine thread only. */
struct kv_pool;

enum { KV_POOL_BLOCKS_MAX = 1 << 20 };

int kv_pool_new(uint32_t n_blocks, struct kv_pool **ret, struct err *err) MUST_CHECK;
void kv_pool_free(struct kv_pool *pool);
DEFINE_FREEP(kv_pool)

/* Take n blocks, all or none.  ERR_BUSY when fewer are free: the caller preempts. */
int kv_pool_take(struct kv_pool *pool, uint32_t n, uint32_t *ret_ids, struct err *err) MUST_CHECK;
/* Give a block back. */
void kv_pool_put(struct kv_pool *pool, uint32_t id);
uint32_t kv_pool_n_free(const struct kv_pool *pool);
uint32_t kv_pool_n_blocks(const struct kv_pool *pool);
