/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx512.c - the matrix kernels with AVX-512 and its byte dot product (VNNI).
 *
 * A tile is one vector of sixteen outputs.  vpdpbusd adds four products of unsigned weights and
 * signed activations to an int32, exactly.  8-bit weights are stored plus 128, so the sum starts
 * at -128 x the sum of the group's activations.  Eight columns share the unpacking of a tile;
 * the activations are operands that the instruction broadcasts from memory.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

enum { COLS = GEMM_COLS_MAX };

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m512 load_half(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512i four(const int8_t *q)
{
    int32_t v;

    memcpy(&v, q, sizeof(v));
    return _mm512_set1_epi32(v);
}

INLINE __m512 scaled(__m512 f, __m512 scale_w, float scale_a, __m512i t)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(scale_w, _mm512_set1_ps(scale_a)), _mm512_cvtepi32_ps(t),
                           f);
}

INLINE void put(float *out, const __m512 f[], uint32_t n_cols)
{
    for (uint32_t c = 0; c < n_cols; c++)
        _mm512_storeu_ps(out + (size_t)c * K_TILE, f[c]);
}

INLINE void add_mins(const uint8_t *mins, const struct gemm_cols *cols, uint32_t g, __m512 f[],
                     uint32_t n_cols)
{
    __m512 m = load_half(mins);

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_fmadd_ps(m, _mm512_set1_ps(cols->sum[c * cols->group_stride + g]), f[c]);
}

INLINE void add_scaled(const uint8_t *scales, const struct gemm_cols *cols, uint32_t g,
                       const __m512i t[], __m512 f[], uint32_t n_cols)
{
    __m512 d = load_half(scales);

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = scaled(f[c], d, cols->scale[c * cols->group_stride + g], t[c]);
}

INLINE void form_4(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                   uint32_t n_cols)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512 f[COLS];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_4_VALUES + 2 * LAYOUT_SCALES_BYTES) {
        const int8_t *q = cols->q + (size_t)g * K_GROUP;
        __m512i t[COLS];

        for (uint32_t c = 0; c < n_cols; c++)
            t[c] = _mm512_setzero_si512();
        for (int s = 0; s < LAYOUT_STEPS / 2; s++) {
            __m512i b = load(tile + s * LAYOUT_STEP_BYTES);
            __m512i low = _mm512_and_si512(b, nibble);
            __m512i high = _mm512_and_si512(_mm512_srli_epi16(b, 4), nibble);

            for (uint32_t c = 0; c < n_cols; c++) {
                const int8_t *a = q + c * cols->q_stride + (size_t)s * 4;

                t[c] = _mm512_dpbusd_epi32(t[c], low, four(a));
                t[c] = _mm512_dpbusd_epi32(t[c], high, four(a + 16));
            }
        }
        add_scaled(tile + LAYOUT_4_VALUES, cols, g, t, f, n_cols);
        add_mins(tile + LAYOUT_4_VALUES + LAYOUT_SCALES_BYTES, cols, g, f, n_cols);
    }
    put(out, f, n_cols);
}

/* The fifth bits of a step: a mask over the vector's bytes. */
INLINE __m512i with_fifth(__m512i q, const uint8_t *bits)
{
    uint64_t mask;

    memcpy(&mask, bits, sizeof(mask));
    return _mm512_mask_add_epi8(q, mask, q, _mm512_set1_epi8(16));
}

INLINE void form_5(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                   uint32_t n_cols)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512 f[COLS];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_5_VALUES + 2 * LAYOUT_SCALES_BYTES) {
        const int8_t *q = cols->q + (size_t)g * K_GROUP;
        const uint8_t *bits = tile + LAYOUT_4_VALUES;
        __m512i t[COLS];

        for (uint32_t c = 0; c < n_cols; c++)
            t[c] = _mm512_setzero_si512();
        for (int s = 0; s < LAYOUT_STEPS / 2; s++) {
            __m512i b = load(tile + s * LAYOUT_STEP_BYTES);
            __m512i low = with_fifth(_mm512_and_si512(b, nibble), bits + s * 8);
            __m512i high = with_fifth(_mm512_and_si512(_mm512_srli_epi16(b, 4), nibble),
                                      bits + (s + LAYOUT_STEPS / 2) * 8);

            for (uint32_t c = 0; c < n_cols; c++) {
                const int8_t *a = q + c * cols->q_stride + (size_t)s * 4;

                t[c] = _mm512_dpbusd_epi32(t[c], low, four(a));
                t[c] = _mm512_dpbusd_epi32(t[c], high, four(a + 16));
            }
        }
        add_scaled(tile + LAYOUT_5_VALUES, cols, g, t, f, n_cols);
        add_mins(tile + LAYOUT_5_VALUES + LAYOUT_SCALES_BYTES, cols, g, f, n_cols);
    }
    put(out, f, n_cols);
}

