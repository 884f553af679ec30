/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ASSERT stays on in release builds.  It is for our own bugs only: never for bytes
 * that came from a file, a socket, the API server or the device. */
#define ASSERT(x)                                  \
    do {                                           \
        if (__builtin_expect(!(x), 0))             \
            assert_failed(#x, __FILE__, __LINE__); \
    } while (0)

__attribute__((noreturn, cold)) void assert_failed(const char *expr, const char *file, int line);
