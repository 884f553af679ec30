/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.cu - products of more than eight rows, on the tensor cores (mma.sync, tf32).
 *
 * A block makes a tile of 64 outputs x N rows (N = 16, 32, 64, 128: the least that holds the rows,
 * 128 for more), 128 threads.  Outputs are the mma's 16-row operand and rows of activations its
 * 8-column one, so that few rows waste little.  Over 64 inputs at a time:
 *
 *   weights      thread i holds patch i % 8 of quad i / 8 in registers (loaded during the step
 *                before), dequantises it and puts it into shared memory as tf32, [64][64 + 4]
 *   activations  cp.async, [N][64 + 4] float32, rounded to tf32 when they are fragments; a row
 *                whose length is no multiple of 4 is copied by value
 *
 * Both are double-buffered, with one barrier a step: what a step fills was last read before the
 * barrier of the step before.  The 4 floats of padding make every ldmatrix and store free of bank
 * conflicts (a stride of 17 x 16 bytes).  Warps: N = 16, 32: four of 16 outputs; N = 64, 128: two
 * by two of 32 outputs x N / 2 rows.
 *
 * Tiles that do not fill the device are cut along the inputs, too: n_parts blocks write partial
 * sums to scratch and add_parts() adds them up, in order.  The cut depends on the counts and the
 * device only.
 *
 * tf32 and not float16 or bfloat16: the range of activations is float32's (Gemma's exceed 65504),
 * and 10 bits of mantissa lose a quarter of what bfloat16's 7 lose.  8- and 11-bit weights are
 * exact.
 *
 * Bytes: the packed matrix once for every 128 rows (tiles of the same outputs are neighbours in the
 * grid: L2), activations n_out / 64 times out of L2, 4 n_rows n_out out; with parts 8 n_parts
 * times that.  Flops: 2 n_rows n_in n_out.  Bound: memory up to some 16 (4-bit) or 64 rows
 * (16-bit), then the tensor cores, of which mma.sync reaches about 60 % on sm_90.
 * Shared memory: 2 x (64 + N) x 68 x 4 bytes.
 *
 * occupancy: gemm threads=128 shared=104448 blocks=1
 * occupancy: add_parts threads=256 shared=0 blocks=6
 */
#include "kernels/cuda/matmul.cuh"

static constexpr uint32_t TILE_OUT = 64;
static constexpr uint32_t TILE_IN = 64;
static constexpr uint32_t STRIDE = TILE_IN + 4;
static constexpr uint32_t THREADS = 128;
static constexpr uint32_t TILE_PATCHES = TILE_IN / PATCH;
static constexpr uint32_t ADD_THREADS = 256;
static constexpr uint32_t PARTS_MAX = 16;
static constexpr uint32_t PART_STEPS_MIN = 4; /* steps that are worth a block */

/* How the four warps share a tile of 64 x N. */
template <uint32_t N> struct shape {
    static constexpr uint32_t WARPS_OUT = N < 64 ? 4 : 2;
    static constexpr uint32_t OUT = TILE_OUT / WARPS_OUT; /* outputs a warp */
    static constexpr uint32_t ROWS = N / (4 / WARPS_OUT); /* rows a warp */
    static constexpr uint32_t OUT_TILES = OUT / 16;       /* mma tiles */
    static constexpr uint32_t ROW_TILES = ROWS / 8;
    static constexpr uint32_t SHARED = 2 * (TILE_OUT + N) * STRIDE * (uint32_t)sizeof(float);
};

/* What a block works on. */
struct place {
    struct matmul_matrix w;
    uint32_t first_out;
    uint32_t first_row;
    uint32_t step;     /* in steps of TILE_IN inputs */
    uint32_t end_step; /* of this part */
};

static __device__ __forceinline__ struct place place_of(const struct matmul_args &a, uint32_t n)
{
    struct place p;
    uint32_t n_steps = divide_up(a.n_in, TILE_IN);
    uint32_t a_part = divide_up(n_steps, a.n_parts);

    p.w = matrix_of(a, blockIdx.y);
    p.first_out = (blockIdx.y - p.w.first) * TILE_OUT;
    p.first_row = blockIdx.x * n;
    p.step = blockIdx.z * a_part;
    p.end_step = min(p.step + a_part, n_steps);
    return p;
}

