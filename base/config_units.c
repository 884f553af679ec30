/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config_units.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

struct unit {
    const char *name;
    double factor;
};

static const struct unit byte_units[] = {
        {"", 1},         {"B", 1},       {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
        {"TiB", 0x1p40}, {"Ki", 0x1p10}, {"Mi", 0x1p20},  {"Gi", 0x1p30},  {"Ti", 0x1p40},
        {"K", 0x1p10},   {"M", 0x1p20},  {"G", 0x1p30},   {"T", 0x1p40},   {"kB", 1e3},
        {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},     {"TB", 1e12},
};
static const struct unit time_units[] = {
        {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000},
};

static int parse_scaled(const char *text, const struct unit *units, size_t n_units,
                        const char *example, int64_t *ret, struct err *err)
{
    size_t len = strspn(text, "0123456789.");
    struct err ignored;
    char digits[32];
    double v;

    if (len > 0 && len < sizeof(digits)) {
        memcpy(digits, text, len);
        digits[len] = '\0';
        for (size_t i = 0; i < n_units; i++) {
            if (strcmp(text + len, units[i].name) != 0 ||
                parse_f64(digits, 0, 9e15 / units[i].factor, &v, &ignored) != 0)
                continue;
            *ret = (int64_t)(v * units[i].factor + 0.5);
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "'%.40s' is not understood; write it like %s", text, example);
}

int config_parse_bytes(const char *text, int64_t *ret, struct err *err)
{
    return parse_scaled(text, byte_units, sizeof(byte_units) / sizeof(byte_units[0]),
                        "512MiB or 2GiB", ret, err);
}

int config_parse_ms(const char *text, int64_t *ret, struct err *err)
{
    return parse_scaled(text, time_units, sizeof(time_units) / sizeof(time_units[0]),
                        "300ms, 10s or 5m", ret, err);
}

void config_add_bytes(struct str *out, int64_t bytes)
{
    static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;

    while (i < 4 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    str_addf(out, "%lld%s", (long long)bytes, names[i]);
}

void config_add_ms(struct str *out, int64_t ms)
{
    if (ms % 3600000 == 0 && ms)
        str_addf(out, "%lldh", (long long)(ms / 3600000));
    else if (ms % 60000 == 0 && ms)
        str_addf(out, "%lldm", (long long)(ms / 60000));
    else if (ms % 1000 == 0)
        str_addf(out, "%llds", (long long)(ms / 1000));
    else
        str_addf(out, "%lldms", (long long)ms);
}
