/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c - rows x matrix, the matrix as stored, dequantised on the way.
 *
 * Sums are float32 in 32 interleaved parts per chunk of 256, so that the compiler can use
 * vectors; the order is fixed, and the same for any number of rows.
 */
#include "kernels/ref/ref.h"

enum { CHUNK = 256, PARTS = 32 };

uint32_t k_matmul_items(const struct k_matmul *a)
{
    uint32_t n = 0;

    for (uint32_t m = 0; m < a->n_mats; m++)
        n += (a->w[m]->n_out + K_TILE - 1) / K_TILE;
    return n;
}

static float dot(const float *x, const float *y, uint32_t n)
{
    float parts[PARTS] = {0};
    uint32_t i = 0;

    for (; i + PARTS <= n; i += PARTS)
        for (uint32_t j = 0; j < PARTS; j++)
            parts[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        parts[0] += x[i] * y[i];
    for (uint32_t half = PARTS / 2; half > 0; half /= 2)
        for (uint32_t j = 0; j < half; j++)
            parts[j] += parts[j + half];
    return parts[0];
}

/* Output o of one matrix, for all rows. */
static void output(const struct k_matmul *a, uint32_t m, uint32_t o)
{
    const struct k_matrix *w = a->w[m];
    uint32_t block_len = k_block_len(w->type);
    uint32_t block_bytes = k_block_bytes(w->type);
    const uint8_t *row = (const uint8_t *)w->data + (size_t)o * (w->n_in / block_len) * block_bytes;
    float *out = a->out[m] + o;
    float values[CHUNK];

    for (uint32_t r = 0; !a->add && r < a->n_rows; r++)
        out[(size_t)r * w->n_out] = 0;
    for (uint32_t i = 0; i < w->n_in; i += CHUNK) {
        uint32_t n = w->n_in - i < CHUNK ? w->n_in - i : CHUNK;

        k_dequantise(w->type, row + (size_t)(i / block_len) * block_bytes, n, values);
        for (uint32_t r = 0; r < a->n_rows; r++)
            out[(size_t)r * w->n_out] += dot(a->in.f32 + (size_t)r * w->n_in + i, values, n);
    }
}

void k_ref_matmul(const struct k_matmul *a, uint32_t first, uint32_t end)
{
    uint32_t tile = 0; /* the matrix's first */

    for (uint32_t m = 0; m < a->n_mats; m++) {
        uint32_t n_out = a->w[m]->n_out;
        uint32_t n_tiles = (n_out + K_TILE - 1) / K_TILE;

        for (uint32_t t = first > tile ? first : tile; t < end && t < tile + n_tiles; t++) {
            uint32_t o = (t - tile) * K_TILE;

            for (uint32_t i = 0; i < K_TILE && o + i < n_out; i++)
                output(a, m, o + i);
        }
        tile += n_tiles;
    }
}