/* Thread i's patch of the step; zeros beyond the matrix. */
template <enum k_type T>
static __device__ __forceinline__ void load_weights(const struct place &p, const struct layout &l,
                                                    uint32_t step, struct patch<T> *to)
{
    uint32_t o = p.first_out + threadIdx.x / TILE_PATCHES * QUAD;
    uint32_t i = step * TILE_PATCHES + threadIdx.x % TILE_PATCHES;

    if (o < p.w.n_out && i < l.n_patches)
        load_patch<T>(to, p.w.data + (size_t)(o / QUAD) * l.quad_bytes, l, i);
    else
        *to = {};
}

/* The patch as tf32 into the tile. */
template <enum k_type T>
static __device__ __forceinline__ void put_weights(const struct patch<T> &p, uint32_t step,
                                                   uint32_t *tile)
{
    uint32_t i = step * TILE_PATCHES + threadIdx.x % TILE_PATCHES;
    uint32_t *to =
            tile + threadIdx.x / TILE_PATCHES * QUAD * STRIDE + threadIdx.x % TILE_PATCHES * PATCH;

#pragma unroll
    for (uint32_t r = 0; r < QUAD; r++) {
        struct affine w = patch_affine<T>(p, r, i);
        uint32_t v[PATCH];

#pragma unroll
        for (uint32_t j = 0; j < PATCH; j++) {
            float x = patch_value<T>(p, r, j);

            v[j] = ptx_to_tf32(traits<T>::BITS > 0 ? fmaf(x, w.factor, w.offset) : x);
        }
        *(uint4 *)(to + r * STRIDE) = make_uint4(v[0], v[1], v[2], v[3]);
        *(uint4 *)(to + r * STRIDE + 4) = make_uint4(v[4], v[5], v[6], v[7]);
    }
}

/* Start copying the step's activations into the tile. */
template <uint32_t N, bool Aligned>
static __device__ __forceinline__ void copy_rows(const struct matmul_args &a, const struct place &p,
                                                 uint32_t step, float *tile)
{
    constexpr uint32_t n_pieces = TILE_IN / 4;

#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < N * n_pieces; i += THREADS) {
        uint32_t row = p.first_row + i / n_pieces;
        uint32_t k = step * TILE_IN + i % n_pieces * 4;
        float *to = tile + i / n_pieces * STRIDE + i % n_pieces * 4;

        if constexpr (Aligned) {
            bool valid = row < a.n_rows && k < a.n_in;

            ptx_cp_async16(to, valid ? a.x + (size_t)row * a.n_in + k : a.x, valid);
        } else {
            *(float4 *)to = row < a.n_rows ? load_x<false>(a.x + (size_t)row * a.n_in, k, a.n_in)
                                           : make_float4(0, 0, 0, 0);
        }
    }
    ptx_cp_async_commit();
}

/* The warp's mma tiles over one step. */
template <uint32_t N>
static __device__ __forceinline__ void
multiply(const uint32_t *weights, const float *rows,
         float sums[shape<N>::OUT_TILES][shape<N>::ROW_TILES][4])
{
    using s = shape<N>;
    uint32_t lane = threadIdx.x % WARP;
    uint32_t warp = threadIdx.x / WARP;
    /* ldmatrix: lanes 0-7, 8-15, ... give the rows of the four 8 x 4 (float) matrices */
    const uint32_t *w =
            weights + (warp % s::WARPS_OUT * s::OUT + lane % 16) * STRIDE + lane / 16 * 4;
    const float *x = rows + (warp / s::WARPS_OUT * s::ROWS + lane % 8 + lane / 16 * 8) * STRIDE +
                     lane / 8 % 2 * 4;

#pragma unroll
    for (uint32_t k = 0; k < TILE_IN; k += 8) {
        uint32_t out[s::OUT_TILES][4];

#pragma unroll
        for (uint32_t i = 0; i < s::OUT_TILES; i++)
            ptx_ldmatrix_x4(out[i], w + i * 16 * STRIDE + k);
#pragma unroll
        for (uint32_t j = 0; j < s::ROW_TILES; j += 2) {
            uint32_t two[4]; /* of two tiles of rows */

            ptx_ldmatrix_x4(two, x + j * 8 * STRIDE + k);
#pragma unroll
            for (uint32_t v = 0; v < 4; v++)
                two[v] = ptx_to_tf32(__uint_as_float(two[v]));
#pragma unroll
            for (uint32_t i = 0; i < s::OUT_TILES; i++) {
                ptx_mma_tf32(sums[i][j], out[i], two);
                ptx_mma_tf32(sums[i][j + 1], out[i], two + 2);
            }
        }
    }
}

