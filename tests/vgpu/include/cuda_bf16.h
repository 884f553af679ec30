/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bfloat16 as CUDA has it: conversions round to nearest even, a NaN becomes 0x7fff. */

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short __x;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return {x};
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.__x;
}

inline float __bfloat162float(__nv_bfloat16 h)
{
    return vgpu::bits<float>(unsigned(h.__x) << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    unsigned u = vgpu::bits<unsigned>(f);
    if ((u & 0x7fffffff) > 0x7f800000u)
        return {0x7fff};
    return {(unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
