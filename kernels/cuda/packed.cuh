/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

/* How weights lie in device memory, and how a thread reads them.
 *
 * Four output rows are a quad; eight neighbouring inputs of a quad are a patch, what one thread
 * reads and multiplies at a time: its activations are two 16-byte loads, used for four rows.  A
 * quad is contiguous and made of planes, each an array over the patches or groups of the row, so
 * that a warp (32 neighbouring patches) reads 512 contiguous bytes at a time:
 *
 *   quants  [N_VECTORS][n_patches] x 16 B
 *             F32        vectors 2r and 2r + 1: the eight values of row r
 *             F16, BF16  vector r: row r
 *             Q8_0       vector r / 2, words 2 (r % 2) and the next: row r, each byte plus 128
 *             others     word r: row r's low nibbles, value j in bits 4j .. 4j + 3
 *   high    [n_patches] x HIGH_BYTES: Q5 4 (byte r: row r's fifth bits), Q6_K 8 (half word r:
 *           row r's upper bit pairs)
 *   scales  [n_groups] x SCALE_BYTES, a group being 32 inputs: 4 x d, or 4 x (d, m) in float16;
 *           for K types the four rows' 8-bit (scale, min), for Q6_K (scale, scale) of 16 inputs
 *   supers  [n_groups / 8] x SUPER_BYTES: the K types' 4 x (d, dmin) or 4 x d
 *
 * Rows are filled up with zeros to whole groups, matrices to whole quads; planes start at
 * multiples of 16.  So a weight takes what it takes in the file, and 1/8 bit more in Q4_K and Q5_K,
 * whose 6-bit scales are spread to 8.
 *
 * A quantised weight is q d + b with an unsigned integer q of BITS bits.  The thread makes the
 * float 1 + q / 2^BITS by putting q's bits into the mantissa (a shift and an or-and; a conversion
 * would be several times slower), so the weight is value x D + B with D = d 2^BITS and
 * B = b - D, which is exact for the types without a minimum. */

static constexpr uint32_t QUAD = 4;
static constexpr uint32_t PATCH = 8;
static constexpr uint32_t GROUP_PATCHES = 4;  /* patches that share a scale */
static constexpr uint32_t SUPER_PATCHES = 32; /* patches that share a K type's d */
static constexpr uint32_t VECTOR = 16;        /* bytes of a load */

/* What a type is made of. */
template <enum k_type T> struct traits;
struct traits_float {
    static constexpr uint32_t BITS = 0;
    static constexpr uint32_t HIGH_BYTES = 0;
    static constexpr uint32_t SCALE_BYTES = 0;
    static constexpr uint32_t SUPER_BYTES = 0;
    static constexpr uint32_t BLOCK_LEN = 1;
};
template <> struct traits<K_F32> : traits_float {
    static constexpr uint32_t N_VECTORS = 8;
    static constexpr uint32_t BLOCK_BYTES = 4;
};
template <> struct traits<K_F16> : traits_float {
    static constexpr uint32_t N_VECTORS = 4;
    static constexpr uint32_t BLOCK_BYTES = 2;
};
template <> struct traits<K_BF16> : traits<K_F16> {
};
template <uint32_t Bits, uint32_t Bytes, uint32_t ScaleBytes> struct traits_32 {
    static constexpr uint32_t N_VECTORS = Bits == 8 ? 2 : 1;
    static constexpr uint32_t BITS = Bits;
    static constexpr uint32_t HIGH_BYTES = Bits == 5 ? 4 : 0;
    static constexpr uint32_t SCALE_BYTES = ScaleBytes;
    static constexpr uint32_t SUPER_BYTES = 0;
    static constexpr uint32_t BLOCK_LEN = 32;
    static constexpr uint32_t BLOCK_BYTES = Bytes;
};
template <> struct traits<K_Q4_0> : traits_32<4, 18, 8> {
};
template <> struct traits<K_Q4_1> : traits_32<4, 20, 16> {
};
template <> struct traits<K_Q5_0> : traits_32<5, 22, 8> {
};
template <> struct traits<K_Q5_1> : traits_32<5, 24, 16> {
};
template <> struct traits<K_Q8_0> : traits_32<8, 34, 8> {
};
template <uint32_t Bits, uint32_t Bytes, uint32_t SuperBytes> struct traits_256 {
    static constexpr uint32_t N_VECTORS = 1;
    static constexpr uint32_t BITS = Bits;
    static constexpr uint32_t HIGH_BYTES = Bits == 4 ? 0 : Bits == 5 ? 4 : 8;
    static constexpr uint32_t SCALE_BYTES = 8;
    static constexpr uint32_t SUPER_BYTES = SuperBytes;
    static constexpr uint32_t BLOCK_LEN = 256;
    static constexpr uint32_t BLOCK_BYTES = Bytes;
};
template <> struct traits<K_Q4_K> : traits_256<4, 144, 16> {
};
template <> struct traits<K_Q5_K> : traits_256<5, 176, 16> {
};
template <> struct traits<K_Q6_K> : traits_256<6, 210, 8> {
};

