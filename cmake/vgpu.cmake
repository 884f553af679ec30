# SPDX-License-Identifier: Apache-2.0
# The virtual GPU of tests/vgpu in CUDA's place: `vgpu` stands in for its runtime library, and
# kernels_cuda is kernels/cuda/*.cu built by the host's C++ compiler.  The product links the two as
# it would link the real ones.  Only with PENSTOCK_VGPU (presets vgpu, vgpu-asan), for tests.

enable_language(CXX ASM)
set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
set(CMAKE_CXX_STANDARD 17)
set(vgpu ${CMAKE_SOURCE_DIR}/tests/vgpu)

add_library(vgpu_flags INTERFACE)
target_include_directories(vgpu_flags BEFORE INTERFACE ${vgpu}/include)
target_include_directories(vgpu_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(vgpu_flags INTERFACE _GNU_SOURCE)
target_compile_options(vgpu_flags INTERFACE
    -g -fno-omit-frame-pointer -ffp-contract=off -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wvla
        -Wwrite-strings -Wformat=2 -Wundef -Wimplicit-fallthrough -Wno-unknown-pragmas -Werror>)
if(PENSTOCK_SANITIZE)
    target_compile_options(vgpu_flags INTERFACE
        -fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all)
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(switch ${vgpu}/switch_x86_64.S)
else()
    set(switch ${vgpu}/switch_aarch64.S)
endif()
add_library(vgpu STATIC ${vgpu}/block.cc ${vgpu}/device.cc ${vgpu}/graph.cc ${vgpu}/names.cc
    ${vgpu}/runtime.cc ${vgpu}/stream.cc ${switch})
target_compile_options(vgpu PRIVATE -O2) # every thread of every kernel goes through it
target_link_libraries(vgpu PRIVATE vgpu_flags PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(vgpu BEFORE INTERFACE ${vgpu}/include)
# The twins of NCCL and NVML are opened at run time: found by the path here, they call back into
# the program by the names exported here.  (Old tags: dlopen() as AddressSanitizer wraps it knows
# the path of the program, not of its caller.)
target_link_options(vgpu INTERFACE "LINKER:--export-dynamic-symbol=vgpu_*"
    "LINKER:-rpath,${CMAKE_BINARY_DIR}/tests/vgpu,--disable-new-dtags")
if(PENSTOCK_SANITIZE)
    target_link_options(vgpu INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()

# vgpu_kernels(name a.cu ...): a static library of kernels.
function(vgpu_kernels name)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    add_library(${name} STATIC ${ARGN})
    target_link_libraries(${name} PRIVATE vgpu_flags PUBLIC vgpu)
endfunction()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
if(cuda_sources)
    vgpu_kernels(kernels_cuda ${cuda_sources})
endif()
