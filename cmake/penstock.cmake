# SPDX-License-Identifier: Apache-2.0
# What every target shares: language level, warnings as errors, hardening, sanitizers, and two
# functions that keep the folder lists short.

option(PENSTOCK_TESTS "build the tests" ON)
option(PENSTOCK_FUZZ "build the fuzz targets (clang)" OFF)
option(PENSTOCK_CUDA "build the CUDA kernels (cmake/cuda.cmake)" OFF)
option(PENSTOCK_VGPU "CUDA sources on the virtual GPU of tests/vgpu (cmake/vgpu.cmake)" OFF)
set(PENSTOCK_SANITIZE "" CACHE STRING "address,undefined or thread; empty for none")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Compiled files are kept outside the tree, so that a fresh clone builds in seconds once the cache
# is warm.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    set(cache "$ENV{PENSTOCK_CACHE}")
    if(NOT cache)
        set(cache "$ENV{HOME}/.cache/penstock")
    endif()
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DIR=${cache}/ccache
        CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G ${CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
foreach(lib libcurl libmicrohttpd libcjson yaml-0.1 libcrypto libssl gnutls libpcre2-8)
    string(REGEX REPLACE "[^a-zA-Z0-9]" "_" id ${lib})
    pkg_check_modules(${id} REQUIRED IMPORTED_TARGET ${lib})
endforeach()
if(PENSTOCK_TESTS)
    pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
endif()

add_library(penstock_flags INTERFACE)
target_compile_definitions(penstock_flags INTERFACE _GNU_SOURCE
    PENSTOCK_VERSION="${PROJECT_VERSION}")
target_include_directories(penstock_flags INTERFACE ${CMAKE_SOURCE_DIR})
# -ffp-contract=off: a multiply and an add stay two roundings unless a kernel says fma, so that
# results do not depend on the optimiser.
target_compile_options(penstock_flags INTERFACE
    -g -fno-omit-frame-pointer -fstack-protector-strong -ffp-contract=off
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -fno-common
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wwrite-strings -Wformat=2 -Wundef -Wimplicit-fallthrough -Werror)
# gcc warns where snprintf() may cut a text; cutting a message to a fixed size is what we ask of it.
target_compile_options(penstock_flags INTERFACE
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
target_link_libraries(penstock_flags INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})

if(PENSTOCK_SANITIZE)
    target_compile_options(penstock_flags INTERFACE
        -fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
    target_compile_definitions(penstock_flags INTERFACE PENSTOCK_SANITIZED=1)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(penstock_flags INTERFACE
        -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-clash-protection -fcf-protection)
    target_link_options(penstock_flags INTERFACE -pie -Wl,-z,relro,-z,now)
endif()

if(PENSTOCK_FUZZ)
    # coverage feedback from the code under test, not only from the target's own file
    target_compile_options(penstock_flags INTERFACE -fsanitize=fuzzer-no-link
        -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(penstock_flags INTERFACE -fprofile-instr-generate)
endif()

# penstock_library(name SOURCES a.c ... DEPS lib ...): a static library of one folder.
function(penstock_library name)
    cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
    add_library(${name} STATIC ${A_SOURCES})
    target_link_libraries(${name} PUBLIC penstock_flags ${A_DEPS})
endfunction()

# penstock_test(name SOURCES a.c ... DEPS lib ...): one cmocka program, one ctest entry.
function(penstock_test name)
    cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
    add_executable(${name} ${A_SOURCES})
    target_link_libraries(${name} PRIVATE penstock_flags ${A_DEPS} PkgConfig::cmocka)
    target_compile_definitions(${name} PRIVATE TEST_DATA_DIR="tests")
    add_test(NAME ${name} COMMAND ${name})
    if(NOT A_TIMEOUT)
        set(A_TIMEOUT 120)
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
        ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1;TSAN_OPTIONS=halt_on_error=1")
endfunction()
