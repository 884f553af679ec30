/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str;

/* UTF-8 by RFC 3629: no surrogates, nothing over U+10FFFF, no overlong forms. */

/* Decode one code point of s[0..len).  Returns its bytes (1..4); 0: invalid; -1: len ends in
 * the middle of what may still become a valid one. */
int utf8_decode(const char *s, size_t len, uint32_t *ret_cp);
/* Write cp (a valid scalar value) to out[4]; returns bytes. */
int utf8_encode(uint32_t cp, char *out);
bool utf8_valid(const char *s, size_t len);
/* Append s, with each maximal invalid part as one U+FFFD (Unicode's recommended practice). */
void utf8_add_lossy(struct str *out, const char *s, size_t len);
