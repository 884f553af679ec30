/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.cu - norms, gates, angles, gathers: the ops that stream rows of activations.
 *
 * norm, norm_add   One block of 256 threads a row, thread i takes values i, i + 256, ...; a first
 *                  pass sums squares (warp shuffles, then one float a warp in shared memory), a
 *                  second scales.  Layer norm finds the mean in a pass of its own before, since
 *                  mean(x^2) - mean(x)^2 cancels.  All passes read the row; from the second on it
 *                  is in L1 or L2.  Bytes a row: norm 8 n (+ 4 n of weights, as much of bias,
 *                  which stay in L2), norm_add 12 n.
 * gate             One thread a value.  12 bytes a value.
 * gather           One thread a value.  8 bytes a value.
 * angles           One thread a frequency.  8 bytes written a value; sinf() and cosf() reduce any
 *                  argument (positions x 1 reach 2^17), so this is bound by instructions, and
 *                  nobody notices: a step computes it once for all layers.
 *
 * Flops: under 10 a value.  Bound: launch latency when decoding (rows fit in L2), memory bandwidth
 * when prefilling.  Shared memory: 2 x 128 bytes for the norms.
 *
 * occupancy: norm threads=256 shared=256 blocks=8
 * occupancy: norm_add threads=256 shared=256 blocks=8
 * occupancy: gate threads=256 shared=0 blocks=8
 * occupancy: gather threads=256 shared=0 blocks=8
 * occupancy: angles threads=256 shared=0 blocks=8
 */
#include <math.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };

/* What is taken off a row's values, and what they are then multiplied by. */
struct normer {
    float middle;
    float factor;
};

/* In every thread of the row's block. */
static __device__ __forceinline__ struct normer normer_of(enum k_norm_kind kind, const float *x,
                                                          uint32_t n, float eps)
{
    float *parts = (float *)ptx_shared(); /* two of them: no barrier between the sums */
    struct normer m = {0, 0};
    float sum = 0;

    if (kind == K_NORM_LAYER) {
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            sum += x[i];
        m.middle = block_sum(sum, parts) / (float)n;
        sum = 0;
    }
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        sum += (x[i] - m.middle) * (x[i] - m.middle);
    m.factor = 1 / sqrtf(block_sum(sum, parts + WARP) / (float)n + eps);
    return m;
}

static __global__ __launch_bounds__(THREADS) void norm(struct k_norm a)
{
    uint32_t row = a.row_ids ? a.row_ids[blockIdx.x] : blockIdx.x;
    const float *x = a.x + (size_t)row * a.n;
    float *out = a.out.f32 + (size_t)blockIdx.x * a.n;

    if (!a.weight) {
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            out[i] = x[i];
    } else {
        struct normer m = normer_of(a.kind, x, a.n, a.eps);

        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
            float y = (x[i] - m.middle) * m.factor * a.weight[i];

            out[i] = a.bias ? y + a.bias[i] : y;
        }
    }
}

static __global__ __launch_bounds__(THREADS) void norm_add(struct k_norm_add a)
{
    float *x = a.x + (size_t)blockIdx.x * a.n;
    const float *y = a.y + (size_t)blockIdx.x * a.n;

    if (!a.weight) {
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            x[i] += y[i];
    } else {
        struct normer m = normer_of(a.kind, y, a.n, a.eps);

        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            if (a.bias)
                x[i] += (y[i] - m.middle) * m.factor * a.weight[i] + a.bias[i];
            else
                x[i] += (y[i] - m.middle) * m.factor * a.weight[i];
    }
}

static __device__ __forceinline__ float gated(enum k_gate_kind kind, float g)
{
    if (kind == K_GATE_SILU)
        return g / (1 + expf(-g));
    return 0.5F * g * (1 + tanhf(0.7978845608F * (g + 0.044715F * g * g * g)));
}

static __global__ __launch_bounds__(THREADS) void gate(struct k_gate a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < (size_t)a.n_rows * a.n)
        a.out.f32[i] = gated(a.kind, a.gate[i]) * a.up[i];
}

static __global__ __launch_bounds__(THREADS) void gather(struct k_gather a)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    size_t row = i / a.n;
    uint32_t column = (uint32_t)(i % a.n);
    uint32_t part = column / a.n_part;
    uint32_t width = min(a.n_part, a.n - part * a.n_part);

    if (row < a.n_rows)
        a.out[i] = a.parts[(size_t)part * a.n_rows * a.n_part + row * width + column % a.n_part];
}

static __global__ __launch_bounds__(THREADS) void angles(struct k_angles a)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t row = i / a.n_freqs;
    uint32_t f = i % a.n_freqs;

    if (row < a.n_rows) {
        float *out = a.out + (size_t)row * 2 * a.n_freqs;
        float angle = (float)a.positions[row] * a.freqs[f];

        out[f] = cosf(angle);
        out[a.n_freqs + f] = sinf(angle);
    }
}

extern "C" int k_cuda_norm(const struct k_cuda *c, const struct k_norm *a)
{
    return launch(c, norm, dim3(a->n_rows), THREADS, 2 * WARP * sizeof(float), *a);
}

extern "C" int k_cuda_norm_add(const struct k_cuda *c, const struct k_norm_add *a)
{
    return launch(c, norm_add, dim3(a->n_rows), THREADS, 2 * WARP * sizeof(float), *a);
}

/* Blocks for one thread a value. */
static dim3 blocks_of(uint32_t n_rows, uint32_t n)
{
    return dim3((uint32_t)(((size_t)n_rows * n + THREADS - 1) / THREADS));
}

extern "C" int k_cuda_gate(const struct k_cuda *c, const struct k_gate *a)
{
    return launch(c, gate, blocks_of(a->n_rows, a->n), THREADS, 0, *a);
}

extern "C" int k_cuda_gather(const struct k_cuda *c, const struct k_gather *a)
{
    return launch(c, gather, blocks_of(a->n_rows, a->n), THREADS, 0, *a);
}

extern "C" int k_cuda_angles(const struct k_cuda *c, const struct k_angles *a)
{
    return launch(c, angles, blocks_of(a->n_rows, a->n_freqs), THREADS, 0, *a);
}
