/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - norms, gates, and packing rows for the matrix kernels.
 *
 * A row is worked on in groups of 32 (four vectors), the unit that shares a scale; the function
 * that makes the values of a group differs by op, what follows is pack_group().  A value that is
 * not finite makes the group's scale not a number, and so every logit that depends on it: the
 * sampler sees it there.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes_math.h"

enum { VECTORS = K_GROUP / LANES };

/* A group whose greatest value is below this counts as zeros: 127 / greatest would overflow. */
static const float tiny = 1e-30F;

struct group {
    lanes v[VECTORS];
};

static uint32_t at_most(uint32_t n, uint32_t max)
{
    return n < max ? n : max;
}

static struct group load(const float *p, uint32_t n)
{
    struct group g;

    for (uint32_t i = 0; i < VECTORS; i++)
        g.v[i] = n > i * LANES ? lanes_load_up_to(p + (size_t)i * LANES, n - i * LANES)
                               : lanes_all(0);
    return g;
}

static void store(float *p, struct group g, uint32_t n)
{
    for (uint32_t i = 0; i < VECTORS && n > i * LANES; i++)
        lanes_store_up_to(p + (size_t)i * LANES, g.v[i], n - i * LANES);
}

/* Group i of row r, n values, in the forms that out has. */
static void pack_group(const struct k_act *out, uint32_t r, uint32_t i, struct group g, uint32_t n)
{
    size_t at = (size_t)r * ((out->n + K_GROUP - 1) / K_GROUP) + i;
    lanes greatest = lanes_abs(g.v[0]);
    lanes poison = lanes_mul(g.v[0], lanes_all(0));
    int8_t *q = out->q + at * K_GROUP;
    lanes total = lanes_all(0);
    float most;
    float inverse;

    if (out->f32)
        store(out->f32 + (size_t)r * out->n + (size_t)i * K_GROUP, g, n);
    if (!out->q)
        return;
    for (int j = 1; j < VECTORS; j++) {
        greatest = lanes_max(lanes_abs(g.v[j]), greatest);
        poison = lanes_fma(g.v[j], lanes_all(0), poison);
    }
    most = lanes_greatest(greatest);
    inverse = most > tiny ? 127 / most : 0;
    for (int j = 0; j < VECTORS; j++) {
        lanes x = lanes_round(lanes_mul(g.v[j], lanes_all(inverse)));

        lanes_to_bytes(q + (size_t)j * LANES, x);
        total = lanes_add(total, x); /* whole numbers: exact */
    }
    out->scale[at] = most / 127 + lanes_sum(poison);
    out->sum[at] = out->scale[at] * lanes_sum(total);
    out->total[at] = isfinite(most) ? (int32_t)lanes_sum(total) : 0;
}

static float sum_of(struct group g)
{
    return lanes_sum(lanes_add(lanes_add(g.v[0], g.v[1]), lanes_add(g.v[2], g.v[3])));
}

/* x - middle for each of n values; what is beyond stays 0. */
static struct group centred(struct group g, float middle, uint32_t n)
{
    for (uint32_t j = 0; j < VECTORS; j++) {
        uint32_t first = j * LANES;

        if (first + LANES <= n)
            g.v[j] = lanes_sub(g.v[j], lanes_all(middle));
        else if (first < n)
            g.v[j] = lanes_sub(g.v[j], lanes_first(middle, n - first));
    }
    return g;
}

/* What is taken off a row's values, and what they are then multiplied by. */
struct normer {
    float middle;
    float factor;
};

static struct normer normer_of(enum k_norm_kind kind, const float *x, uint32_t n, float eps)
{
    const struct group zeros = {{lanes_all(0), lanes_all(0), lanes_all(0), lanes_all(0)}};
    struct group sums = zeros;
    struct normer m = {0, 0};

