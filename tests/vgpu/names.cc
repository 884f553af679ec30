/* SPDX-License-Identifier: Apache-2.0
 *
 * names.cc - errors and kernels in words.
 *
 * A kernel's name comes from the program's own symbol table: dladdr() knows exported functions
 * only, and kernels are mostly static or in a namespace without a name.
 */
#include <cstdlib>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

namespace vgpu
{
namespace
{
struct error_text {
    cudaError_t code;
    const char *name, *text;
};

#define E(name, text)     \
    {                     \
        name, #name, text \
    }
const error_text ERRORS[] = {
        E(cudaSuccess, "no error"),
        E(cudaErrorInvalidValue, "invalid argument"),
        E(cudaErrorMemoryAllocation, "out of memory"),
        E(cudaErrorInitializationError, "initialization error"),
        E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
        E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
        E(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
        E(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
        E(cudaErrorInvalidDeviceFunction, "invalid device function"),
        E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
        E(cudaErrorInvalidDevice, "invalid device ordinal"),
        E(cudaErrorNoKernelImageForDevice,
          "no kernel image is available for execution on the device"),
        E(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
        E(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution"),
        E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
        E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
        E(cudaErrorNotReady, "device not ready"),
        E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
        E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
        E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
        E(cudaErrorAssert, "device-side assert triggered"),
        E(cudaErrorHardwareStackError, "hardware stack error"),
        E(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
        E(cudaErrorMisalignedAddress, "misaligned address"),
        E(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
        E(cudaErrorInvalidPc, "invalid program counter"),
        E(cudaErrorLaunchFailure, "unspecified launch failure"),
        E(cudaErrorNotPermitted, "operation not permitted"),
        E(cudaErrorNotSupported, "operation not supported"),
        E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
        E(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
        E(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
        E(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
        E(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
        E(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
        E(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a "
                                  "capturing stream"),
        E(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
        E(cudaErrorUnknown, "unknown error"),
};
#undef E

const error_text *find(cudaError_t code)
{
    for (const error_text &e : ERRORS)
        if (e.code == code)
            return &e;
    return nullptr;
}

/* Where the program itself was loaded: the first object that is told. */
int first_base(dl_phdr_info *info, size_t, void *ret)
{
    *static_cast<uintptr_t *>(ret) = info->dlpi_addr;
    return 1;
}

/* address -> mangled name of every function of the program */
std::map<uintptr_t, std::string> read_symbols()
{
    std::map<uintptr_t, std::string> symbols;
    struct stat info;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info))
        return symbols;
    void *map = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (map == MAP_FAILED)
        return symbols;
    auto image = static_cast<const char *>(map);
    auto header = reinterpret_cast<const Elf64_Ehdr *>(image);
    auto sections = reinterpret_cast<const Elf64_Shdr *>(image + header->e_shoff);
    uintptr_t base = 0;
    dl_iterate_phdr(first_base, &base);
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        auto table = reinterpret_cast<const Elf64_Sym *>(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof(*table); k++)
            if (ELF64_ST_TYPE(table[k].st_info) == STT_FUNC)
                symbols[base + table[k].st_value] = names + table[k].st_name;
    }
    munmap(map, size_t(info.st_size));
    return symbols;
}
} // namespace

std::string kernel_name(void (*kernel)())
{
    static const auto *symbols = new std::map<uintptr_t, std::string>(read_symbols());
    auto found = symbols->find(reinterpret_cast<uintptr_t>(kernel));
    if (found == symbols->end())
        return "(unnamed kernel)";
    int status = 0;
    char *plain = abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status);
    std::string name = plain ? plain : found->second;
    free(plain);
    size_t arguments = name.rfind('('); /* "void vgpu::k<3>(float*)" */
    if (arguments != std::string::npos && arguments > 0)
        name.resize(arguments);
    if (name.compare(0, 5, "void ") == 0)
        name.erase(0, 5);
    return name;
}
} // namespace vgpu

extern "C" const char *cudaGetErrorName(cudaError_t code)
{
    const auto *e = vgpu::find(code);
    return e ? e->name : "unrecognized error code";
}

extern "C" const char *cudaGetErrorString(cudaError_t code)
{
    const auto *e = vgpu::find(code);
    return e ? e->text : "unrecognized error code";
}
