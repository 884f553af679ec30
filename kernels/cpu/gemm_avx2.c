/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx2.c - the matrix kernels with AVX2, FMA and F16C.
 *
 * A tile is two vectors of eight outputs.  For the 4-bit form the unsigned operand of vpmaddubsw
 * is the nibbles: eight products of at most 15 x 127 twice fit an int16, so a group of 32 needs
 * one widening at its end.  For 8-bit forms it is |a|, and the weight takes a's sign (weights are
 * -127 .. 127, so a pair of products fits too); each pair is widened at once.
 *
 * The number of columns is a compile-time constant in each instance, so that sums stay in
 * registers.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

enum { COLS = 4, HALVES = 2 };

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m256 load_half(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Four activations of column c, in every lane. */
INLINE __m256i four(const struct gemm_cols *cols, uint32_t c, size_t at)
{
    int32_t v;

    memcpy(&v, cols->q + c * cols->q_stride + at, sizeof(v));
    return _mm256_set1_epi32(v);
}

/* f += scale_w x scale_a x t */
INLINE __m256 scaled(__m256 f, __m256 scale_w, float scale_a, __m256i t)
{
    __m256 d = _mm256_mul_ps(scale_w, _mm256_set1_ps(scale_a));

    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(t), f);
}

INLINE void put(float *out, __m256 f[][HALVES], uint32_t n_cols)
{
    for (uint32_t c = 0; c < n_cols; c++)
        for (int h = 0; h < HALVES; h++)
            _mm256_storeu_ps(out + (size_t)c * K_TILE + (size_t)h * 8, f[c][h]);
}

INLINE void add_mins(const uint8_t *mins, const struct gemm_cols *cols, uint32_t g,
                     __m256 f[][HALVES], uint32_t n_cols)
{
    for (int h = 0; h < HALVES; h++) {
        __m256 m = load_half(mins + (size_t)h * 16);

        for (uint32_t c = 0; c < n_cols; c++)
            f[c][h] = _mm256_fmadd_ps(m, _mm256_set1_ps(cols->sum[c * cols->group_stride + g]),
                                      f[c][h]);
    }
}

INLINE void add_scaled(const uint8_t *scales, const struct gemm_cols *cols, uint32_t g,
                       __m256i t[][HALVES], __m256 f[][HALVES], uint32_t n_cols)
{
    for (int h = 0; h < HALVES; h++) {
        __m256 d = load_half(scales + (size_t)h * 16);

        for (uint32_t c = 0; c < n_cols; c++)
            f[c][h] = scaled(f[c][h], d, cols->scale[c * cols->group_stride + g], t[c][h]);
    }
}

INLINE void form_4(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                   uint32_t n_cols)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 f[COLS][HALVES];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c][0] = f[c][1] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_4_VALUES + 2 * LAYOUT_SCALES_BYTES) {
        __m256i t[COLS][HALVES];

        for (uint32_t c = 0; c < n_cols; c++)
            t[c][0] = t[c][1] = _mm256_setzero_si256();
        for (int s = 0; s < LAYOUT_STEPS / 2; s++)
            for (int h = 0; h < HALVES; h++) {
                __m256i b = load(tile + s * LAYOUT_STEP_BYTES + h * 32);
                __m256i low = _mm256_and_si256(b, nibble);
                __m256i high = _mm256_and_si256(_mm256_srli_epi16(b, 4), nibble);

                for (uint32_t c = 0; c < n_cols; c++) {
                    size_t at = (size_t)g * K_GROUP + (size_t)s * 4;
                    __m256i p = _mm256_maddubs_epi16(low, four(cols, c, at));

                    p = _mm256_add_epi16(p, _mm256_maddubs_epi16(high, four(cols, c, at + 16)));
                    t[c][h] = _mm256_add_epi16(t[c][h], p);
                }
            }
        for (int h = 0; h < HALVES; h++) {
            __m256 d = load_half(tile + LAYOUT_4_VALUES + h * 16);

            for (uint32_t c = 0; c < n_cols; c++)
                f[c][h] = scaled(f[c][h], d, cols->scale[c * cols->group_stride + g],
                                 _mm256_madd_epi16(t[c][h], ones));
        }
        add_mins(tile + LAYOUT_4_VALUES + LAYOUT_SCALES_BYTES, cols, g, f, n_cols);
    }
    put(out, f, n_cols);
}

