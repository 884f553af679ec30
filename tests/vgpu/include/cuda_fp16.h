/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* binary16 as CUDA has it: conversions round to nearest even, a NaN becomes 0x7fff. */

#include "cuda_runtime.h"

struct __half {
    unsigned short __x;
};

struct alignas(4) __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

inline __half __ushort_as_half(unsigned short x)
{
    return {x};
}

inline unsigned short __half_as_ushort(__half h)
{
    return h.__x;
}

inline float __half2float(__half h)
{
    unsigned sign = unsigned(h.__x & 0x8000) << 16, exponent = h.__x >> 10 & 31,
             fraction = h.__x & 0x3ff;
    if (exponent == 31) /* infinity, NaN */
        return vgpu::bits<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) { /* zero, subnormal: fraction x 2^-24, exact in a float */
        float value = float(fraction) * 0x1p-24f;
        return sign ? -value : value;
    }
    return vgpu::bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

inline __half __float2half_rn(float f)
{
    unsigned u = vgpu::bits<unsigned>(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000u)
        return {0x7fff};
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return {(unsigned short)(sign | 0x7c00)};
    if (magnitude < 0x38800000u) { /* below 2^-14: a whole number of 2^-24 */
        /* adding 0.5 puts the unit of the last place at 2^-24: the adder rounds to even */
        float sum = vgpu::bits<float>(magnitude) + 0.5f;
        return {(unsigned short)(sign | (vgpu::bits<unsigned>(sum) - 0x3f000000u))};
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return {(unsigned short)(sign | ((magnitude - (112u << 23)) >> 13))};
}

inline float2 __half22float2(__half2 h)
{
    return {__half2float(h.x), __half2float(h.y)};
}

inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}
