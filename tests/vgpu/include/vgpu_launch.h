/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* C++ templates of the runtime API.  A launch copies the arguments, converted to the kernel's
 * parameter types, into a flat buffer: they travel to the device's process, and a captured graph
 * keeps them. */

#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned ax = 1, unsigned ay = 1, unsigned az = 1) : x(ax), y(ay), z(az)
    {
    }
};

struct cudaLaunchAttribute; /* clusters, dependent launches: not here */

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

namespace vgpu
{
enum { ARGS_MAX = 4096 }; /* bytes: CUDA's limit for every architecture */

/* One kernel's entry: unpacks 'args' and calls 'kernel'. */
typedef void (*entry_fn)(void (*kernel)(), const void *args);

cudaError_t launch(const cudaLaunchConfig_t *config, void (*kernel)(), entry_fn entry,
                   const void *args, size_t size);

template <class... P> void enter(void (*kernel)(), const void *args)
{
    std::apply(reinterpret_cast<void (*)(P...)>(kernel),
               *static_cast<const std::tuple<P...> *>(args));
}
} // namespace vgpu

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    typedef std::tuple<P...> pack;
    static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's arguments are plain data");
    static_assert(sizeof(pack) <= vgpu::ARGS_MAX, "a kernel takes 4096 bytes of arguments");
    alignas(16) unsigned char flat[sizeof(pack) ? sizeof(pack) : 1] = {};
    new (flat) pack(std::forward<A>(args)...);
    return vgpu::launch(config, reinterpret_cast<void (*)()>(kernel), vgpu::enter<P...>, flat,
                        sizeof(flat));
}

template <class T> cudaError_t cudaMalloc(T **ptr, size_t size)
{
    return cudaMalloc(reinterpret_cast<void **>(ptr), size);
}

template <class T> cudaError_t cudaMallocHost(T **ptr, size_t size)
{
    return cudaMallocHost(reinterpret_cast<void **>(ptr), size);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}

template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, void (*kernel)(P...))
{
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(kernel));
}
