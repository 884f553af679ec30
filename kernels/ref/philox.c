/* SPDX-License-Identifier: Apache-2.0
 *
 * philox.c - Philox4x32-10, a counter-based generator: the number is a pure function of key and
 * counter, so a sequence that is preempted and computed again, or batched with others, draws
 * the same numbers.
 */
#include <string.h>

#include "kernels/kernels.h"

enum { ROUNDS = 10 };

static void round_once(uint32_t c[4], const uint32_t k[2])
{
    uint64_t a = (uint64_t)0xD2511F53U * c[0];
    uint64_t b = (uint64_t)0xCD9E8D57U * c[2];
    uint32_t next[4] = {
            (uint32_t)(b >> 32) ^ c[1] ^ k[0],
            (uint32_t)b,
            (uint32_t)(a >> 32) ^ c[3] ^ k[1],
            (uint32_t)a,
    };

    memcpy(c, next, sizeof(next));
}

void k_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k[2] = {key[0], key[1]};

    memcpy(out, counter, 4 * sizeof(*out));
    for (int i = 0; i < ROUNDS; i++) {
        round_once(out, k);
        k[0] += 0x9E3779B9U;
        k[1] += 0xBB67AE85U;
    }
}

double k_uniform(uint64_t seed, uint32_t position, uint32_t choice)
{
    uint32_t counter[4] = {position, choice, 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    k_philox(counter, key, out);
    return (double)(((uint64_t)out[0] << 32 | out[1]) >> 11) * 0x1p-53;
}
