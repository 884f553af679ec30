/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_portable.c - the matrix kernels in plain C, one column at a time: for processors without
 * vector code here, and what the others are compared with bit for bit.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/half.h"

static float half_at(const uint8_t *p, uint32_t output)
{
    uint16_t h;

    memcpy(&h, p + 2 * output, sizeof(h));
    return k_half_to_float(h);
}

static int32_t dot_4(const uint8_t *values, const int8_t *a, uint32_t output)
{
    int32_t t = 0;

    for (int s = 0; s < LAYOUT_STEPS / 2; s++)
        for (int i = 0; i < 4; i++) {
            uint8_t byte = values[(uint32_t)(s * LAYOUT_STEP_BYTES + i) + output * 4];

            t += (byte & 15) * a[4 * s + i] + (byte >> 4) * a[4 * s + i + 16];
        }
    return t;
}

/* What the fifth bits add. */
static int32_t dot_fifth(const uint8_t *bits, const int8_t *a, uint32_t output)
{
    int32_t t = 0;

    for (uint32_t i = 0; i < K_GROUP; i++) {
        uint32_t bit = output * 4 + i % 4;

        t += ((bits[i / 4 * K_TILE / 2 + bit / 8] >> (bit % 8)) & 1) * a[i];
    }
    return 16 * t;
}

/* Steps from .. to - 1 of an 8-bit form. */
static int32_t dot_8(const uint8_t *values, const int8_t *a, uint32_t output, int from, int to)
{
    int32_t t = 0;

    for (int s = from; s < to; s++)
        for (int i = 0; i < 4; i++)
            t += (values[(uint32_t)(s * LAYOUT_STEP_BYTES + i) + output * 4] - 128) * a[4 * s + i];
    return t;
}

static void form_4(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_4_VALUES + 2 * LAYOUT_SCALES_BYTES)
        for (uint32_t o = 0; o < K_TILE; o++) {
            float t = (float)dot_4(tile, cols->q + (size_t)g * K_GROUP, o);
            float d = half_at(tile + LAYOUT_4_VALUES, o) * cols->scale[g];

            out[o] = fmaf(d, t, out[o]);
            out[o] = fmaf(half_at(tile + LAYOUT_4_VALUES + LAYOUT_SCALES_BYTES, o), cols->sum[g],
                          out[o]);
        }
}

static void form_5(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_5_VALUES + 2 * LAYOUT_SCALES_BYTES)
        for (uint32_t o = 0; o < K_TILE; o++) {
            const int8_t *a = cols->q + (size_t)g * K_GROUP;
            float t = (float)(dot_4(tile, a, o) + dot_fifth(tile + LAYOUT_4_VALUES, a, o));

            out[o] = fmaf(half_at(tile + LAYOUT_5_VALUES, o) * cols->scale[g], t, out[o]);
            out[o] = fmaf(half_at(tile + LAYOUT_5_VALUES + LAYOUT_SCALES_BYTES, o), cols->sum[g],
                          out[o]);
        }
}

static void form_8(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_8_VALUES + LAYOUT_SCALES_BYTES)
        for (uint32_t o = 0; o < K_TILE; o++) {
            float t = (float)dot_8(tile, cols->q + (size_t)g * K_GROUP, o, 0, LAYOUT_STEPS);

            out[o] = fmaf(half_at(tile + LAYOUT_8_VALUES, o) * cols->scale[g], t, out[o]);
        }
}

static void form_8_two(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_8_VALUES + 2 * LAYOUT_SCALES_BYTES)
        for (uint32_t o = 0; o < K_TILE; o++)
            for (int h = 0; h < 2; h++) {
                const uint8_t *scales = tile + LAYOUT_8_VALUES + h * LAYOUT_SCALES_BYTES;
                float t = (float)dot_8(tile, cols->q + (size_t)g * K_GROUP, o, h * 4, h * 4 + 4);

                out[o] = fmaf(half_at(scales, o) * cols->scale[g], t, out[o]);
            }
}

static void form_f32(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t i = 0; i < n; i++, tile += 4 * K_TILE)
        for (uint32_t o = 0; o < K_TILE; o++) {
            float w;

            memcpy(&w, tile + 4 * o, sizeof(w));
            out[o] = fmaf(w, cols->f32[i], out[o]);
        }
}

static void form_f16(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t i = 0; i < n; i++, tile += 2 * K_TILE)
        for (uint32_t o = 0; o < K_TILE; o++)
            out[o] = fmaf(half_at(tile, o), cols->f32[i], out[o]);
}

static void form_bf16(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out)
{
    memset(out, 0, K_TILE * sizeof(*out));
    for (uint32_t i = 0; i < n; i++, tile += 2 * K_TILE)
        for (uint32_t o = 0; o < K_TILE; o++) {
            uint16_t b;

            memcpy(&b, tile + 2 * o, sizeof(b));
            out[o] = fmaf(k_bf16_to_float(b), cols->f32[i], out[o]);
        }
}

void k_matmul_portable(const struct k_matmul *a, uint32_t first, uint32_t end)
{
    static const struct gemm_kernels kernels = {
            .cols_max = 1,
            .tile =
                    {
                            [FORM_4] = {form_4},
                            [FORM_5] = {form_5},
                            [FORM_8] = {form_8},
                            [FORM_8_TWO] = {form_8_two},
                            [FORM_F32] = {form_f32},
                            [FORM_F16] = {form_f16},
                            [FORM_BF16] = {form_bf16},
                    },
    };

    gemm_run(a, first, end, &kernels);
}
