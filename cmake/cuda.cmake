# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/*.cu into the library kernels_cuda, by a CUDA 13 compiler that needs neither a GPU
# nor a driver.  The project itself stays C: each file is a custom command, so that a build without
# PENSTOCK_CUDA never asks for such a compiler.
#
# Code for sm_80 (A100), sm_90 (H100, H200) and sm_100 (B200), and PTX of the last for what comes
# after.  The runtime library is linked statically; what remains is the driver, at run time.  What
# ptxas says of each kernel stays beside its object as NAME.ptxas for tests/cuda/test_ptxas.py.

set(PENSTOCK_CUDA_ROOT "" CACHE PATH "CUDA toolkit; empty: what scripts/cuda.sh finds or gets")
set(PENSTOCK_CUDA_HOST g++ CACHE STRING "C++ compiler behind nvcc")

if(NOT PENSTOCK_CUDA_ROOT)
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/cuda.sh OUTPUT_VARIABLE root
        OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(PENSTOCK_CUDA_ROOT ${root} CACHE PATH "" FORCE)
endif()
find_program(PENSTOCK_NVCC nvcc PATHS ${PENSTOCK_CUDA_ROOT}/bin NO_DEFAULT_PATH REQUIRED)
find_library(PENSTOCK_CUDART cudart_static PATHS ${PENSTOCK_CUDA_ROOT} NO_DEFAULT_PATH REQUIRED
    PATH_SUFFIXES lib lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib)

set(cuda_flags -std=c++17 -O3 -I${CMAKE_SOURCE_DIR} -ccbin ${PENSTOCK_CUDA_HOST}
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -gencode arch=compute_100,code=[sm_100,compute_100]
    -Werror all-warnings
    --compress-mode=size # a fifth of the size; drivers from 580 on, which CUDA 13 needs anyway, unpack it
    -Xcompiler=-fPIC,-fno-exceptions,-fno-rtti,-fstack-protector-strong,-Wall,-Wextra
    -Xcompiler=-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
    -Xptxas=-v)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels/cuda)
set(cuda_objects)
foreach(source ${cuda_sources})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/kernels/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
        BYPRODUCTS ${CMAKE_BINARY_DIR}/kernels/cuda/${name}.ptxas
        COMMAND ${CMAKE_SOURCE_DIR}/scripts/nvcc.sh
            ${CMAKE_BINARY_DIR}/kernels/cuda/${name}.ptxas
            ${PENSTOCK_NVCC} ${cuda_flags} -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} ${CMAKE_SOURCE_DIR}/scripts/nvcc.sh
        DEPFILE ${object}.d COMMENT "Compiling ${name}.cu" VERBATIM)
    list(APPEND cuda_objects ${object})
endforeach()

if(cuda_objects)
    add_library(kernels_cuda STATIC ${cuda_objects})
    set_target_properties(kernels_cuda PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(kernels_cuda SYSTEM INTERFACE ${PENSTOCK_CUDA_ROOT}/include)
    # supc++ (an archive): the guards of the compiler's own static variables; not all of libstdc++
    target_link_libraries(kernels_cuda INTERFACE ${PENSTOCK_CUDART} supc++ Threads::Threads
        ${CMAKE_DL_LIBS} rt)
endif()
