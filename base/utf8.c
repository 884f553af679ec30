/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include "base/str.h"

/* The second byte decides about overlong forms, surrogates and the end of the range (RFC 3629,
 * section 4); the others are plain continuations. */
static void second_byte_range(unsigned char lead, unsigned char *min, unsigned char *max)
{
    *min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

int utf8_decode(const char *s, size_t len, uint32_t *ret_cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char min, max;
    uint32_t cp;
    int n;

    if (len == 0)
        return -1;
    if (p[0] < 0x80) {
        *ret_cp = p[0];
        return 1;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    cp = p[0] & (0xFFu >> (n + 1));
    second_byte_range(p[0], &min, &max);
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= len)
            return -1;
        if (p[i] < min || p[i] > max)
            return 0;
        cp = cp << 6 | (p[i] & 0x3Fu);
        min = 0x80;
        max = 0xBF;
    }
    *ret_cp = cp;
    return n;
}

int utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t len)
{
    uint32_t cp;

    for (size_t i = 0; i < len;) {
        int n = utf8_decode(s + i, len - i, &cp);

        if (n <= 0)
            return false;
        i += (size_t)n;
    }
    return true;
}

/* Length of the longest prefix of an invalid sequence that could have begun a valid one: what
 * Unicode calls the maximal subpart, at least one byte. */
static size_t maximal_subpart(const char *s, size_t len)
{
    size_t n = 1;
    uint32_t cp;

    while (n < len && n < 4 && utf8_decode(s, n, &cp) == -1 && utf8_decode(s, n + 1, &cp) == -1)
        n++;
    return n;
}

void utf8_add_lossy(struct str *out, const char *s, size_t len)
{
    uint32_t cp;

    for (size_t i = 0, from = 0; i <= len;) {
        int n = i < len ? utf8_decode(s + i, len - i, &cp) : 0;

        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        str_add(out, s + from, i - from);
        if (i == len)
            return;
        str_adds(out, "\xEF\xBF\xBD");
        i += maximal_subpart(s + i, len - i);
        from = i;
    }
}