/* Where a quad's planes are. */
struct layout {
    uint32_t n_patches;
    uint32_t high_at;
    uint32_t scales_at;
    uint32_t supers_at;
    uint32_t quad_bytes;
};

template <enum k_type T> __host__ __device__ constexpr struct layout layout_of(uint32_t n_in)
{
    struct layout l = {};
    uint32_t n_groups = divide_up(n_in, K_GROUP);

    l.n_patches = n_groups * GROUP_PATCHES;
    l.high_at = traits<T>::N_VECTORS * VECTOR * l.n_patches;
    l.scales_at = l.high_at + traits<T>::HIGH_BYTES * l.n_patches;
    l.supers_at = l.scales_at + divide_up(traits<T>::SCALE_BYTES * n_groups, VECTOR) * VECTOR;
    l.quad_bytes =
            l.supers_at + divide_up(traits<T>::SUPER_BYTES * (n_groups / 8), VECTOR) * VECTOR;
    return l;
}

/* A patch as loaded.  What a type has not, the compiler drops. */
template <enum k_type T> struct patch {
    uint4 quants[traits<T>::N_VECTORS];
    uint2 high;
    uint4 scales;
    uint4 supers;
};

template <uint32_t Bytes>
__device__ __forceinline__ void load_plane(uint4 *to, const unsigned char *plane, uint32_t i)
{
    if constexpr (Bytes == 16) {
        *to = *(const uint4 *)(plane + i * 16);
    } else if constexpr (Bytes == 8) {
        uint2 v = *(const uint2 *)(plane + i * 8);

        *to = make_uint4(v.x, v.y, 0, 0);
    }
}

template <enum k_type T>
__device__ __forceinline__ void load_patch(struct patch<T> *to, const unsigned char *quad,
                                           const struct layout &l, uint32_t p)
{
    using t = traits<T>;

#pragma unroll
    for (uint32_t i = 0; i < t::N_VECTORS; i++)
        to->quants[i] = ptx_load_stream(quad + ((size_t)i * l.n_patches + p) * VECTOR);
    if constexpr (t::HIGH_BYTES == 4)
        to->high.x = *(const uint32_t *)(quad + l.high_at + p * 4);
    if constexpr (t::HIGH_BYTES == 8)
        to->high = *(const uint2 *)(quad + l.high_at + p * 8);
    load_plane<t::SCALE_BYTES>(&to->scales, quad + l.scales_at, p / GROUP_PATCHES);
    load_plane<t::SUPER_BYTES>(&to->supers, quad + l.supers_at, p / SUPER_PATCHES);
}

