/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kernels/cuda/packed.cuh"

/* A product as its kernels take it: matrices of one type, which multiply the same rows. */
struct matmul_matrix {
    const unsigned char *data; /* packed */
    float *out;                /* [n_rows][n_out] */
    uint32_t n_out;
    uint32_t first; /* its first item (quad or tile) in the grid */
};
struct matmul_args {
    const float *x; /* [n_rows][n_in] */
    uint32_t n_in;
    uint32_t n_rows;
    uint32_t n_mats;
    uint32_t n_parts; /* pieces of n_in; gemm: partial sums go to part_out if more than one */
    bool add;
    float *part_out; /* [part][matrix][n_rows][n_out] */
    struct matmul_matrix w[K_MATMUL_MAX];
};

/* The matrix that an item of the grid belongs to. */
__device__ __forceinline__ struct matmul_matrix matrix_of(const struct matmul_args &a,
                                                          uint32_t item)
{
    struct matmul_matrix w = a.w[0];

#pragma unroll
    for (uint32_t i = 1; i < K_MATMUL_MAX; i++)
        if (i < a.n_mats && item >= a.w[i].first)
            w = a.w[i];
    return w;
}

/* Four neighbouring activations; beyond the row's end they are zeros.  Aligned: n_in is a
 * multiple of 4. */
template <bool Aligned>
__device__ __forceinline__ float4 load_x(const float *row, uint32_t k, uint32_t n_in)
{
    float4 v = make_float4(0, 0, 0, 0);

    if constexpr (Aligned) {
        if (k < n_in)
            v = *(const float4 *)(row + k);
    } else {
        if (k < n_in)
            v.x = row[k];
        if (k + 1 < n_in)
            v.y = row[k + 1];
        if (k + 2 < n_in)
            v.z = row[k + 2];
        if (k + 3 < n_in)
            v.w = row[k + 3];
    }
    return v;
}

/* Number the items of n_mats matrices, 'rows' output rows an item; how many there are. */
static inline uint32_t number_items(struct matmul_args *a, uint32_t rows)
{
    uint32_t n = 0;

    for (uint32_t m = 0; m < a->n_mats; m++) {
        a->w[m].first = n;
        n += divide_up(a->w[m].n_out, rows);
    }
    return n;
}

/* At most K_CUDA_STREAM_ROWS rows (gemv.cu). */
int gemv_launch(const struct k_cuda *c, enum k_type type, struct matmul_args a);
/* Any number of rows (gemm.cu). */
int gemm_launch(const struct k_cuda *c, enum k_type type, struct matmul_args a);
int gemm_init(void);
size_t gemm_scratch_bytes(const struct k_cuda_shape *s);
