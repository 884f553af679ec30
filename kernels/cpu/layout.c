/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c - stored rows into interleaved tiles, and single rows out again.
 *
 * Runs once per weight, so it is plain: a stored block is taken apart into integers, scales and
 * mins (struct group), and those are written where layout.h says.  The last tile of a matrix
 * whose outputs are no multiple of 16 keeps zeros in the lanes beyond (the memory comes zeroed).
 */
#include "kernels/cpu/layout.h"

#include <string.h>

#include "kernels/half.h"

/* 32 inputs of one output: x[i] = scale[i / 16] x q[i] + min */
struct group {
    int q[K_GROUP];
    float scale[2];
    float min;
};

enum form layout_form(enum k_type type)
{
    switch (type) {
    case K_F32:
        return FORM_F32;
    case K_F16:
        return FORM_F16;
    case K_BF16:
        return FORM_BF16;
    case K_Q4_0:
    case K_Q4_1:
    case K_Q4_K:
        return FORM_4;
    case K_Q5_0:
    case K_Q5_1:
    case K_Q5_K:
        return FORM_5;
    case K_Q6_K:
        return FORM_8_TWO;
    case K_Q8_0:
        break;
    }
    return FORM_8;
}

size_t layout_group_bytes(enum form form)
{
    static const size_t bytes[FORM_COUNT] = {
            [FORM_4] = LAYOUT_4_VALUES + 2 * LAYOUT_SCALES_BYTES,
            [FORM_8] = LAYOUT_8_VALUES + LAYOUT_SCALES_BYTES,
            [FORM_5] = LAYOUT_5_VALUES + 2 * LAYOUT_SCALES_BYTES,
            [FORM_8_TWO] = LAYOUT_8_VALUES + 2 * LAYOUT_SCALES_BYTES,
            [FORM_F32] = 4 * K_TILE,
            [FORM_F16] = 2 * K_TILE,
            [FORM_BF16] = 2 * K_TILE,
    };

    return bytes[form];
}

size_t layout_tile_bytes(enum form form, uint32_t n_in)
{
    return layout_group_bytes(form) * (form < FORM_F32 ? n_in / K_GROUP : n_in);
}

size_t layout_packed_bytes(enum k_type type, uint32_t n_in, uint32_t n_out)
{
    size_t n_tiles = (n_out + K_TILE - 1) / K_TILE;

    return n_tiles * layout_tile_bytes(layout_form(type), n_in);
}

bool layout_wants_q(enum k_type type)
{
    return layout_form(type) < FORM_F32;
}

/* Low nibbles are values 0 .. 15, high ones 16 .. 31. */
static void nibbles(const uint8_t *b, struct group *g)
{
    for (int i = 0; i < 16; i++) {
        g->q[i] = b[i] & 15;
        g->q[i + 16] = b[i] >> 4;
    }
}

static void add_fifth(const uint8_t *bits, struct group *g)
{
    for (int i = 0; i < K_GROUP; i++)
        g->q[i] += ((bits[i / 8] >> (i % 8)) & 1) << 4;
}

/* Block formats with 32 values. */
static void read_small(enum k_type type, const uint8_t *b, struct group *g)
{
    float d = k_load_half(b);

    g->scale[0] = g->scale[1] = d;
    if (type == K_Q4_0) {
        nibbles(b + 2, g);
        g->min = -8 * d;
    } else if (type == K_Q4_1) {
        nibbles(b + 4, g);
        g->min = k_load_half(b + 2);
    } else if (type == K_Q5_0) {
        nibbles(b + 6, g);
        add_fifth(b + 2, g);
        g->min = -16 * d;
    } else if (type == K_Q5_1) {
        nibbles(b + 8, g);
        add_fifth(b + 4, g);
        g->min = k_load_half(b + 2);
    } else { /* Q8_0; quantisers do not write -128, and 127 on both sides fits the kernels */
        for (int i = 0; i < K_GROUP; i++) {
            int q = (int8_t)b[2 + i];

            g->q[i] = q < -127 ? -127 : q;
        }
    }
}

