/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c - rotary positions, the paged KV cache, attention over it.
 *
 * Softmax in two passes over the visible blocks: the greatest score, then the weights.  Scores
 * are computed twice rather than kept, since a row may see any number of positions.
 */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/ref/ref.h"

void k_ref_rotate(float *head, const float *angles, uint32_t n_freqs, enum k_rope rope)
{
    for (uint32_t i = 0; i < n_freqs; i++) {
        float *x = rope == K_ROPE_PAIRS ? head + (size_t)2 * i : head + i;
        float *y = rope == K_ROPE_PAIRS ? x + 1 : x + n_freqs;
        float c = angles[i];
        float s = angles[n_freqs + i];
        float x0 = *x;

        *x = x0 * c - *y * s;
        *y = *y * c + x0 * s;
    }
}

static void head_norm(float *head, uint32_t n, const float *weight, float eps)
{
    struct k_norm norm = {.x = head,
                          .weight = weight,
                          .eps = eps,
                          .n = n,
                          .n_rows = 1,
                          .out = {.n = n, .f32 = head}};

    if (weight)
        k_ref_norm(&norm, 0, 1);
}

/* Element i of a cache. */
static void put(const struct k_kv *kv, uint8_t *at, uint64_t i, float value)
{
    uint16_t half = k_float_to_half(value);

    if (kv->f32)
        memcpy(at + i * sizeof(value), &value, sizeof(value));
    else
        memcpy(at + i * sizeof(half), &half, sizeof(half));
}

static float get_half(const uint8_t *at, uint32_t i)
{
    uint16_t half;

    memcpy(&half, at + i * sizeof(half), sizeof(half));
    return k_half_to_float(half);
}

static uint8_t *block(const struct k_kv *kv, const struct k_seq *seq, uint32_t position)
{
    return (uint8_t *)kv->base + seq->blocks[position / K_BLOCK] * kv->block_bytes;
}

static void store_row(const struct k_store *a, uint32_t r)
{
    const struct k_kv *kv = &a->kv;
    uint32_t n = kv->head_dim;
    uint32_t slot = a->positions[r] % K_BLOCK;
    uint8_t *at = block(kv, &a->seqs[a->seq_of[r]], a->positions[r]);
    const float *angles = a->angles + (size_t)r * 2 * a->n_freqs;
    float head[K_HEAD_DIM_MAX];

    for (uint32_t h = 0; h < a->n_heads; h++) {
        float *q = a->q + ((size_t)r * a->n_heads + h) * n;

        head_norm(q, n, a->q_weight, a->eps);
        k_ref_rotate(q, angles, a->n_freqs, a->rope);
    }
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        const float *v = a->v + ((size_t)r * kv->n_kv_heads + h) * n;

        memcpy(head, a->k + ((size_t)r * kv->n_kv_heads + h) * n, n * sizeof(*head));
        head_norm(head, n, a->k_weight, a->eps);
        k_ref_rotate(head, angles, a->n_freqs, a->rope);
        for (uint32_t i = 0; i < n; i++) {
            put(kv, at + kv->k_offset, ((uint64_t)h * n + i) * K_BLOCK + slot, head[i]);
            put(kv, at + kv->v_offset, ((uint64_t)h * K_BLOCK + slot) * n + i, v[i]);
        }
    }
}

void k_ref_store(const struct k_store *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++)
        store_row(a, r);
}

/* n cache elements as floats. */
static void widen(const struct k_kv *kv, const uint8_t *at, uint32_t n, float *out)
{
    if (kv->f32)
        memcpy(out, at, n * sizeof(*out));
    for (uint32_t i = 0; !kv->f32 && i < n; i++)
        out[i] = get_half(at, i);
}

/* Scores of a block's positions for q, from its keys [head_dim][K_BLOCK]. */
static void scores(const struct k_attend *a, const float *keys, const float *q, float s[K_BLOCK])
{
    for (uint32_t p = 0; p < K_BLOCK; p++)
        s[p] = 0;
    for (uint32_t i = 0; i < a->kv.head_dim; i++)
        for (uint32_t p = 0; p < K_BLOCK; p++)
            s[p] += q[i] * keys[(size_t)i * K_BLOCK + p];
    for (uint32_t p = 0; p < K_BLOCK; p++) {
        s[p] *= a->scale;
        if (a->soft_cap != 0)
            s[p] = a->soft_cap * tanhf(s[p] / a->soft_cap);
    }
}

/* One head of one row that sees the positions from .. to. */
static void attend_head(const struct k_attend *a, const struct k_seq *seq, const float *q,
                        uint32_t h, uint32_t from, uint32_t to, float *out)
{
    const struct k_kv *kv = &a->kv;
    uint32_t n = kv->head_dim * K_BLOCK;
    uint64_t head_at = (uint64_t)h * n * (kv->f32 ? sizeof(float) : sizeof(uint16_t));
    float elements[K_HEAD_DIM_MAX * K_BLOCK];
    float s[K_BLOCK];
    float best = -INFINITY;
    float total = 0;

    for (uint32_t p = from; p <= to; p++) {
        if (p == from || p % K_BLOCK == 0) {
            widen(kv, block(kv, seq, p) + kv->k_offset + head_at, n, elements);
            scores(a, elements, q, s);
        }
        best = fmaxf(best, s[p % K_BLOCK]);
    }
    memset(out, 0, kv->head_dim * sizeof(*out));
    for (uint32_t p = from; p <= to; p++) {
        const float *value = elements + (size_t)(p % K_BLOCK) * kv->head_dim;
        float weight;

        if (p == from || p % K_BLOCK == 0) {
            widen(kv, block(kv, seq, p) + kv->k_offset + head_at, n, elements);
            scores(a, elements, q, s);
            widen(kv, block(kv, seq, p) + kv->v_offset + head_at, n, elements);
        }
        weight = expf(s[p % K_BLOCK] - best);
        total += weight;
        for (uint32_t i = 0; i < kv->head_dim; i++)
            out[i] += weight * value[i];
    }
    for (uint32_t i = 0; i < kv->head_dim; i++)
        out[i] /= total;
}

void k_ref_attend(const struct k_attend *a, uint32_t first, uint32_t end)
{
    uint32_t n_kv = a->kv.n_kv_heads;
    uint32_t group = a->n_heads / n_kv;

    for (uint32_t item = first; item < end; item++) {
        const struct k_span *span = &a->spans[item / n_kv];
        uint32_t kv_head = item % n_kv;

        for (uint32_t r = 0; r < span->n_rows; r++) {
            uint32_t to = span->position + r;
            uint32_t from = a->window != 0 && to >= a->window ? to - a->window + 1 : 0;

            for (uint32_t g = 0; g < group; g++) {
                size_t at = (((size_t)span->first_row + r) * a->n_heads + kv_head * group + g) *
                            a->kv.head_dim;

                attend_head(a, &a->seqs[span->seq], a->q + at, kv_head, from, to, a->out + at);
            }
        }
    }
}
