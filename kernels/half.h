/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <string.h>

/* float16 (IEEE 754 binary16) and bfloat16 to float32 and back, bit for bit what the F16C
 * instructions do (round to nearest even). */

static inline float k_from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t k_to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float k_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31;
    uint32_t mantissa = h & 0x3ffU;

    if (exponent == 31)
        return k_from_bits(sign | 0x7f800000U | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa x 2^-24, exact */
        float f = (float)mantissa * 0x1p-24F;

        return sign ? -f : f;
    }
    return k_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t k_float_to_half(float f)
{
    uint32_t bits = k_to_bits(f);
    uint32_t sign = (bits >> 16) & 0x8000U;
    uint32_t magnitude = bits & 0x7fffffffU;

    if (magnitude > 0x7f800000U) /* not a number: quiet, the payload's top bits */
        return (uint16_t)(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU));
    if (magnitude >= 0x477ff000U) /* rounds to more than 65504 */
        return (uint16_t)(sign | 0x7c00U);
    if (magnitude < 0x38800000U) {
        /* Below the smallest normal: adding 0.5 leaves the value in units of 2^-24 in the low
         * bits, rounded by the addition itself. */
        float shifted = k_from_bits(magnitude) + 0.5F;

        return (uint16_t)(sign | (k_to_bits(shifted) - 0x3f000000U));
    }
    magnitude += 0xfffU + ((magnitude >> 13) & 1U);
    return (uint16_t)(sign | ((magnitude - 0x38000000U) >> 13));
}

static inline float k_bf16_to_float(uint16_t b)
{
    return k_from_bits((uint32_t)b << 16);
}

/* Two bytes of a stored block, any alignment. */
static inline uint16_t k_load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline float k_load_half(const uint8_t *p)
{
    return k_half_to_float(k_load16(p));
}