/* One value of the tile to where it goes. */
static __device__ __forceinline__ void put_sum(const struct matmul_args &a, const struct place &p,
                                               float *out, uint32_t o, uint32_t row, float sum)
{
    if (o < p.w.n_out && row < a.n_rows) {
        float *to = out + (size_t)row * p.w.n_out + o;

        *to = a.add && a.n_parts == 1 ? *to + sum : sum;
    }
}

/* Where this block's part of its matrix goes. */
static __device__ __forceinline__ float *out_of(const struct matmul_args &a, const struct place &p)
{
    size_t n_outs = 0; /* of all matrices */
    size_t before = 0;

    if (a.n_parts == 1)
        return p.w.out;
#pragma unroll
    for (uint32_t m = 0; m < K_MATMUL_MAX; m++) {
        if (m >= a.n_mats)
            continue;
        if (a.w[m].first < p.w.first)
            before += a.w[m].n_out;
        n_outs += a.w[m].n_out;
    }
    return a.part_out + (blockIdx.z * n_outs + before) * a.n_rows;
}

template <uint32_t N>
static __device__ __forceinline__ void
put_tile(const struct matmul_args &a, const struct place &p,
         const float sums[shape<N>::OUT_TILES][shape<N>::ROW_TILES][4])
{
    using s = shape<N>;
    uint32_t warp = threadIdx.x / WARP;
    uint32_t g = threadIdx.x % WARP / 4;
    uint32_t t = threadIdx.x % 4;
    float *out = out_of(a, p);

#pragma unroll
    for (uint32_t i = 0; i < s::OUT_TILES; i++) {
        uint32_t o = p.first_out + warp % s::WARPS_OUT * s::OUT + i * 16 + g;

#pragma unroll
        for (uint32_t j = 0; j < s::ROW_TILES; j++) {
            uint32_t row = p.first_row + warp / s::WARPS_OUT * s::ROWS + j * 8 + 2 * t;

            put_sum(a, p, out, o, row, sums[i][j][0]);
            put_sum(a, p, out, o, row + 1, sums[i][j][1]);
            put_sum(a, p, out, o + 8, row, sums[i][j][2]);
            put_sum(a, p, out, o + 8, row + 1, sums[i][j][3]);
        }
    }
}

template <enum k_type T, uint32_t N, bool Aligned>
static __device__ __forceinline__ void run(const struct matmul_args &a, const struct place &p,
                                           float sums[shape<N>::OUT_TILES][shape<N>::ROW_TILES][4])
{
    struct layout l = layout_of<T>(a.n_in);
    uint32_t *weights = (uint32_t *)ptx_shared(); /* [2][TILE_OUT][STRIDE] */
    float *rows = (float *)ptx_shared() + 2 * TILE_OUT * STRIDE;
    struct patch<T> next;

    if (p.step >= p.end_step)
        return;
    load_weights<T>(p, l, p.step, &next);
    copy_rows<N, Aligned>(a, p, p.step, rows);
    for (uint32_t step = p.step; step < p.end_step; step++) {
        uint32_t buffer = (step - p.step) % 2;

        put_weights<T>(next, step, weights + buffer * TILE_OUT * STRIDE);
        ptx_cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < p.end_step) {
            load_weights<T>(p, l, step + 1, &next);
            copy_rows<N, Aligned>(a, p, step + 1, rows + (1 - buffer) * N * STRIDE);
        }
        multiply<N>(weights + buffer * TILE_OUT * STRIDE, rows + buffer * N * STRIDE, sums);
    }
}

/* blockIdx: rows, outputs, part */
template <enum k_type T, uint32_t N>
static __global__ __launch_bounds__(THREADS) void gemm(struct matmul_args a)
{
    struct place p = place_of(a, N);
    float sums[shape<N>::OUT_TILES][shape<N>::ROW_TILES][4] = {};

    if (traits<T>::BITS > 0 || a.n_in % 4 == 0)
        run<T, N, true>(a, p, sums);
    else
        run<T, N, false>(a, p, sums);
    put_tile<N>(a, p, sums);
}