/* The fifth bits of half a step: 32 bits, one a byte of the vector. */
INLINE __m256i with_fifth(__m256i q, const uint8_t *bits)
{
    const __m256i spread =
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    int32_t mask;
    __m256i m;

    memcpy(&mask, bits, sizeof(mask));
    m = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), spread), each);
    m = _mm256_cmpeq_epi8(m, each);
    return _mm256_or_si256(q, _mm256_and_si256(m, _mm256_set1_epi8(16)));
}

/* Products of the steps 2 x pair and 2 x pair + 1 and of those 16 inputs further: as many as an
 * int16 holds. */
INLINE void dot_5(const uint8_t *tile, const struct gemm_cols *cols, uint32_t g, int pair,
                  __m256i t[][HALVES], uint32_t n_cols)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *bits = tile + LAYOUT_4_VALUES;

    for (int h = 0; h < HALVES; h++) {
        __m256i words[COLS];

        for (uint32_t c = 0; c < n_cols; c++)
            words[c] = _mm256_setzero_si256();
        for (int s = 2 * pair; s < 2 * pair + 2; s++) {
            __m256i b = load(tile + s * LAYOUT_STEP_BYTES + h * 32);
            __m256i low = with_fifth(_mm256_and_si256(b, nibble), bits + s * 8 + h * 4);
            __m256i high = with_fifth(_mm256_and_si256(_mm256_srli_epi16(b, 4), nibble),
                                      bits + (s + LAYOUT_STEPS / 2) * 8 + h * 4);

            for (uint32_t c = 0; c < n_cols; c++) {
                size_t at = (size_t)g * K_GROUP + (size_t)s * 4;
                __m256i p = _mm256_maddubs_epi16(low, four(cols, c, at));

                p = _mm256_add_epi16(p, _mm256_maddubs_epi16(high, four(cols, c, at + 16)));
                words[c] = _mm256_add_epi16(words[c], p);
            }
        }
        for (uint32_t c = 0; c < n_cols; c++)
            t[c][h] = _mm256_add_epi32(t[c][h], _mm256_madd_epi16(words[c], ones));
    }
}

INLINE void form_5(const uint8_t *tile, uint32_t n, const struct gemm_cols *cols, float *out,
                   uint32_t n_cols)
{
    __m256 f[COLS][HALVES];

    for (uint32_t c = 0; c < n_cols; c++)
        f[c][0] = f[c][1] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += LAYOUT_5_VALUES + 2 * LAYOUT_SCALES_BYTES) {
        __m256i t[COLS][HALVES];

        for (uint32_t c = 0; c < n_cols; c++)
            t[c][0] = t[c][1] = _mm256_setzero_si256();
        for (int pair = 0; pair < LAYOUT_STEPS / 4; pair++)
            dot_5(tile, cols, g, pair, t, n_cols);
        add_scaled(tile + LAYOUT_5_VALUES, cols, g, t, f, n_cols);
        add_mins(tile + LAYOUT_5_VALUES + LAYOUT_SCALES_BYTES, cols, g, f, n_cols);
    }
    put(out, f, n_cols);
}