/* Group n of 8 of a Q4_K or Q5_K block (kernels.h). */
static void read_k(const uint8_t *b, const uint8_t *high, const uint8_t *low, uint32_t n,
                   struct group *g)
{
    const uint8_t *s = b + 4;
    int scale = n < 4 ? s[n] & 63 : (s[n + 4] & 15) | (s[n - 4] >> 6) << 4;
    int min = n < 4 ? s[n + 4] & 63 : (s[n + 4] >> 4) | (s[n] >> 6) << 4;

    for (uint32_t i = 0; i < K_GROUP; i++) {
        uint8_t byte = low[n / 2 * 32 + i];

        g->q[i] = n % 2 == 0 ? byte & 15 : byte >> 4;
        if (high)
            g->q[i] |= ((high[i] >> n) & 1) << 4;
    }
    g->scale[0] = g->scale[1] = k_load_half(b) * (float)scale;
    g->min = -k_load_half(b + 2) * (float)min;
}

static void read_q6_k(const uint8_t *b, uint32_t n, struct group *g)
{
    const int8_t *scales = (const int8_t *)(b + 192);
    float d = k_load_half(b + 208);
    uint32_t half = n / 4;
    uint32_t quarter = n % 4;

    for (uint32_t i = 0; i < K_GROUP; i++) {
        int low = b[half * 64 + quarter % 2 * 32 + i];
        int high = (b[128 + half * 32 + i] >> (2 * quarter)) & 3;

        g->q[i] = ((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32;
    }
    g->scale[0] = d * (float)scales[2 * n];
    g->scale[1] = d * (float)scales[2 * n + 1];
}

/* Group n of a stored row. */
static void read_group(enum k_type type, const uint8_t *row, uint32_t n, struct group *g)
{
    uint32_t per_block = k_block_len(type) / K_GROUP;
    const uint8_t *b = row + (size_t)(n / per_block) * k_block_bytes(type);

    *g = (struct group){.min = 0};
    if (type == K_Q4_K)
        read_k(b, NULL, b + 16, n % per_block, g);
    else if (type == K_Q5_K)
        read_k(b, b + 16, b + 48, n % per_block, g);
    else if (type == K_Q6_K)
        read_q6_k(b, n % per_block, g);
    else
        read_small(type, b, g);
}

static void put_half(uint8_t *at, uint32_t output, float x)
{
    uint16_t h = k_float_to_half(x);

    memcpy(at + 2 * output, &h, sizeof(h));
}

static float get_half(const uint8_t *at, uint32_t output)
{
    uint16_t h;

    memcpy(&h, at + 2 * output, sizeof(h));
    return k_half_to_float(h);
}

/* Where the scales of a group are: after the values. */
static size_t scales_at(enum form form)
{
    if (form == FORM_4)
        return LAYOUT_4_VALUES;
    return form == FORM_5 ? LAYOUT_5_VALUES : LAYOUT_8_VALUES;
}

/* Byte of value i of an output; nibble forms have input i + 16 in its high half. */
static size_t value_at(enum form form, uint32_t output, uint32_t i)
{
    uint32_t step = i / 4 % (form < FORM_8 ? LAYOUT_STEPS / 2 : LAYOUT_STEPS);

    return (size_t)step * LAYOUT_STEP_BYTES + output * 4 + i % 4;
}

/* Byte and bit of the fifth bit of value i. */
static size_t fifth_at(uint32_t output, uint32_t i, uint32_t *ret_bit)
{
    uint32_t bit = output * 4 + i % 4;

    *ret_bit = bit % 8;
    return LAYOUT_4_VALUES + (size_t)(i / 4) * K_TILE / 2 + bit / 8;
}

static void put_value(enum form form, uint8_t *at, uint32_t output, uint32_t i, int q)
{
    uint8_t *byte = at + value_at(form, output, i);
    uint32_t bit;

    if (form >= FORM_8) {
        *byte = (uint8_t)(q + 128);
        return;
    }
    *byte = (uint8_t)(*byte | (q & 15) << (i < K_GROUP / 2 ? 0 : 4));
    if (form == FORM_5) {
        byte = at + fifth_at(output, i, &bit);
        *byte = (uint8_t)(*byte | (q >> 4) << bit);
    }
}

static int get_value(enum form form, const uint8_t *at, uint32_t output, uint32_t i)
{
    int byte = at[value_at(form, output, i)];
    uint32_t bit;
    int q;

    if (form >= FORM_8)
        return byte - 128;
    q = i < K_GROUP / 2 ? byte & 15 : byte >> 4;
    if (form == FORM_5) {
        byte = at[fifth_at(output, i, &bit)];
        q |= ((byte >> bit) & 1) << 4;
    }
    return q;
}

static void write_group(enum form form, uint8_t *at, uint32_t output, const struct group *g)
{
    uint8_t *scales = at + scales_at(form);

    for (uint32_t i = 0; i < K_GROUP; i++)
        put_value(form, at, output, i, g->q[i]);
    put_half(scales, output, g->scale[0]);
    if (form == FORM_8_TWO)
        put_half(scales + LAYOUT_SCALES_BYTES, output, g->scale[1]);
    else if (form < FORM_8)
        put_half(scales + LAYOUT_SCALES_BYTES, output, g->min);
}

static void pack_row(const struct k_pack *a, enum form form, uint32_t o, uint8_t *tile)
{
    size_t row_bytes = (size_t)(a->n_in / k_block_len(a->type)) * k_block_bytes(a->type);
    const uint8_t *row = (const uint8_t *)a->stored + o * row_bytes;
    size_t bytes = layout_group_bytes(form);
    struct group g;

    if (form >= FORM_F32) {
        size_t value = bytes / K_TILE;

        for (uint32_t i = 0; i < a->n_in; i++)
            memcpy(tile + i * bytes + o % K_TILE * value, row + i * value, value);
        return;
    }
    for (uint32_t i = 0; i < a->n_in / K_GROUP; i++) {
        read_group(a->type, row, i, &g);
        write_group(form, tile + i * bytes, o % K_TILE, &g);
    }
}

void layout_pack(const struct k_pack *a, uint32_t first, uint32_t end)
{
    enum form form = layout_form(a->type);
    size_t tile_bytes = layout_tile_bytes(form, a->n_in);

    for (uint32_t t = first; t < end; t++)
        for (uint32_t o = t * K_TILE; o < (t + 1) * K_TILE && o < a->n_out; o++)
            pack_row(a, form, o, (uint8_t *)a->packed + t * tile_bytes);
}

static void embed_group(enum form form, const uint8_t *at, uint32_t output, float scale, float *out)
{
    const uint8_t *scales = at + scales_at(form);
    float d[2];
    float min = 0;

    d[0] = d[1] = get_half(scales, output);
    if (form == FORM_8_TWO)
        d[1] = get_half(scales + LAYOUT_SCALES_BYTES, output);
    else if (form < FORM_8)
        min = get_half(scales + LAYOUT_SCALES_BYTES, output);
    for (uint32_t i = 0; i < K_GROUP; i++)
        out[i] = ((float)get_value(form, at, output, i) * d[i / 16] + min) * scale;
}

static float embed_float(enum form form, const uint8_t *at, uint32_t output)
{
    float f;
    uint16_t h;

    if (form == FORM_F32) {
        memcpy(&f, at + 4 * output, sizeof(f));
        return f;
    }
    memcpy(&h, at + 2 * output, sizeof(h));
    return form == FORM_F16 ? k_half_to_float(h) : k_bf16_to_float(h);
}

void layout_embed(const struct k_embed *a, uint32_t first, uint32_t end)
{
    enum form form = layout_form(a->table->type);
    uint32_t n = a->table->n_in;
    size_t bytes = layout_group_bytes(form);
    size_t tile_bytes = layout_tile_bytes(form, n);

    for (uint32_t r = first; r < end; r++) {
        uint32_t id = k_embed_id(a, r) - a->first; /* below 'first' it wraps around */
        const uint8_t *tile;
        float *out = a->out + (size_t)r * n;

        if (id >= a->table->n_out) {
            memset(out, 0, n * sizeof(*out));
            continue;
        }
        tile = (const uint8_t *)a->table->data + id / K_TILE * tile_bytes;
        if (form < FORM_F32)
            for (uint32_t i = 0; i < n / K_GROUP; i++)
                embed_group(form, tile + i * bytes, id % K_TILE, a->scale,
                            out + (size_t)i * K_GROUP);
        else
            for (uint32_t i = 0; i < n; i++)
                out[i] = embed_float(form, tile + i * bytes, id % K_TILE) * a->scale;
    }
}
