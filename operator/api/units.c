/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/api/units.h"

#include <math.h>
#include <string.h>

#include "base/str.h"

int parse_duration(const char *text, int64_t max_s, int64_t *ret_s, struct err *err)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'h', 3600}, {'m', 60}, {'s', 1}};
    const char *p = text;
    int64_t total = 0;
    size_t next_unit = 0;

    while (*p) {
        size_t n = strspn(p, "0123456789");
        char digits[12];
        int64_t value;

        if (n == 0 || n >= sizeof(digits))
            break;
        memcpy(digits, p, n);
        digits[n] = '\0';
        while (next_unit < 3 && units[next_unit].unit != p[n])
            next_unit++;
        if (next_unit == 3 || parse_i64(digits, 0, max_s, &value, err))
            break;
        total += value * units[next_unit++].seconds;
        p += n + 1;
    }
    if (*p || p == text)
        return err_set(err, ERR_INVALID, "\"%.40s\" is no duration; write it like 90s, 5m or 1h30m",
                       text);
    if (total > max_s)
        return err_set(err, ERR_INVALID, "\"%.40s\" is too long, at most %llds", text,
                       (long long)max_s);
    *ret_s = total;
    return 0;
}

/* The factor of a suffix; 0: unknown. */
static double suffix_factor(const char *s)
{
    static const struct {
        const char *name;
        double factor;
    } table[] = {{"", 1},        {"n", 1e-9},    {"u", 1e-6},    {"m", 1e-3},
                 {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},
                 {"P", 1e15},    {"E", 1e18},    {"Ki", 0x1p10}, {"Mi", 0x1p20},
                 {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, s) == 0)
            return table[i].factor;
    }
    return 0;
}

/* Length of the number in front: sign, digits, point, and an exponent when digits follow it. */
static size_t number_length(const char *s)
{
    size_t n = strspn(s, "+-"), e;

    n += strspn(s + n, "0123456789.");
    if (s[n] != 'e' && s[n] != 'E')
        return n;
    e = n + 1;
    if (s[e] == '+' || s[e] == '-')
        e++;
    return s[e] >= '0' && s[e] <= '9' ? e + strspn(s + e, "0123456789") : n;
}

int parse_quantity(const char *text, double *ret, struct err *err)
{
    char number[40];
    size_t n = number_length(text);
    double factor = suffix_factor(text + n), value;

    if (n == 0 || n >= sizeof(number) || factor == 0)
        goto refuse;
    memcpy(number, text, n);
    number[n] = '\0';
    if (parse_f64(number[0] == '+' ? number + 1 : number, -1e30, 1e30, &value, err))
        goto refuse;
    *ret = value * factor;
    return 0;
refuse:
    return err_set(err, ERR_INVALID, "\"%.40s\" is no quantity; write it like 500m, 2 or 4Gi",
                   text);
}
