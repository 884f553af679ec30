/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/half.h"

/* Eight floats at once, in plain C: what lanes_avx2.h does with instructions, bit for bit. */
#define LANES_NAME(op) op##_portable

enum { LANES = 8 };

typedef struct {
    float f[LANES];
} lanes;

static inline lanes lanes_load(const float *p)
{
    lanes v;

    memcpy(v.f, p, sizeof(v.f));
    return v;
}

static inline void lanes_store(float *p, lanes v)
{
    memcpy(p, v.f, sizeof(v.f));
}

static inline lanes lanes_all(float x)
{
    lanes v;

    for (int i = 0; i < LANES; i++)
        v.f[i] = x;
    return v;
}

static inline lanes lanes_add(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] += b.f[i];
    return a;
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] -= b.f[i];
    return a;
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] *= b.f[i];
    return a;
}

static inline lanes lanes_div(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] /= b.f[i];
    return a;
}

/* a x b + c, rounded once */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    for (int i = 0; i < LANES; i++)
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}

/* The greater; b when either is not a number. */
static inline lanes lanes_max(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        b.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return b;
}

static inline lanes lanes_min(lanes a, lanes b)
{
    for (int i = 0; i < LANES; i++)
        b.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return b;
}

static inline lanes lanes_abs(lanes a)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] = fabsf(a.f[i]);
    return a;
}

/* To whole numbers, halves to even. */
static inline lanes lanes_round(lanes a)
{
    for (int i = 0; i < LANES; i++)
        a.f[i] = rintf(a.f[i]);
    return a;
}

/* 2^a for whole a in -126 .. 127 */
static inline lanes lanes_exp2_whole(lanes a)
{
    for (int i = 0; i < LANES; i++) {
        int32_t n = a.f[i] >= -126 && a.f[i] <= 127 ? (int32_t)a.f[i] : 0;

        a.f[i] = k_from_bits((uint32_t)(n + 127) << 23);
    }
    return a;
}

static inline lanes lanes_from_half(const uint16_t *p)
{
    lanes v;

    for (int i = 0; i < LANES; i++)
        v.f[i] = k_half_to_float(p[i]);
    return v;
}

static inline void lanes_to_bytes(int8_t *p, lanes v)
{
    for (int i = 0; i < LANES; i++)
        p[i] = v.f[i] >= -127 && v.f[i] <= 127 ? (int8_t)v.f[i] : -128;
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
static inline float lanes_sum(lanes v)
{
    return ((v.f[0] + v.f[4]) + (v.f[2] + v.f[6])) + ((v.f[1] + v.f[5]) + (v.f[3] + v.f[7]));
}

static inline float lanes_greatest(lanes v)
{
    float m = v.f[0];

    for (int i = 1; i < LANES; i++)
        m = m > v.f[i] ? m : v.f[i];
    return m;
}
