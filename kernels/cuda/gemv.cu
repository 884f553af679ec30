/* SPDX-License-Identifier: Apache-2.0
 *
 * gemv.cu - products of at most eight rows: the weights stream through once, in float32.
 *
 * A warp takes a quad of outputs, or with 'n_parts' warps of the block a part of the quad's inputs
 * each, so that short matrices fill the device too.  Lane l takes the patches l, l + 32, ... : it
 * loads 16 bytes of weights (or 2, 4, 8 times 16) and the scales, the next patch's before this
 * one is used; makes the 4 x 8 values once; and multiplies them with each row's 8 activations (two
 * 16-byte loads, which hit L1: every warp of the block reads the same).  Quantised values are
 * v = 1 + q / 2^bits, so a patch adds D sum(v x) + B sum(x) (packed.cuh).
 *
 * At the end the 4 x M sums of 32 lanes are halved five times: each step gives half of the sums to
 * the partner lane, so that 4 M - 1 shuffles and not 20 M are needed; then the block's warps add
 * theirs through shared memory.
 *
 * The sum of one row does not depend on how many rows there are: the order is the same for all M.
 *
 * Bytes: the packed matrix, once; activations 4 n_in M a block out of L2.  Flops: 2 M n_in n_out.
 * Instructions a weight: about 2 for its value and M for its products, so the bound is memory
 * bandwidth up to M = 4 for 4-bit types (H200: 7.4e12 weights/s of memory, 28e12 instructions/s)
 * and beyond M = 8 for 16-bit ones; from there on, the arithmetic units.
 * Shared memory: 1 KiB.
 *
 * occupancy: gemv threads=256 shared=1024 blocks=2
 */
#include <math.h>

#include "kernels/cuda/matmul.cuh"

static constexpr uint32_t WARPS = 8;
static constexpr uint32_t PATCHES_A_PART = 128; /* a warp with fewer has little to overlap */

template <enum k_type T> struct quad_values {
    float v[QUAD][PATCH];
    struct affine w[QUAD];
};

template <enum k_type T>
static __device__ __forceinline__ void take_apart(const struct patch<T> &p, uint32_t i,
                                                  struct quad_values<T> *to)
{
#pragma unroll
    for (uint32_t r = 0; r < QUAD; r++) {
#pragma unroll
        for (uint32_t j = 0; j < PATCH; j++)
            to->v[r][j] = patch_value<T>(p, r, j);
        to->w[r] = patch_affine<T>(p, r, i);
    }
}

/* sums += the patch's products with eight activations */
template <enum k_type T>
static __device__ __forceinline__ void multiply(const struct quad_values<T> &q,
                                                const float x[PATCH], float sums[QUAD])
{
    float total = 0;

    if constexpr (traits<T>::BITS > 0) {
#pragma unroll
        for (uint32_t j = 0; j < PATCH; j++)
            total += x[j];
    }
#pragma unroll
    for (uint32_t r = 0; r < QUAD; r++) {
        float dot = 0;

        if constexpr (traits<T>::BITS > 0) {
#pragma unroll
            for (uint32_t j = 0; j < PATCH; j++)
                dot = fmaf(q.v[r][j], x[j], dot);
            sums[r] += fmaf(q.w[r].factor, dot, q.w[r].offset * total);
        } else {
#pragma unroll
            for (uint32_t j = 0; j < PATCH; j++)
                sums[r] = fmaf(q.v[r][j], x[j], sums[r]);
        }
    }
}

/* All rows' products with patch i. */
template <enum k_type T, uint32_t M, bool Aligned>
static __device__ __forceinline__ void
add_patch(const struct matmul_args &a, const struct patch<T> &p, uint32_t i, float sums[M * QUAD])
{
    struct quad_values<T> q;

    take_apart<T>(p, i, &q);
#pragma unroll
    for (uint32_t m = 0; m < M; m++) {
        if (m >= a.n_rows)
            continue;
        const float *row = a.x + (size_t)m * a.n_in;
        float4 low = load_x<Aligned>(row, i * PATCH, a.n_in);
        float4 high = load_x<Aligned>(row, i * PATCH + 4, a.n_in);
        float x[PATCH] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};

        multiply<T>(q, x, sums + m * QUAD);
    }
}

