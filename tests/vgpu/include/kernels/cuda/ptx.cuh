/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host twin of kernels/cuda/ptx.cuh: the same functions, computed by the virtual GPU.  Layouts
 * of fragments: PTX ISA, "Matrix fragments for mma" and "ldmatrix".  g = lane / 4, t = lane % 4.
 *
 * mma sums in order of k in float32: a GPU's order and rounding differ, so compare within a
 * tolerance.  tf32 operands lose their 13 low bits unrounded, as the hardware does it. */

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace vgpu
{
/* An address that must lie in the block's shared memory, all n bytes, aligned to n. */
void check_shared(const void *p, size_t n, const char *op);
/* One that must not, and be aligned to n. */
void check_global(const void *p, size_t n, const char *op);
/* Lane 'lane' of the running warp gives ldmatrix this row. */
void load_row(const void *row, unsigned lane);
void copy_async(void *shared, const void *global, bool valid);
void copy_async_commit();
void copy_async_wait(unsigned n_pending);

template <bool transposed> void load_matrices(uint32_t r[4], const void *row, int line)
{
    struct slot {
        const unsigned char *row;
        uint32_t *r;
    } mine{static_cast<const unsigned char *>(row), r};
    check_shared(row, 16, "ldmatrix");
    collective(ALL_LANES, transposed ? "ldmatrix.trans" : "ldmatrix", line, mine, [](auto slot) {
        for (unsigned lane = 0; lane < WARP; lane++)
            load_row(slot(lane).row, lane);
        for (unsigned m = 0; m < 4; m++) {
            uint16_t tile[8][8];
            for (unsigned i = 0; i < 8; i++)
                memcpy(tile[i], slot(8 * m + i).row, sizeof(tile[i]));
            for (unsigned lane = 0; lane < WARP; lane++) {
                unsigned g = lane / 4, t = lane % 4;
                uint32_t low = transposed ? tile[2 * t][g] : tile[g][2 * t];
                uint32_t high = transposed ? tile[2 * t + 1][g] : tile[g][2 * t + 1];
                slot(lane).r[m] = low | high << 16;
            }
        }
    });
}

/* m16n8kK with float32 accumulators; 'value'(register, half) decodes an operand.  A register
 * holds 'per' neighbours in k; registers of A go down 8 rows first, then half of k. */
template <unsigned K, unsigned per, unsigned n_b, class Value>
void mma(const char *op, float d[4], const uint32_t a[4], const uint32_t b[n_b], int line,
         Value value)
{
    struct slot {
        float *d;
        const uint32_t *a, *b;
    } mine{d, a, b};
    collective(ALL_LANES, op, line, mine, [&](auto slot) {
        float A[16][K], B[K][8];
        for (unsigned lane = 0; lane < WARP; lane++) {
            unsigned g = lane / 4, t = lane % 4;
            for (unsigned h = 0; h < per; h++) {
                for (unsigned r = 0; r < 4; r++)
                    A[g + 8 * (r & 1)][per * t + h + K / 2 * (r >> 1)] = value(slot(lane).a[r], h);
                for (unsigned r = 0; r < n_b; r++)
                    B[per * t + h + K / 2 * r][g] = value(slot(lane).b[r], h);
            }
        }
        for (unsigned lane = 0; lane < WARP; lane++)
            for (unsigned r = 0; r < 4; r++) {
                unsigned i = lane / 4 + 8 * (r >> 1), j = 2 * (lane % 4) + (r & 1);
                float sum = slot(lane).d[r];
                for (unsigned k = 0; k < K; k++)
                    sum += A[i][k] * B[k][j];
                slot(lane).d[r] = sum;
            }
    });
}
} // namespace vgpu

inline unsigned char *ptx_shared()
{
    return vgpu::shared_memory;
}

inline uint4 ptx_load_stream(const void *p)
{
    vgpu::check_global(p, 16, "ld.global.nc");
    return *static_cast<const uint4 *>(p);
}

inline void ptx_cp_async16(void *shared, const void *global, bool valid)
{
    vgpu::copy_async(shared, global, valid);
}

inline void ptx_cp_async_commit()
{
    vgpu::copy_async_commit();
}

template <int N> void ptx_cp_async_wait()
{
    vgpu::copy_async_wait(N);
}

inline void ptx_ldmatrix_x4(uint32_t r[4], const void *row, int line = __builtin_LINE())
{
    vgpu::load_matrices<false>(r, row, line);
}

inline void ptx_ldmatrix_x4_trans(uint32_t r[4], const void *row, int line = __builtin_LINE())
{
    vgpu::load_matrices<true>(r, row, line);
}

/* cvt.rna.tf32.f32: to nearest, ties away from zero */
inline uint32_t ptx_to_tf32(float f)
{
    uint32_t u = vgpu::bits<uint32_t>(f);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return u;
    return (u + 0x1000u) & ~0x1fffu;
}

inline void ptx_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2],
                         int line = __builtin_LINE())
{
    vgpu::mma<8, 1, 2>("mma.tf32", d, a, b, line,
                       [](uint32_t u, unsigned) { return vgpu::bits<float>(u & ~0x1fffu); });
}

inline void ptx_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2],
                        int line = __builtin_LINE())
{
    vgpu::mma<16, 2, 2>("mma.f16", d, a, b, line, [](uint32_t u, unsigned high) {
        return __half2float(__ushort_as_half((unsigned short)(u >> 16 * high)));
    });
}

inline void ptx_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                         int line = __builtin_LINE())
{
    vgpu::mma<16, 2, 2>("mma.bf16", d, a, b, line, [](uint32_t u, unsigned high) {
        return __bfloat162float(__ushort_as_bfloat16((unsigned short)(u >> 16 * high)));
    });
}
