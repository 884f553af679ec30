/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c - rows x matrix, the matrix as stored, dequantised on the way.
 *
 * A tile of 16 outputs is taken apart, 256 inputs at a time, into [input][output]; each row then
 * adds its products input by input.  Sums are float32 in the order of the inputs, the same for
 * any number of rows.
 */
#include <string.h>

#include "kernels/ref/ref.h"

enum { CHUNK = 256 };

uint32_t k_matmul_items(const struct k_matmul *a)
{
    uint32_t n = 0;

    for (uint32_t m = 0; m < a->n_mats; m++)
        n += (a->w[m]->n_out + K_TILE - 1) / K_TILE;
    return n;
}

/* Inputs first .. first + n - 1 of the outputs from o on. */
static void take_apart(const struct k_matrix *w, uint32_t o, uint32_t first, uint32_t n,
                       float (*values)[K_TILE])
{
    uint32_t block_len = k_block_len(w->type);
    size_t block_bytes = k_block_bytes(w->type);
    size_t row_bytes = w->n_in / block_len * block_bytes;
    float row[CHUNK];

    for (uint32_t i = 0; i < K_TILE && o + i < w->n_out; i++) {
        k_dequantise(w->type,
                     (const uint8_t *)w->data + (o + i) * row_bytes +
                             first / block_len * block_bytes,
                     n, row);
        for (uint32_t j = 0; j < n; j++)
            values[j][i] = row[j];
    }
}

/* Four floats at once: an extension of GNU C that every processor's compiler has. */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

static void add_products(const float *x, const float (*values)[K_TILE], uint32_t n,
                         float sums[K_TILE])
{
    four *s = (four *)(void *)sums;
    four s0 = s[0];
    four s1 = s[1];
    four s2 = s[2];
    four s3 = s[3];

    for (uint32_t j = 0; j < n; j++) {
        const four *v = (const four *)(const void *)values[j];

        s0 += x[j] * v[0];
        s1 += x[j] * v[1];
        s2 += x[j] * v[2];
        s3 += x[j] * v[3];
    }
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
}

/* The outputs from o on, of one matrix, for all rows. */
static void tile(const struct k_matmul *a, uint32_t m, uint32_t o)
{
    const struct k_matrix *w = a->w[m];
    uint32_t n_out = w->n_out - o < K_TILE ? w->n_out - o : K_TILE;
    float values[CHUNK][K_TILE] = {0};

    for (uint32_t first = 0; first < w->n_in; first += CHUNK) {
        uint32_t n = w->n_in - first < CHUNK ? w->n_in - first : CHUNK;

        take_apart(w, o, first, n, values);
        for (uint32_t r = 0; r < a->n_rows; r++) {
            float *out = a->out[m] + (size_t)r * w->n_out + o;
            float sums[K_TILE] = {0};

            if (first > 0 || a->add)
                memcpy(sums, out, n_out * sizeof(*out));
            add_products(a->in.f32 + (size_t)r * w->n_in + first, values, n, sums);
            memcpy(out, sums, n_out * sizeof(*out));
        }
    }
}

void k_ref_matmul(const struct k_matmul *a, uint32_t first, uint32_t end)
{
    uint32_t base = 0; /* the matrix's first item */

    for (uint32_t m = 0; m < a->n_mats; m++) {
        uint32_t n_tiles = (a->w[m]->n_out + K_TILE - 1) / K_TILE;

        for (uint32_t i = first > base ? first : base; i < end && i < base + n_tiles; i++)
            tile(a, m, (i - base) * K_TILE);
        base += n_tiles;
    }
}
