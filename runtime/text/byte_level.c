/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/text/byte_level.h"

#include <stdint.h>

#include "base/str.h"
#include "base/utf8.h"

static bool stands_for_itself(uint32_t cp)
{
    return (cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255);
}

/* -1: not a letter of the alphabet. */
static int byte_of(uint32_t cp)
{
    /* the bytes that do not stand for themselves: 0..32, 127..160, 173 */
    uint32_t n = cp - 0x100;

    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (n <= 32)
        return (int)n;
    if (n <= 32 + 34)
        return (int)(n - 33 + 127);
    return n == 67 ? 173 : -1;
}

bool byte_level_decode(const char *s, size_t len, struct str *out)
{
    size_t before = out->len;

    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = utf8_decode(s + i, len - i, &cp);
        int byte = n > 0 ? byte_of(cp) : -1;

        if (byte < 0) {
            out->len = before;
            return false;
        }
        str_addc(out, (char)byte);
        i += (size_t)n;
    }
    return true;
}
