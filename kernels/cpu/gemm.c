/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c - walks tiles and rows; the instruction sets bring the inner kernels.
 *
 * A tile (16 outputs, some kilobytes) is multiplied with all rows before the next: it stays in
 * the first-level cache, the rows stream from the second.  With one row this is a plain pass over
 * the matrix in memory order.
 */
#include "kernels/cpu/gemm.h"

static void write_out(const struct k_matmul *a, uint32_t m, uint32_t o, uint32_t row,
                      uint32_t n_rows, const float *values)
{
    uint32_t n_out = a->w[m]->n_out;
    uint32_t n = n_out - o < K_TILE ? n_out - o : K_TILE;

    for (uint32_t r = 0; r < n_rows; r++) {
        float *out = a->out[m] + (size_t)(row + r) * n_out + o;
        const float *v = values + (size_t)r * K_TILE;

        for (uint32_t i = 0; i < n; i++)
            out[i] = a->add ? out[i] + v[i] : v[i];
    }
}

static void tile(const struct k_matmul *a, uint32_t m, uint32_t t, const struct gemm_kernels *k)
{
    const struct k_matrix *w = a->w[m];
    enum form form = layout_form(w->type);
    const uint8_t *data = (const uint8_t *)w->data + t * layout_tile_bytes(form, w->n_in);
    size_t groups = (a->in.n + K_GROUP - 1) / K_GROUP;
    uint32_t n = form < FORM_F32 ? w->n_in / K_GROUP : w->n_in;
    float values[GEMM_COLS_MAX * K_TILE];
    uint32_t n_cols;

    for (uint32_t r = 0; r < a->n_rows; r += n_cols) {
        struct gemm_cols cols = {
                .q_stride = groups * K_GROUP, .group_stride = groups, .f32_stride = a->in.n};

        n_cols = a->n_rows - r < k->cols_max ? a->n_rows - r : k->cols_max;
        if (form < FORM_F32) {
            cols.q = a->in.q + r * groups * K_GROUP;
            cols.scale = a->in.scale + r * groups;
            cols.total = a->in.total + r * groups;
            cols.sum = a->in.sum + r * groups;
        } else {
            cols.f32 = a->in.f32 + (size_t)r * a->in.n;
        }
        k->tile[form][n_cols - 1](data, n, &cols, values);
        write_out(a, m, t * K_TILE, r, n_cols, values);
    }
}

void gemm_run(const struct k_matmul *a, uint32_t first, uint32_t end, const struct gemm_kernels *k)
{
    uint32_t base = 0; /* the matrix's first item */

    for (uint32_t m = 0; m < a->n_mats; m++) {
        uint32_t n_tiles = (a->w[m]->n_out + K_TILE - 1) / K_TILE;

        for (uint32_t i = first > base ? first : base; i < end && i < base + n_tiles; i++)
            tile(a, m, i - base, k);
        base += n_tiles;
    }
}
