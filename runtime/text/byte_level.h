/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct str;

/* The printable alphabet in which byte-level vocabularies are written (GPT-2): 188 bytes stand for
 * themselves as code points, the other 68 are U+0100 and on, in ascending order.
 * Appends the bytes that s[0..len) spells; false, and nothing appended, when s is not in the
 * alphabet. */
bool byte_level_decode(const char *s, size_t len, struct str *out);