/* out (+)= the sum of its parts.  blockIdx.y: the matrix */
static __global__ __launch_bounds__(ADD_THREADS) void add_parts(struct matmul_args a)
{
    struct matmul_matrix w = a.w[blockIdx.y];
    size_t n = (size_t)a.n_rows * w.n_out;
    size_t n_outs = 0;
    size_t before = 0;

    for (uint32_t m = 0; m < a.n_mats; m++) {
        before += m < blockIdx.y ? a.w[m].n_out : 0;
        n_outs += a.w[m].n_out;
    }
    for (size_t i = (size_t)blockIdx.x * ADD_THREADS + threadIdx.x; i < n;
         i += (size_t)gridDim.x * ADD_THREADS) {
        const float *part = a.part_out + before * a.n_rows + i;
        float sum = a.add ? w.out[i] : 0;

        for (uint32_t k = 0; k < a.n_parts; k++)
            sum += part[k * n_outs * a.n_rows];
        w.out[i] = sum;
    }
}

/* Pieces of the inputs such that about two blocks a multiprocessor have work. */
static uint32_t parts_of(const struct k_cuda *c, const struct matmul_args &a, uint32_t n_tiles)
{
    uint32_t n_steps = divide_up(a.n_in, TILE_IN);
    uint32_t n = 2 * c->n_sms / n_tiles;
    size_t bytes = 0; /* of one part */

    for (uint32_t m = 0; m < a.n_mats; m++)
        bytes += (size_t)a.n_rows * a.w[m].n_out * sizeof(float);
    n = n < n_steps / PART_STEPS_MIN ? n : n_steps / PART_STEPS_MIN;
    n = n < PARTS_MAX ? n : PARTS_MAX;
    if (n > c->scratch_bytes / bytes)
        n = (uint32_t)(c->scratch_bytes / bytes);
    return n < 2 ? 1 : divide_up(n_steps, divide_up(n_steps, n)); /* none is empty */
}

template <enum k_type T, uint32_t N>
static int launch_tiles(const struct k_cuda *c, struct matmul_args a, uint32_t n_outs)
{
    uint32_t n_rows = divide_up(a.n_rows, N);
    dim3 adders(divide_up(a.n_rows * a.w[0].n_out, 4 * ADD_THREADS), a.n_mats);
    int r;

    a.n_parts = parts_of(c, a, n_rows * n_outs);
    a.part_out = (float *)c->scratch;
    r = launch(c, gemm<T, N>, dim3(n_rows, n_outs, a.n_parts), THREADS, shape<N>::SHARED, a);
    if (r == 0 && a.n_parts > 1)
        r = launch(c, add_parts, adders, ADD_THREADS, 0, a);
    return r;
}

template <enum k_type T>
static int launch_rows(const struct k_cuda *c, const struct matmul_args &a, uint32_t n_outs)
{
    if (a.n_rows <= 16)
        return launch_tiles<T, 16>(c, a, n_outs);
    if (a.n_rows <= 32)
        return launch_tiles<T, 32>(c, a, n_outs);
    if (a.n_rows <= 64)
        return launch_tiles<T, 64>(c, a, n_outs);
    return launch_tiles<T, 128>(c, a, n_outs);
}

int gemm_launch(const struct k_cuda *c, enum k_type type, struct matmul_args a)
{
    int r = (int)cudaErrorInvalidValue;
    uint32_t n_outs = number_items(&a, TILE_OUT);

    for_type(type, [&](auto t) { r = launch_rows<decltype(t)::type>(c, a, n_outs); });
    return r;
}

int gemm_init(void)
{
    static constexpr enum k_type types[] = {K_F32,  K_F16,  K_BF16, K_Q4_0, K_Q4_1, K_Q5_0,
                                            K_Q5_1, K_Q8_0, K_Q4_K, K_Q5_K, K_Q6_K};
    int r = 0;

    for (enum k_type type : types)
        for_type(type, [&](auto t) {
            constexpr enum k_type T = decltype(t)::type;

            r = r ? r : allow_shared(gemm<T, 32>, shape<32>::SHARED);
            r = r ? r : allow_shared(gemm<T, 64>, shape<64>::SHARED);
            r = r ? r : allow_shared(gemm<T, 128>, shape<128>::SHARED);
        });
    return r;
}

/* Room for two tiles of the widest kind a multiprocessor, or what the rows need. */
size_t gemm_scratch_bytes(const struct k_cuda_shape *s)
{
    uint32_t n = s->rows_max < 128 ? divide_up(s->rows_max, 16) * 16 : 128;

    return (size_t)4 * s->n_sms * TILE_OUT * n * sizeof(float);
}