    for (uint32_t i = 0; i < n && kind == K_NORM_LAYER; i += K_GROUP) {
        struct group g = load(x + i, at_most(n - i, K_GROUP));

        for (int j = 0; j < VECTORS; j++)
            sums.v[j] = lanes_add(sums.v[j], g.v[j]);
    }
    m.middle = sum_of(sums) / (float)n;
    sums = zeros;
    for (uint32_t i = 0; i < n; i += K_GROUP) {
        uint32_t n_group = at_most(n - i, K_GROUP);
        struct group g = centred(load(x + i, n_group), m.middle, n_group);

        for (int j = 0; j < VECTORS; j++)
            sums.v[j] = lanes_fma(g.v[j], g.v[j], sums.v[j]);
    }
    m.factor = 1 / sqrtf(sum_of(sums) / (float)n + eps);
    return m;
}

/* n values of a row, normed; bias NULL: none (adding zeros would turn -0 into 0). */
static struct group normed(struct normer m, struct group g, const float *weight, const float *bias,
                           uint32_t n)
{
    struct group w = load(weight, n);

    g = centred(g, m.middle, n);
    for (int j = 0; j < VECTORS; j++)
        g.v[j] = lanes_mul(lanes_mul(g.v[j], lanes_all(m.factor)), w.v[j]);
    if (bias) {
        struct group b = load(bias, n);

        for (int j = 0; j < VECTORS; j++)
            g.v[j] = lanes_add(g.v[j], b.v[j]);
    }
    return g;
}

void LANES_NAME(k_norm)(const struct k_norm *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        const float *x = a->x + (size_t)(a->row_ids ? a->row_ids[r] : r) * a->n;
        struct normer m = {0, 0};

        if (a->weight)
            m = normer_of(a->kind, x, a->n, a->eps);
        for (uint32_t i = 0; i < a->n; i += K_GROUP) {
            uint32_t n = at_most(a->n - i, K_GROUP);
            struct group g = load(x + i, n);

            if (a->weight)
                g = normed(m, g, a->weight + i, a->bias ? a->bias + i : NULL, n);
            pack_group(&a->out, r, i / K_GROUP, g, n);
        }
    }
}

void LANES_NAME(k_norm_add)(const struct k_norm_add *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        float *x = a->x + (size_t)r * a->n;
        const float *y = a->y + (size_t)r * a->n;
        struct normer m = {0, 0};

        if (a->weight)
            m = normer_of(a->kind, y, a->n, a->eps);
        for (uint32_t i = 0; i < a->n; i += K_GROUP) {
            uint32_t n = at_most(a->n - i, K_GROUP);
            struct group gx = load(x + i, n);
            struct group gy = load(y + i, n);

            if (a->weight)
                gy = normed(m, gy, a->weight + i, a->bias ? a->bias + i : NULL, n);
            for (int j = 0; j < VECTORS; j++)
                gx.v[j] = lanes_add(gx.v[j], gy.v[j]);
            store(x + i, gx, n);
        }
    }
}

/* Both gates are g / (1 + e^-z): silu with z = g, and the tanh form of gelu, since
 * (1 + tanh(y)) / 2 = 1 / (1 + e^(-2 y)), with z = 2 sqrt(2 / pi) (g + 0.044715 g^3). */
static lanes gate(enum k_gate_kind kind, lanes g)
{
    lanes z = g;
    lanes e;

    if (kind == K_GATE_GELU_TANH) {
        z = lanes_mul(lanes_mul(g, g), lanes_all(0.044715F));
        z = lanes_mul(lanes_fma(z, g, g), lanes_all(1.5957691216F));
    }
    e = lanes_exp(lanes_sub(lanes_all(0), z));
    return lanes_div(g, lanes_add(lanes_all(1), e));
}

void LANES_NAME(k_gate)(const struct k_gate *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++)
        for (uint32_t i = 0; i < a->n; i += K_GROUP) {
            uint32_t n = at_most(a->n - i, K_GROUP);
            struct group g = load(a->gate + (size_t)r * a->n + i, n);
            struct group u = load(a->up + (size_t)r * a->n + i, n);

            for (int j = 0; j < VECTORS; j++)
                g.v[j] = lanes_mul(gate(a->kind, g.v[j]), u.v[j]);
            pack_group(&a->out, r, i / K_GROUP, g, n);
        }
}