/* This lane's share of the quad. */
template <enum k_type T, uint32_t M, bool Aligned>
static __device__ __forceinline__ void stream(const struct matmul_args &a,
                                              const unsigned char *quad, const struct layout &l,
                                              uint32_t first, float sums[M * QUAD])
{
    uint32_t step = a.n_parts * WARP;
    struct patch<T> p = {
    };

    if (first < l.n_patches)
        load_patch<T>(&p, quad, l, first);
    for (uint32_t i = first; i < l.n_patches; i += step) {
        struct patch<T> now = p;

        if (i + step < l.n_patches)
            load_patch<T>(&p, quad, l, i + step);
        add_patch<T, M, Aligned>(a, now, i, sums);
    }
}

/* Sums over the warp of N values a lane; lane l gets the one of value l / (WARP / N). */
template <uint32_t N> static __device__ __forceinline__ float spread_sums(float v[N])
{
    uint32_t lane = threadIdx.x % WARP;
    int distance = WARP / 2;

#pragma unroll
    for (uint32_t n = N / 2; n > 0; n /= 2, distance /= 2) {
        bool upper = (lane & (uint32_t)distance) != 0;

#pragma unroll
        for (uint32_t i = 0; i < n; i++) {
            float sent = __shfl_xor_sync(all_lanes, upper ? v[i] : v[i + n], distance);

            v[i] = (upper ? v[i + n] : v[i]) + sent;
        }
    }
    for (; distance > 0; distance /= 2)
        v[0] += __shfl_xor_sync(all_lanes, v[0], distance);
    return v[0];
}

template <enum k_type T, uint32_t M>
static __global__ __launch_bounds__(WARPS *WARP, 2) void gemv(struct matmul_args a)
{
    constexpr uint32_t n_sums = M * QUAD;
    struct layout l = layout_of<T>(a.n_in);
    uint32_t warp = threadIdx.x / WARP;
    uint32_t lane = threadIdx.x % WARP;
    uint32_t item = blockIdx.x * (WARPS / a.n_parts) + warp / a.n_parts;
    uint32_t part = warp % a.n_parts;
    struct matmul_matrix w = matrix_of(a, item);
    uint32_t o = (item - w.first) * QUAD;
    float *shared = (float *)ptx_shared(); /* [WARPS][n_sums] */
    float sums[n_sums] = {};
    float sum;

    if (o < w.n_out) { /* beyond: the grid's last block */
        const unsigned char *quad = w.data + (size_t)(o / QUAD) * l.quad_bytes;

        if (traits<T>::BITS > 0 || a.n_in % 4 == 0)
            stream<T, M, true>(a, quad, l, part * WARP + lane, sums);
        else
            stream<T, M, false>(a, quad, l, part * WARP + lane, sums);
    }
    sum = spread_sums<n_sums>(sums);
    if (lane % (WARP / n_sums) == 0)
        shared[warp * n_sums + lane / (WARP / n_sums)] = sum;
    __syncthreads();
    if (part != 0 || lane >= n_sums)
        return;
    sum = 0;
    for (uint32_t i = 0; i < a.n_parts; i++)
        sum += shared[(warp + i) * n_sums + lane];
    if (lane / QUAD < a.n_rows && o + lane % QUAD < w.n_out) {
        float *out = w.out + (size_t)(lane / QUAD) * w.n_out + o + lane % QUAD;

        *out = a.add ? *out + sum : sum;
    }
}

template <enum k_type T>
static int launch_rows(const struct k_cuda *c, dim3 grid, const struct matmul_args &a)
{
    constexpr size_t shared = WARPS * QUAD * K_CUDA_STREAM_ROWS * sizeof(float);

    if (a.n_rows <= 1)
        return launch(c, gemv<T, 1>, grid, WARPS * WARP, shared, a);
    if (a.n_rows <= 2)
        return launch(c, gemv<T, 2>, grid, WARPS * WARP, shared, a);
    if (a.n_rows <= 4)
        return launch(c, gemv<T, 4>, grid, WARPS * WARP, shared, a);
    return launch(c, gemv<T, 8>, grid, WARPS * WARP, shared, a);
}

int gemv_launch(const struct k_cuda *c, enum k_type type, struct matmul_args a)
{
    int r = (int)cudaErrorInvalidValue;
    uint32_t n_patches = divide_up(a.n_in, K_GROUP) * GROUP_PATCHES;
    uint32_t n = number_items(&a, QUAD);

    a.n_parts = 1;
    while (a.n_parts < WARPS && n_patches >= 2 * a.n_parts * PATCHES_A_PART)
        a.n_parts *= 2;
    for_type(type, [&](auto t) {
        r = launch_rows<decltype(t)::type>(c, dim3(divide_up(n * a.n_parts, WARPS)), a);
    });
    return r;
}
