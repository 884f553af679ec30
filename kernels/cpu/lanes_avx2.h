/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Eight floats at once with AVX2, FMA and F16C.  lanes_portable.h says what each does. */
#define LANES_NAME(op) op##_avx2

enum { LANES = 8 };

typedef __m256 lanes;

static inline lanes lanes_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void lanes_store(float *p, lanes v)
{
    _mm256_storeu_ps(p, v);
}

static inline lanes lanes_all(float x)
{
    return _mm256_set1_ps(x);
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}

static inline lanes lanes_div(lanes a, lanes b)
{
    return _mm256_div_ps(a, b);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

static inline lanes lanes_min(lanes a, lanes b)
{
    return _mm256_min_ps(a, b);
}

static inline lanes lanes_abs(lanes a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a);
}

static inline lanes lanes_round(lanes a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline lanes lanes_exp2_whole(lanes a)
{
    __m256i n = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}

static inline lanes lanes_from_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void lanes_to_bytes(int8_t *p, lanes v)
{
    __m256i n = _mm256_cvtps_epi32(v);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));

    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}

static inline float lanes_sum(lanes v)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

static inline float lanes_greatest(lanes v)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}
