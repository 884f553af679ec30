/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantise.c - stored blocks to float32, one function a type.
 *
 * The formats are described in kernels.h.  Values are computed as the formula says, left to right
 * in float32.  Every other reader of stored weights (the packers of kernels/cpu) is tested
 * against this file.
 */
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

static void from_f32(const uint8_t *b, float *x)
{
    memcpy(x, b, sizeof(*x));
}

static void from_f16(const uint8_t *b, float *x)
{
    *x = k_load_half(b);
}

static void from_bf16(const uint8_t *b, float *x)
{
    *x = k_bf16_to_float(k_load16(b));
}

static void from_q4_0(const uint8_t *b, float *x)
{
    float d = k_load_half(b);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b[2 + i] & 15) - 8) * d;
        x[i + 16] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

static void from_q4_1(const uint8_t *b, float *x)
{
    float d = k_load_half(b);
    float m = k_load_half(b + 2);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)(b[4 + i] & 15) * d + m;
        x[i + 16] = (float)(b[4 + i] >> 4) * d + m;
    }
}

/* The fifth bit of value i, in place. */
static int fifth(const uint8_t *bits, int i)
{
    return ((bits[i / 8] >> (i % 8)) & 1) << 4;
}

static void from_q5_0(const uint8_t *b, float *x)
{
    float d = k_load_half(b);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)(((b[6 + i] & 15) | fifth(b + 2, i)) - 16) * d;
        x[i + 16] = (float)(((b[6 + i] >> 4) | fifth(b + 2, i + 16)) - 16) * d;
    }
}

static void from_q5_1(const uint8_t *b, float *x)
{
    float d = k_load_half(b);
    float m = k_load_half(b + 2);

    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b[8 + i] & 15) | fifth(b + 4, i)) * d + m;
        x[i + 16] = (float)((b[8 + i] >> 4) | fifth(b + 4, i + 16)) * d + m;
    }
}

static void from_q8_0(const uint8_t *b, float *x)
{
    float d = k_load_half(b);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(int8_t)b[2 + i] * d;
}

/* Scale and min of group g of 8, 6 bits each, packed into 12 bytes. */
static void scale_min(const uint8_t *s, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        *min = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    }
}

/* Q4_K and Q5_K: groups 2j and 2j + 1 are the low and high nibbles of the same 32 bytes; the
 * fifth bit of group g is bit g of the 32 bytes at 'high'. */
static void from_k(const uint8_t *b, const uint8_t *high, const uint8_t *nibbles, float *x)
{
    float d = k_load_half(b);
    float dmin = k_load_half(b + 2);

    for (int g = 0; g < 8; g++) {
        int scale;
        int min;

        scale_min(b + 4, g, &scale, &min);
        for (int i = 0; i < 32; i++) {
            uint8_t byte = nibbles[g / 2 * 32 + i];
            int q = g % 2 == 0 ? byte & 15 : byte >> 4;

            if (high)
                q |= ((high[i] >> g) & 1) << 4;
            x[g * 32 + i] = d * (float)scale * (float)q - dmin * (float)min;
        }
    }
}

static void from_q4_k(const uint8_t *b, float *x)
{
    from_k(b, NULL, b + 16, x);
}

static void from_q5_k(const uint8_t *b, float *x)
{
    from_k(b, b + 16, b + 48, x);
}

static void from_q6_k(const uint8_t *b, float *x)
{
    const int8_t *scales = (const int8_t *)(b + 192);
    float d = k_load_half(b + 208);

    /* Value i: half h = i / 128, quarter q of it; its low nibble is in byte (q % 2) x 32 + l of
     * the half's 64, low for q < 2; its high pair is pair q of byte l of the half's 32. */
    for (int i = 0; i < 256; i++) {
        int h = i / 128;
        int quarter = i % 128 / 32;
        int l = i % 32;
        int low = b[h * 64 + quarter % 2 * 32 + l];
        int high = (b[128 + h * 32 + l] >> (2 * quarter)) & 3;
        int q = (quarter < 2 ? low & 15 : low >> 4) | high << 4;

        x[i] = d * (float)scales[i / 16] * (float)(q - 32);
    }
}

static const struct stored {
    enum k_type type;
    uint32_t len;
    uint32_t bytes;
    void (*block)(const uint8_t *b, float *x);
} stored[] = {
        {K_F32, 1, 4, from_f32},       {K_F16, 1, 2, from_f16},       {K_BF16, 1, 2, from_bf16},
        {K_Q4_0, 32, 18, from_q4_0},   {K_Q4_1, 32, 20, from_q4_1},   {K_Q5_0, 32, 22, from_q5_0},
        {K_Q5_1, 32, 24, from_q5_1},   {K_Q8_0, 32, 34, from_q8_0},   {K_Q4_K, 256, 144, from_q4_k},
        {K_Q5_K, 256, 176, from_q5_k}, {K_Q6_K, 256, 210, from_q6_k},
};

static const struct stored *find(enum k_type type)
{
    size_t i = 0;

    while (stored[i].type != type)
        i++;
    return &stored[i];
}

void k_dequantise(enum k_type type, const void *data, uint32_t n, float *out)
{
    const struct stored *s = find(type);
    const uint8_t *b = data;

    for (uint32_t i = 0; i < n; i += s->len, b += s->bytes)
        s->block(b, out + i);
}

uint32_t k_block_len(enum k_type type)
{
    return find(type)->len;
}

uint32_t k_block_bytes(enum k_type type)
{
    return find(type)->bytes;
}
