/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - the ops that work row by row: embedding, norms, gates, angles.
 */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

void k_ref_embed(const struct k_embed *a, uint32_t first, uint32_t end)
{
    uint32_t n = a->table->n_in;
    size_t row_bytes = (size_t)(n / k_block_len(a->table->type)) * k_block_bytes(a->table->type);

    for (uint32_t r = first; r < end; r++) {
        uint32_t id = k_embed_id(a, r) - a->first; /* below 'first' it wraps around */
        float *out = a->out + (size_t)r * n;

        if (id >= a->table->n_out) {
            memset(out, 0, n * sizeof(*out));
            continue;
        }
        k_dequantise(a->table->type, (const uint8_t *)a->table->data + id * row_bytes, n, out);
        for (uint32_t i = 0; i < n; i++)
            out[i] *= a->scale;
    }
}

/* What is taken off a row's values, and what they are then multiplied by. */
struct normer {
    float middle;
    float factor;
};

static struct normer normer_of(enum k_norm_kind kind, const float *x, uint32_t n, float eps)
{
    double middle = 0;
    double sum = 0;

    for (uint32_t i = 0; i < n && kind == K_NORM_LAYER; i++)
        middle += (double)x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        sum += ((double)x[i] - middle) * ((double)x[i] - middle);
    return (struct normer){(float)middle, (float)(1 / sqrt(sum / n + (double)eps))};
}

/* bias NULL: none; adding a 0 would turn -0 into 0. */
static float normed(struct normer m, float x, float weight, const float *bias)
{
    float y = (x - m.middle) * m.factor * weight;

    return bias ? y + *bias : y;
}

void k_ref_norm(const struct k_norm *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        const float *x = a->x + (size_t)(a->row_ids ? a->row_ids[r] : r) * a->n;
        float *out = a->out.f32 + (size_t)r * a->n;
        struct normer m;

        if (!a->weight) {
            memmove(out, x, a->n * sizeof(*out));
            continue;
        }
        m = normer_of(a->kind, x, a->n, a->eps);
        for (uint32_t i = 0; i < a->n; i++)
            out[i] = normed(m, x[i], a->weight[i], a->bias ? a->bias + i : NULL);
    }
}

void k_ref_norm_add(const struct k_norm_add *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        float *x = a->x + (size_t)r * a->n;
        const float *y = a->y + (size_t)r * a->n;
        struct normer m = {0, 0};

        if (a->weight)
            m = normer_of(a->kind, y, a->n, a->eps);
        for (uint32_t i = 0; i < a->n; i++)
            x[i] += a->weight ? normed(m, y[i], a->weight[i], a->bias ? a->bias + i : NULL) : y[i];
    }
}

void k_ref_angles(const struct k_angles *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        float *out = a->out + (size_t)r * 2 * a->n_freqs;

        for (uint32_t i = 0; i < a->n_freqs; i++) {
            float angle = (float)a->positions[r] * a->freqs[i];

            out[i] = cosf(angle);
            out[a->n_freqs + i] = sinf(angle);
        }
    }
}

static float gate(enum k_gate_kind kind, float g)
{
    if (kind == K_GATE_SILU)
        return g / (1 + expf(-g));
    return 0.5F * g * (1 + tanhf(0.7978845608F * (g + 0.044715F * g * g * g)));
}

void k_ref_gate(const struct k_gate *a, uint32_t first, uint32_t end)
{
    for (size_t i = (size_t)first * a->n; i < (size_t)end * a->n; i++)
        a->out.f32[i] = gate(a->kind, a->gate[i]) * a->up[i];
}

void k_ref_gather(const struct k_gather *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++)
        for (uint32_t from = 0, part = 0; from < a->n; from += a->n_part, part++) {
            uint32_t width = a->n_part < a->n - from ? a->n_part : a->n - from;
            const float *row = a->parts + (size_t)part * a->n_rows * a->n_part + (size_t)r * width;

            memcpy(a->out + (size_t)r * a->n + from, row, width * sizeof(*row));
        }
}
