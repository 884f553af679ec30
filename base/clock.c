/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t system_mono_ns(const struct clock *c)
{
    struct timespec t;

    (void)c;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t system_wall_ms(const struct clock *c)
{
    struct timespec t;

    (void)c;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

const struct clock *clock_system(void)
{
    static const struct clock c = {system_mono_ns, system_wall_ms};

    return &c;
}

static uint64_t fake_mono_ns(const struct clock *c)
{
    return ((const struct clock_fake *)(const void *)c)->now_ns;
}

static uint64_t fake_wall_ms(const struct clock *c)
{
    const struct clock_fake *f = (const void *)c;

    return f->wall_base_ms + f->now_ns / 1000000;
}

void clock_fake_init(struct clock_fake *f, uint64_t wall_base_ms)
{
    *f = (struct clock_fake){.clock = {fake_mono_ns, fake_wall_ms}, .wall_base_ms = wall_base_ms};
}

void clock_fake_advance_ms(struct clock_fake *f, uint64_t ms)
{
    f->now_ns += ms * 1000000;
}

static void format_seconds(uint64_t wall_ms, struct tm *tm)
{
    time_t s = (time_t)(wall_ms / 1000);

    (void)gmtime_r(&s, tm);
}

void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_TEXT_BYTES])
{
    struct tm tm;

    format_seconds(wall_ms, &tm);
    (void)strftime(out, CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

void clock_rfc3339_micro(uint64_t wall_ms, char out[CLOCK_TEXT_BYTES])
{
    char seconds[CLOCK_TEXT_BYTES];
    struct tm tm;

    format_seconds(wall_ms, &tm);
    (void)strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, CLOCK_TEXT_BYTES, "%.19s.%03u000Z", seconds, (unsigned)(wall_ms % 1000));
}

int clock_parse_rfc3339(const char *text, uint64_t *ret_wall_ms)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    uint64_t ms = 0, scale = 100;
    time_t s;

    if (!rest)
        return -1;
    if (*rest == '.') {
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
            ms += (uint64_t)(*rest - '0') * scale;
    }
    if (strcmp(rest, "Z") != 0)
        return -1;
    s = timegm(&tm);
    if (s < 0)
        return -1;
    *ret_wall_ms = (uint64_t)s * 1000 + ms;
    return 0;
}