/* Products of the steps from .. to - 1 of group g. */
INLINE void dot_8(const uint8_t *values, const struct gemm_cols *cols, uint32_t g, int from, int to,
                  __m256i t[][HALVES], uint32_t n_cols)
{
    const __m256i sign = _mm256_set1_epi8(-128);
    const __m256i ones = _mm256_set1_epi16(1);

    for (uint32_t c = 0; c < n_cols; c++)
        t[c][0] = t[c][1] = _mm256_setzero_si256();
    for (int s = from; s < to; s++) {
        __m256i w[HALVES];

        for (int h = 0; h < HALVES; h++)
            w[h] = _mm256_xor_si256(load(values + s * LAYOUT_STEP_BYTES + h * 32), sign);
        for (uint32_t c = 0; c < n_cols; c++) {
            __m256i a = four(cols, c, (size_t)g * K_GROUP + (size_t)s * 4);
            __m256i magnitude = _mm256_abs_epi8(a);

            for (int h = 0; h < HALVES; h++) {
                __m256i p = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(w[h], a));

                t[c][h] = _mm256_add_epi32(t[c][h], _mm256_madd_epi16(p, ones));
            }
        }
    }
}

/* All 8-bit forms. */
INLINE void form_8(enum form form, const uint8_t *tile, uint32_t n, const struct gemm_cols *cols,
                   float *out, uint32_t n_cols)
{
    __m256 f[COLS][HALVES];
    __m256i t[COLS][HALVES];
    size_t bytes = LAYOUT_8_VALUES + (form == FORM_8 ? 1 : 2) * LAYOUT_SCALES_BYTES;

    for (uint32_t c = 0; c < n_cols; c++)
        f[c][0] = f[c][1] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < n; g++, tile += bytes) {
        const uint8_t *scales = tile + LAYOUT_8_VALUES;

        if (form == FORM_8_TWO) {
            dot_8(tile, cols, g, 0, LAYOUT_STEPS / 2, t, n_cols);
            add_scaled(scales, cols, g, t, f, n_cols);
            dot_8(tile, cols, g, LAYOUT_STEPS / 2, LAYOUT_STEPS, t, n_cols);
            add_scaled(scales + LAYOUT_SCALES_BYTES, cols, g, t, f, n_cols);
        } else {
            dot_8(tile, cols, g, 0, LAYOUT_STEPS, t, n_cols);
            add_scaled(scales, cols, g, t, f, n_cols);
        }
    }
    put(out, f, n_cols);
}

/* Eight weights of one input as floats. */
INLINE __m256 load_weights(enum form form, const uint8_t *p, int h)
{
    if (form == FORM_F32)
        return _mm256_castsi256_ps(load(p + (size_t)h * 32));
    if (form == FORM_F16)
        return load_half(p + (size_t)h * 16);
    return _mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + h * 16))),
            16));
}

INLINE void form_float(enum form form, const uint8_t *tile, uint32_t n,
                       const struct gemm_cols *cols, float *out, uint32_t n_cols)
{
    __m256 f[COLS][HALVES];
    size_t bytes = form == FORM_F32 ? 4 * K_TILE : 2 * K_TILE;

    for (uint32_t c = 0; c < n_cols; c++)
        f[c][0] = f[c][1] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i++, tile += bytes)
        for (int h = 0; h < HALVES; h++) {
            __m256 w = load_weights(form, tile, h);

            for (uint32_t c = 0; c < n_cols; c++)
                f[c][h] = _mm256_fmadd_ps(w, _mm256_set1_ps(cols->f32[c * cols->f32_stride + i]),
                                          f[c][h]);
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
    INSTANCE(form_8_##n_cols, form_8(FORM_8, tile, n, c, out, n_cols))         \
    INSTANCE(form_8_two_##n_cols, form_8(FORM_8_TWO, tile, n, c, out, n_cols)) \
    INSTANCE(form_f32_##n_cols, form_float(FORM_F32, tile, n, c, out, n_cols)) \
    INSTANCE(form_f16_##n_cols, form_float(FORM_F16, tile, n, c, out, n_cols)) \
    INSTANCE(form_bf16_##n_cols, form_float(FORM_BF16, tile, n, c, out, n_cols))
#define ROW(name)                              \
    {                                          \
        name##_1, name##_2, name##_3, name##_4 \
    }

INSTANCES(1)
INSTANCES(2)
INSTANCES(3)
INSTANCES(4)

void k_matmul_avx2(const struct k_matmul *a, uint32_t first, uint32_t end)
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