/* Word i of a vector; i is known when compiling. */
__device__ __forceinline__ uint32_t word(const uint4 &v, uint32_t i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ uint32_t half_word(uint32_t w, uint32_t i)
{
    return (w >> (16 * i)) & 0xffffU;
}

__device__ __forceinline__ float half_value(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

__device__ __forceinline__ float bf16_value(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Value j of row r of a patch (both known when compiling): the weight itself, or for a quantised
 * type 1 + q / 2^BITS. */
template <enum k_type T>
__device__ __forceinline__ float patch_value(const struct patch<T> &p, uint32_t r, uint32_t j)
{
    constexpr uint32_t one = 0x3f800000U;
    constexpr uint32_t shift = 23 - traits<T>::BITS;

    if constexpr (T == K_F32)
        return __uint_as_float(word(p.quants[2 * r + j / 4], j % 4));
    else if constexpr (T == K_F16)
        return half_value(half_word(word(p.quants[r], j / 2), j % 2));
    else if constexpr (T == K_BF16)
        return bf16_value(half_word(word(p.quants[r], j / 2), j % 2));
    else if constexpr (traits<T>::BITS == 8) {
        uint32_t q = word(p.quants[r / 2], 2 * (r % 2) + j / 4) >> (8 * (j % 4));

        return __uint_as_float(one | (q & 255) << shift);
    } else {
        uint32_t bits = one | ((word(p.quants[0], r) >> (4 * j)) & 15) << shift;

        if constexpr (traits<T>::BITS == 5)
            bits |= ((p.high.x >> (8 * r + j)) & 1) << (shift + 4);
        if constexpr (traits<T>::BITS == 6)
            bits |= (((r < 2 ? p.high.x : p.high.y) >> (16 * (r % 2) + 2 * j)) & 3) << (shift + 4);
        return __uint_as_float(bits);
    }
}

/* The weight is value x factor + offset. */
struct affine {
    float factor;
    float offset;
};

/* Row r's, of patch number i of the quad (its place in the group matters for Q6_K). */
template <enum k_type T>
__device__ __forceinline__ struct affine patch_affine(const struct patch<T> &p, uint32_t r,
                                                      uint32_t i)
{
    constexpr float steps = (float)(1U << traits<T>::BITS);
    struct affine a = {1, 0};

    if constexpr (T == K_Q4_1 || T == K_Q5_1) {
        a.factor = half_value(half_word(word(p.scales, r), 0)) * steps;
        a.offset = half_value(half_word(word(p.scales, r), 1)) - a.factor;
    } else if constexpr (T == K_Q4_0 || T == K_Q5_0 || T == K_Q8_0) {
        float d = half_value(half_word(word(p.scales, r / 2), r % 2));

        a.factor = d * steps;
        a.offset = d * (-steps / 2 - steps);
    } else if constexpr (T == K_Q4_K || T == K_Q5_K) {
        uint32_t scale_min = half_word(word(p.scales, r / 2), r % 2);
        float d = half_value(half_word(word(p.supers, r), 0));
        float dmin = half_value(half_word(word(p.supers, r), 1));

        a.factor = d * (float)(scale_min & 255) * steps;
        a.offset = -dmin * (float)(scale_min >> 8) - a.factor;
    } else if constexpr (T == K_Q6_K) {
        uint32_t two = half_word(word(p.scales, r / 2), r % 2);
        uint32_t bits = i % GROUP_PATCHES < 2 ? two & 255 : two >> 8;
        float d = half_value(half_word(word(p.supers, r / 2), r % 2));
        float scale = (float)((int32_t)(bits << 24) >> 24);

        a.factor = d * scale * steps;
        a.offset = d * scale * (-steps / 2 - steps);
    }
    return a;
}

/* A type as a value's type, so that a lambda can be called with it. */
template <enum k_type T> struct type_tag {
    static constexpr enum k_type type = T;
};

/* Call fn(type_tag) for a type that is known at run time; of none of ours nothing happens. */
template <class Fn> void for_type(enum k_type type, const Fn &fn)
{
    switch (type) {
    case K_F32:
        return fn(type_tag<K_F32>());
    case K_F16:
        return fn(type_tag<K_F16>());
    case K_BF16:
        return fn(type_tag<K_BF16>());
    case K_Q4_0:
        return fn(type_tag<K_Q4_0>());
    case K_Q4_1:
        return fn(type_tag<K_Q4_1>());
    case K_Q5_0:
        return fn(type_tag<K_Q5_0>());
    case K_Q5_1:
        return fn(type_tag<K_Q5_1>());
    case K_Q8_0:
        return fn(type_tag<K_Q8_0>());
    case K_Q4_K:
        return fn(type_tag<K_Q4_K>());
    case K_Q5_K:
        return fn(type_tag<K_Q5_K>());
    case K_Q6_K:
        return fn(type_tag<K_Q6_K>());
    }
}
