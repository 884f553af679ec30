/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a kernel may name.  A CUDA thread is a fiber of ../block.cc; everything that threads do
 * together goes through two calls: vgpu::sync_block() and vgpu::collective().
 *
 * A collective is one warp operation over the lanes of a mask.  Each lane brings a slot (input and
 * room for the result, on its own stack); the last one to arrive computes for all.  Lanes that
 * bring another operation, another mask or come from another source line, a lane that has ended
 * or does not name itself: each is reported and ends the run.  CUDA allows the same shuffle from
 * two source lines; here that is taken for the divergence which it nearly always is. */

#include <math.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

/* of the running fiber */
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

namespace vgpu
{
extern __thread unsigned lane_of_thread;
extern __thread unsigned char *shared_memory; /* dynamic: 128-byte aligned, exact in size */

constexpr unsigned WARP = 32, ALL_LANES = 0xffffffffu;

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sync_block(int line);
void pass_warp_barrier(); /* the running thread has */
void maybe_yield();       /* at atomics and fences: other threads may run in between */

/* One lane's arrival: the slots of all lanes when it is the last, else NULL. */
void *const *collective_arrive(unsigned mask, const char *op, int line, void *slot);
void collective_leave(unsigned mask, bool last); /* returns when the result is there */

template <class Slot, class Compute>
void collective(unsigned mask, const char *op, int line, Slot &mine, Compute compute)
{
    void *const *slots = collective_arrive(mask, op, line, &mine);
    if (slots)
        compute([slots](unsigned lane) -> Slot & { return *static_cast<Slot *>(slots[lane]); });
    collective_leave(mask, slots != nullptr);
}

inline bool has(unsigned mask, unsigned lane)
{
    return (mask >> lane & 1) != 0;
}

/* Shuffle: 'source' is the lane that each lane wants to read from; out of its segment of 'width'
 * lanes (kinds other than idx) it keeps its own value. */
template <class T>
T shuffle(const char *op, unsigned mask, T value, int source, int width, bool wraps, int line)
{
    struct slot {
        T in, out;
        unsigned from;
    } mine{};
    if (width < 1 || width > 32 || (width & (width - 1)))
        fail("%s: width %d", op, width);
    int lane = int(lane_of_thread), segment = lane & -width;
    if (wraps)
        source = segment | (source & (width - 1));
    mine.in = value;
    mine.from = unsigned(source < segment || source >= segment + width ? lane : source);
    collective(mask, op, line, mine, [&](auto slot) {
        for (unsigned i = 0; i < WARP; i++) {
            if (!has(mask, i))
                continue;
            if (!has(mask, slot(i).from))
                fail("%s: lane %u reads from lane %u, which takes no part", op, i, slot(i).from);
            slot(i).out = slot(slot(i).from).in;
        }
    });
    return mine.out;
}

inline unsigned vote(const char *op, unsigned mask, int predicate, int line)
{
    struct slot {
        bool in;
        unsigned out;
    } mine{predicate != 0, 0};
    collective(mask, op, line, mine, [&](auto slot) {
        unsigned all = 0;
        for (unsigned i = 0; i < WARP; i++)
            if (has(mask, i) && slot(i).in)
                all |= 1u << i;
        for (unsigned i = 0; i < WARP; i++)
            if (has(mask, i))
                slot(i).out = all;
    });
    return mine.out;
}

template <class To, class From> To bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

template <class T, class F> T read_modify_write(T *p, F change)
{
    maybe_yield();
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, change(old), true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
        ;
    return old;
}
} // namespace vgpu

inline void __syncthreads(int line = __builtin_LINE())
{
    vgpu::sync_block(line);
}

inline void __syncwarp(unsigned mask = vgpu::ALL_LANES, int line = __builtin_LINE())
{
    char nothing = 0;
    vgpu::collective(mask, "__syncwarp", line, nothing, [](auto) {});
    vgpu::pass_warp_barrier();
}

template <class T>
T __shfl_sync(unsigned mask, T v, int lane, int width = 32, int line = __builtin_LINE())
{
    return vgpu::shuffle("__shfl_sync", mask, v, lane, width, true, line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, int line = __builtin_LINE())
{
    return vgpu::shuffle("__shfl_xor_sync", mask, v, int(vgpu::lane_of_thread) ^ bits, width, false,
                         line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return vgpu::shuffle("__shfl_down_sync", mask, v, int(vgpu::lane_of_thread + by), width, false,
                         line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return vgpu::shuffle("__shfl_up_sync", mask, v, int(vgpu::lane_of_thread) - int(by), width,
                         false, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return vgpu::vote("__ballot_sync", mask, predicate, line);
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return vgpu::vote("__any_sync", mask, predicate, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return vgpu::vote("__all_sync", mask, predicate, line) == mask;
}

inline int atomicAdd(int *p, int v)
{
    return vgpu::read_modify_write(p, [=](int old) { return int(unsigned(old) + unsigned(v)); });
}

inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    return vgpu::read_modify_write(p, [=](unsigned old) { return old + v; });
}

inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
    return vgpu::read_modify_write(p, [=](unsigned long long old) { return old + v; });
}

inline float atomicAdd(float *p, float v)
{
    unsigned old = vgpu::read_modify_write(reinterpret_cast<unsigned *>(p), [=](unsigned o) {
        return vgpu::bits<unsigned>(vgpu::bits<float>(o) + v);
    });
    return vgpu::bits<float>(old);
}

template <class T> T atomicMax(T *p, std::common_type_t<T> v)
{
    return vgpu::read_modify_write(p, [=](T old) { return old < v ? v : old; });
}

template <class T> T atomicMin(T *p, std::common_type_t<T> v)
{
    return vgpu::read_modify_write(p, [=](T old) { return v < old ? v : old; });
}

template <class T> T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> v)
{
    return vgpu::read_modify_write(p, [=](T old) { return old == expected ? v : old; });
}

template <class T> T atomicExch(T *p, std::common_type_t<T> v)
{
    return vgpu::read_modify_write(p, [=](T) { return v; });
}

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    vgpu::maybe_yield();
}

inline float __expf(float x)
{
    return expf(x);
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

inline unsigned __float_as_uint(float x)
{
    return vgpu::bits<unsigned>(x);
}

inline float __uint_as_float(unsigned x)
{
    return vgpu::bits<float>(x);
}

inline int __float_as_int(float x)
{
    return vgpu::bits<int>(x);
}

inline float __int_as_float(int x)
{
    return vgpu::bits<float>(x);
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

inline int __clz(int x)
{
    return x ? __builtin_clz(unsigned(x)) : 32;
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return unsigned((uint64_t(a) * b) >> 32);
}

/* CUDA's min and max take mixed integers as C's operators do: unsigned wins. */
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    typedef std::common_type_t<A, B> T;
    return T(b) < T(a) ? T(b) : T(a);
}

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    typedef std::common_type_t<A, B> T;
    return T(a) < T(b) ? T(b) : T(a);
}

constexpr uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

constexpr float2 make_float2(float x, float y)
{
    return {x, y};
}

constexpr float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
