/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.cu - stored rows into the packed layout, and back for the embedding.
 *
 * pack    One thread a patch: it reads its values out of the stored blocks byte by byte (blocks
 *         have odd sizes, so nothing is aligned to more than two bytes) and writes vectors.  The
 *         thread with the first patch of a group also writes the group's scales.  Bytes: the
 *         matrix twice.  It runs once at load, behind a copy over PCIe that is ten times slower.
 * embed   One thread a patch of one row: it reads the quad's patch (its three other rows are
 *         wasted, and rows are few) and writes 32 bytes.  Bytes a row: 4 rows of weights,
 *         4 n_in out.  Bound: launch latency.
 *
 * Flops: a few a value.
 *
 * occupancy: pack threads=128 shared=0 blocks=8
 * occupancy: embed threads=128 shared=0 blocks=10
 */
#include "kernels/cuda/packed.cuh"

enum { THREADS = 128 };

struct pack_args {
    const unsigned char *stored;
    unsigned char *packed;
    uint32_t n_in;
    uint32_t n_out;
};

static __device__ __forceinline__ uint32_t bytes_16(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

/* The stored block that has value k of a row. */
template <enum k_type T>
static __device__ __forceinline__ const unsigned char *block_of(const struct pack_args &a,
                                                                uint32_t row, uint32_t k)
{
    using t = traits<T>;
    size_t row_bytes = (size_t)(a.n_in / t::BLOCK_LEN) * t::BLOCK_BYTES;

    return a.stored + row * row_bytes + (size_t)(k / t::BLOCK_LEN) * t::BLOCK_BYTES;
}

/* Value i of a block as the unsigned integer that the packed form holds (kernels.h describes the
 * blocks). */
template <enum k_type T>
static __device__ __forceinline__ uint32_t stored_quant(const unsigned char *b, uint32_t i)
{
    auto at = [b](uint32_t n) -> uint32_t { return b[n]; };

    if constexpr (T == K_Q8_0) {
        return at(2 + i) ^ 0x80U;
    } else if constexpr (T == K_Q4_K || T == K_Q5_K) {
        uint32_t group = i / 32;
        uint32_t byte = at((T == K_Q4_K ? 16 : 48) + group / 2 * 32 + i % 32);
        uint32_t q = group % 2 == 0 ? byte & 15 : byte >> 4;

        if constexpr (T == K_Q5_K)
            q |= ((at(16 + i % 32) >> group) & 1) << 4;
        return q;
    } else if constexpr (T == K_Q6_K) {
        uint32_t side = i / 128;
        uint32_t quarter = i % 128 / 32;
        uint32_t low = at(side * 64 + quarter % 2 * 32 + i % 32);
        uint32_t high = (at(128 + side * 32 + i % 32) >> (2 * quarter)) & 3;

        return (quarter < 2 ? low & 15 : low >> 4) | high << 4;
    } else { /* Q4_0 Q4_1 Q5_0 Q5_1: scales, fifth bits, nibbles */
        constexpr uint32_t n_scales = T == K_Q4_0 || T == K_Q5_0 ? 2 : 4;
        constexpr uint32_t n_bits = traits<T>::BITS == 5 ? 4 : 0;
        uint32_t byte = at(n_scales + n_bits + i % 16);
        uint32_t q = i < 16 ? byte & 15 : byte >> 4;

        if constexpr (n_bits > 0)
            q |= ((at(n_scales + i / 8) >> (i % 8)) & 1) << 4;
        return q;
    }
}

/* Scale and min of group g of 8 of a Q4_K or Q5_K block: 6 bits each in 12 bytes. */
static __device__ __forceinline__ uint32_t scale_min(const unsigned char *s, uint32_t g)
{
    uint32_t scale = s[g] & 63U;
    uint32_t min = s[g + 4] & 63U;

    if (g >= 4) {
        scale = (s[g + 4] & 15U) | (s[g - 4] & 0xc0U) >> 2;
        min = s[g + 4] >> 4U | (s[g] & 0xc0U) >> 2;
    }
    return scale | min << 8;
}

/* Put 16 bits at half word i of a vector; i is known when compiling. */
static __device__ __forceinline__ void set_half_word(uint4 *v, uint32_t i, uint32_t bits)
{
    uint32_t shifted = bits << (16 * (i % 2));

    if (i / 2 == 0)
        v->x |= shifted;
    else if (i / 2 == 1)
        v->y |= shifted;
    else if (i / 2 == 2)
        v->z |= shifted;
    else
        v->w |= shifted;
}

static __device__ __forceinline__ void set_word(uint4 *v, uint32_t i, uint32_t bits)
{
    set_half_word(v, 2 * i, bits & 0xffffU);
    set_half_word(v, 2 * i + 1, bits >> 16);
}

/* Row r of a float patch. */
template <enum k_type T>
static __device__ __forceinline__ void pack_floats(const struct pack_args &a, uint32_t row,
                                                   uint32_t k, uint32_t r, struct patch<T> *to)
{
#pragma unroll
    for (uint32_t j = 0; j < PATCH; j++) {
        const unsigned char *b = block_of<T>(a, row, k + j);

        if (k + j >= a.n_in)
            continue;
        if constexpr (T == K_F32)
            set_word(&to->quants[2 * r + j / 4], j % 4, bytes_16(b) | bytes_16(b + 2) << 16);
        else
            set_half_word(&to->quants[r], j, bytes_16(b));
    }
}

/* Row r of a quantised patch. */
template <enum k_type T>
static __device__ __forceinline__ void pack_quants(const struct pack_args &a, uint32_t row,
                                                   uint32_t k, uint32_t r, struct patch<T> *to)
{
    const unsigned char *b = block_of<T>(a, row, k);
    uint32_t low = 0;
    uint32_t more = 0; /* Q8_0's other four bytes, or the bits over the nibbles */

#pragma unroll
    for (uint32_t j = 0; j < PATCH; j++) {
        uint32_t q = stored_quant<T>(b, k % traits<T>::BLOCK_LEN + j);

        if constexpr (T == K_Q8_0)
            *(j < 4 ? &low : &more) |= q << (8 * (j % 4));
        else
            low |= (q & 15) << (4 * j);
        if constexpr (traits<T>::BITS == 5)
            more |= (q >> 4) << j;
        if constexpr (traits<T>::BITS == 6)
            more |= (q >> 4) << (2 * j);
    }
    if constexpr (T == K_Q8_0) {
        set_word(&to->quants[r / 2], 2 * (r % 2), low);
        set_word(&to->quants[r / 2], 2 * (r % 2) + 1, more);
    } else {
        set_word(&to->quants[0], r, low);
    }
    if constexpr (traits<T>::BITS == 5)
        to->high.x |= more << (8 * r);
    if constexpr (traits<T>::BITS == 6)
        *(r < 2 ? &to->high.x : &to->high.y) |= more << (16 * (r % 2));
}

/* Row r's scales of the group that begins at value k, and of its block. */
template <enum k_type T>
static __device__ __forceinline__ void pack_scales(const struct pack_args &a, uint32_t row,
                                                   uint32_t k, uint32_t r, struct patch<T> *to)
{
    const unsigned char *b = block_of<T>(a, row, k);
    uint32_t group = k % traits<T>::BLOCK_LEN / K_GROUP;

    if constexpr (T == K_Q4_1 || T == K_Q5_1) {
        set_word(&to->scales, r, bytes_16(b) | bytes_16(b + 2) << 16);
    } else if constexpr (T == K_Q4_0 || T == K_Q5_0 || T == K_Q8_0) {
        set_half_word(&to->scales, r, bytes_16(b));
    } else if constexpr (T == K_Q4_K || T == K_Q5_K) {
        set_half_word(&to->scales, r, scale_min(b + 4, group));
        set_word(&to->supers, r, bytes_16(b) | bytes_16(b + 2) << 16);
    } else if constexpr (T == K_Q6_K) {
        set_half_word(&to->scales, r, bytes_16(b + 192 + 2 * group));
        set_half_word(&to->supers, r, bytes_16(b + 208));
    }
}

template <uint32_t Bytes>
static __device__ __forceinline__ void store_plane(unsigned char *plane, uint32_t i, uint4 v)
{
    if constexpr (Bytes == 16)
        *(uint4 *)(plane + i * 16) = v;
    else if constexpr (Bytes == 8)
        *(uint2 *)(plane + i * 8) = make_uint2(v.x, v.y);
    else if constexpr (Bytes == 4)
        *(uint32_t *)(plane + i * 4) = v.x;
}

/* Planes that do not end at a multiple of 16: the last writer fills up. */
template <uint32_t Bytes>
static __device__ __forceinline__ void end_plane(unsigned char *plane, uint32_t i, uint32_t n)
{
    if (Bytes == 8 && n % 2 == 1 && i == n - 1)
        *(uint2 *)(plane + n * 8) = make_uint2(0, 0);
}

template <enum k_type T> static __global__ __launch_bounds__(THREADS) void pack(struct pack_args a)
{
    using t = traits<T>;
    struct layout l = layout_of<T>(a.n_in);
    uint32_t p = blockIdx.y * THREADS + threadIdx.x;
    uint32_t n_groups = l.n_patches / GROUP_PATCHES;
    unsigned char *quad = a.packed + (size_t)blockIdx.x * l.quad_bytes;
    struct patch<T> to = {
    };

    if (p >= l.n_patches)
        return;
#pragma unroll
    for (uint32_t r = 0; r < QUAD; r++) {
        uint32_t row = blockIdx.x * QUAD + r;

        if (row >= a.n_out)
            continue;
        if constexpr (t::BITS == 0) {
            pack_floats<T>(a, row, p * PATCH, r, &to);
        } else {
            pack_quants<T>(a, row, p * PATCH, r, &to);
            pack_scales<T>(a, row, p / GROUP_PATCHES * K_GROUP, r, &to);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < t::N_VECTORS; i++)
        *(uint4 *)(quad + ((size_t)i * l.n_patches + p) * VECTOR) = to.quants[i];
    store_plane<t::HIGH_BYTES>(quad + l.high_at, p, make_uint4(to.high.x, to.high.y, 0, 0));
    if (p % GROUP_PATCHES == 0) {
        store_plane<t::SCALE_BYTES>(quad + l.scales_at, p / GROUP_PATCHES, to.scales);
        end_plane<t::SCALE_BYTES>(quad + l.scales_at, p / GROUP_PATCHES, n_groups);
    }
    if (p % SUPER_PATCHES == 0) {
        store_plane<t::SUPER_BYTES>(quad + l.supers_at, p / SUPER_PATCHES, to.supers);
        end_plane<t::SUPER_BYTES>(quad + l.supers_at, p / SUPER_PATCHES, n_groups / 8);
    }
}

struct embed_args {
    struct k_embed a;
    struct k_matrix table; /* a.table is the host's */
};

/* k_embed_id(), on the device */
static __device__ __forceinline__ uint32_t id_of(const struct k_embed &a, uint32_t row)
{
    int32_t id = a.tokens[row] >= 0 ? a.tokens[row] : a.last[a.slots[row]];

    return id >= 0 ? (uint32_t)id : 0;
}

/* blockIdx.y: the row */
template <enum k_type T>
static __global__ __launch_bounds__(THREADS) void embed(struct embed_args e)
{
    struct layout l = layout_of<T>(e.table.n_in);
    const unsigned char *quads = (const unsigned char *)e.table.data;
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    float *out = e.a.out + (size_t)blockIdx.y * e.table.n_in + (size_t)i * PATCH;
    struct patch<T> p = {
    };
    uint32_t row;

    if (i >= l.n_patches || e.a.tokens[blockIdx.y] == INT32_MIN)
        return;
    row = id_of(e.a, blockIdx.y) - e.a.first; /* below 'first' it wraps around */
    if (row < e.table.n_out)
        load_patch<T>(&p, quads + (size_t)(row / QUAD) * l.quad_bytes, l, i);
#pragma unroll
    for (uint32_t r = 0; r < QUAD; r++) { /* registers have no index: all rows, one is taken */
        struct affine w = patch_affine<T>(p, r, i);

        if (r != row % QUAD)
            continue;
#pragma unroll
        for (uint32_t j = 0; j < PATCH; j++)
            if (i * PATCH + j < e.table.n_in)
                out[j] = fmaf(patch_value<T>(p, r, j), w.factor, w.offset) * e.a.scale;
    }
}

extern "C" size_t k_cuda_packed_bytes(enum k_type type, uint32_t n_in, uint32_t n_out)
{
    size_t bytes = 0;

    for_type(type, [&](auto t) {
        bytes = (size_t)layout_of<decltype(t)::type>(n_in).quad_bytes * divide_up(n_out, QUAD);
    });
    return bytes;
}

extern "C" int k_cuda_pack(const struct k_cuda *c, const struct k_pack *a)
{
    int r = (int)cudaErrorInvalidValue;
    uint32_t n_patches = divide_up(a->n_in, K_GROUP) * GROUP_PATCHES;
    /* a vocabulary has more quads than a grid may have rows (65,535) */
    dim3 grid(divide_up(a->n_out, QUAD), divide_up(n_patches, THREADS));
    struct pack_args args = {};

    args.stored = (const unsigned char *)a->stored;
    args.packed = (unsigned char *)a->packed;
    args.n_in = a->n_in;
    args.n_out = a->n_out;
    for_type(a->type,
             [&](auto t) { r = launch(c, pack<decltype(t)::type>, grid, THREADS, 0, args); });
    return r;
}

extern "C" int k_cuda_embed(const struct k_cuda *c, const struct k_embed *a)
{
    int r = (int)cudaErrorInvalidValue;
    uint32_t n_patches = divide_up(a->table->n_in, K_GROUP) * GROUP_PATCHES;
    dim3 grid(divide_up(n_patches, THREADS), a->n_rows);
    struct embed_args args = {};

    args.a = *a;
    args.table = *a->table;
    for_type(a->table->type,
             [&](auto t) { r = launch(c, embed<decltype(t)::type>, grid, THREADS, 0, args); });
    return r;
}
