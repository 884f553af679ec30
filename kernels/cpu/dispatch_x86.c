/* SPDX-License-Identifier: Apache-2.0
 *
 * dispatch_x86.c - the backends of kernels/cpu that this x86-64 processor can run.
 *
 * All keep matrices in the same layout and give the same bits (tests/kernels); they differ in
 * speed only, so the choice is the fastest that CPUID allows.
 */
#include <cpuid.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/layout.h"
#include "kernels/ref/ref.h"

/* clang 14's __builtin_cpu_supports() does not know this one. */
static bool has_f16c(void)
{
    unsigned a;
    unsigned b;
    unsigned c = 0;
    unsigned d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

/* That the system saves the wide registers is part of what the builtin checks. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static bool has_nothing_special(void)
{
    return true;
}

static const struct k_ops avx512 = {
        .name = "cpu (avx512)",
        .wants_q = layout_wants_q,
        .packed_bytes = layout_packed_bytes,
        .pack = layout_pack,
        .embed = layout_embed,
        .norm = k_norm_avx2,
        .norm_add = k_norm_add_avx2,
        .matmul = k_matmul_avx512,
        .angles = k_ref_angles,
        .store = k_ref_store,
        .attend = k_attend_avx2,
        .gate = k_gate_avx2,
        .adjust = k_ref_adjust,
        .sample = k_ref_sample,
        .gather = k_ref_gather,
};

static const struct k_ops avx2 = {
        .name = "cpu (avx2)",
        .wants_q = layout_wants_q,
        .packed_bytes = layout_packed_bytes,
        .pack = layout_pack,
        .embed = layout_embed,
        .norm = k_norm_avx2,
        .norm_add = k_norm_add_avx2,
        .matmul = k_matmul_avx2,
        .angles = k_ref_angles,
        .store = k_ref_store,
        .attend = k_attend_avx2,
        .gate = k_gate_avx2,
        .adjust = k_ref_adjust,
        .sample = k_ref_sample,
        .gather = k_ref_gather,
};

const struct k_ops *k_cpu_ops(unsigned i)
{
    static const struct {
        bool (*can)(void);
        const struct k_ops *ops;
    } backends[] = {
            {has_avx512, &avx512}, {has_avx2, &avx2}, {has_nothing_special, &k_portable_ops}};

    for (size_t b = 0; b < sizeof(backends) / sizeof(backends[0]); b++)
        if (backends[b].can() && i-- == 0)
            return backends[b].ops;
    return NULL;
}
