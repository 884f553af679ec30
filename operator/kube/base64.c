/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/kube/base64.h"

#include <string.h>

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
    const char *at = c ? strchr(ALPHABET, c) : NULL;

    return at ? (int)(at - ALPHABET) : -1;
}

int base64_decode(const char *text, struct str *out, struct err *err)
{
    uint32_t bits = 0;
    unsigned n = 0, padding = 0;

    for (; *text; text++) {
        int v = value_of(*text);

        if (strchr(" \t\r\n", *text))
            continue;
        if (*text == '=')
            v = 0;
        if (v < 0 || (padding && *text != '=') || (*text == '=' && ++padding > 2))
            return err_set(err, ERR_INVALID, "not base64");
        bits = bits << 6 | (uint32_t)v;
        if (++n % 4)
            continue;
        str_addc(out, (char)(bits >> 16 & 0xff));
        if (padding < 2)
            str_addc(out, (char)(bits >> 8 & 0xff));
        if (padding < 1)
            str_addc(out, (char)(bits & 0xff));
        bits = 0;
    }
    return n % 4 ? err_set(err, ERR_INVALID, "not base64: cut short")
                 : str_check(out, "base64 text", err);
}

void base64_encode(const void *data, size_t len, struct str *out)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);

        str_addc(out, ALPHABET[bits >> 18]);
        str_addc(out, ALPHABET[bits >> 12 & 63]);
        str_addc(out, left > 1 ? ALPHABET[bits >> 6 & 63] : '=');
        str_addc(out, left > 2 ? ALPHABET[bits & 63] : '=');
    }
}