/* Steps from .. to - 1 of a group, added to t. */
INLINE void dot_8(const uint8_t *values, const struct gemm_cols *cols, const int8_t *q, int from,
                  int to, __m512i t[], uint32_t n_cols)
{
    for (int s = from; s < to; s++) {
        __m512i w = load(values + s * LAYOUT_STEP_BYTES);

        for (uint32_t c = 0; c < n_cols; c++)
            t[c] = _mm512_dpbusd_epi32(t[c], w, four(q + c * cols->q_stride + (size_t)s * 4));
    }
}

/* -128 x the sum of 16 activations */
INLINE __m512i offset_16(const int8_t *q)
{
    __m128i sum = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(-128),
                                   _mm_loadu_si128((const __m128i *)(const void *)q));

    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_broadcastd_epi32(sum));
}

INLINE void form_8(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                   uint32_t n_cols)
{
    __m512 f[COLS];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_8_VALUES + LAYOUT_SCALES_BYTES) {
        __m512i t[COLS];

        for (uint32_t c = 0; c < n_cols; c++)
            t[c] = _mm512_set1_epi32(-128 * cols->total[c * cols->group_stride + g]);
        dot_8(tile, cols, cols->q + (size_t)g * K_GROUP, 0, LAYOUT_STEPS, t, n_cols);
        add_scaled(tile + LAYOUT_8_VALUES, cols, g, t, f, n_cols);
    }
    put(out, f, n_cols);
}

INLINE void form_8_two(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                       uint32_t n_cols)
{
    __m512 f[COLS];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_8_VALUES + 2 * LAYOUT_SCALES_BYTES)
        for (int h = 0; h < 2; h++) {
            const int8_t *q = cols->q + (size_t)g * K_GROUP;
            __m512i t[COLS];

            for (uint32_t c = 0; c < n_cols; c++)
                t[c] = offset_16(q + c * cols->q_stride + (size_t)h * 16);
            dot_8(tile, cols, q, h * 4, h * 4 + 4, t, n_cols);
            add_scaled(tile + LAYOUT_8_VALUES + h * LAYOUT_SCALES_BYTES, cols, g, t, f, n_cols);
        }
    put(out, f, n_cols);
}

INLINE __m512 load_weights(enum form form, const uint8_t *p)
{
    if (form == FORM_F32)
        return _mm512_loadu_ps(p);
    if (form == FORM_F16)
        return load_half(p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}

INLINE void form_float(enum form form, const uint8_t *tile, uint32_t n,
                       const struct gemm_cols *cols, float *out, uint32_t n_cols)
{
    __m512 f[COLS];
    size_t bytes = form == FORM_F32 ? 4 * K_TILE : 2 * K_TILE;

    for (uint32_t c = 0; c < n_cols; c++)
        f[c] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i++, tile += bytes) {
        __m512 w = load_weights(form, tile);

        for (uint32_t c = 0; c < n_cols; c++)
            f[c] = _mm512_fmadd_ps(w, _mm512_set1_ps(cols->f32[c * cols->f32_stride + i]), f[c]);
    }
    put(out, f, n_cols);
}

/* One function a form and number of columns. */
#define INSTANCE(name, call)                                                                 \
    static void name(const uint8_t *tile, uint32_t n, const struct gemm_cols *c, float *out) \
    {                                                                                        \
        call;                                                                                \
    }
#define INSTANCES(n_cols)                                                      \
    INSTANCE(form_4_##n_cols, form_4(tile, n, c, out, n_cols))                 \
    INSTANCE(form_5_##n_cols, form_5(tile, n, c, out, n_cols))                 \
    INSTANCE(form_8_##n_cols, form_8(tile, n, c, out, n_cols))                 \
    INSTANCE(form_8_two_##n_cols, form_8_two(tile, n, c, out, n_cols))         \
    INSTANCE(form_f32_##n_cols, form_float(FORM_F32, tile, n, c, out, n_cols)) \
    INSTANCE(form_f16_##n_cols, form_float(FORM_F16, tile, n, c, out, n_cols)) \
    INSTANCE(form_bf16_##n_cols, form_float(FORM_BF16, tile, n, c, out, n_cols))
#define ROW(name)                                                                      \
    {                                                                                  \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8 \
    }

INSTANCES(1)
INSTANCES(2)
INSTANCES(3)
INSTANCES(4)
INSTANCES(5)
INSTANCES(6)
INSTANCES(7)
INSTANCES(8)

void k_matmul_avx512(const struct k_matmul *a, uint32_t first, uint32_t end)
{
    static const struct gemm_kernels kernels = {
            .cols_max = COLS,
            .tile =
                    {
                            [FORM_4] = ROW(form_4),
                            [FORM_8] = ROW(form_8),
                            [FORM_5] = ROW(form_5),
                            [FORM_8_TWO] = ROW(form_8_two),
                            [FORM_F32] = ROW(form_f32),
                            [FORM_F16] = ROW(form_f16),
                            [FORM_BF16] = ROW(form_bf16),
                    },
    };

    gemm_run(a, first, end, &kernels);
}
