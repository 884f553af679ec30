/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Time as an argument, so that tests can turn the hands.  Durations and deadlines use the
 * monotonic side; only timestamps that people or the API server see use the wall side. */
struct clock {
    uint64_t (*mono_ns)(const struct clock *c);
    uint64_t (*wall_ms)(const struct clock *c); /* since 1970-01-01 UTC */
};

const struct clock *clock_system(void);

static inline uint64_t clock_ns(const struct clock *c)
{
    return c->mono_ns(c);
}
static inline uint64_t clock_ms(const struct clock *c)
{
    return c->mono_ns(c) / 1000000;
}
static inline uint64_t clock_wall_ms(const struct clock *c)
{
    return c->wall_ms(c);
}

/* A clock that stands still until told.  Tests and simulators. */
struct clock_fake {
    struct clock clock;
    uint64_t now_ns;
    uint64_t wall_base_ms; /* wall time when now_ns is 0 */
};
void clock_fake_init(struct clock_fake *f, uint64_t wall_base_ms);
void clock_fake_advance_ms(struct clock_fake *f, uint64_t ms);

/* RFC 3339 in UTC.  "2026-08-22T10:00:00Z" and with microseconds "...00.000000Z" (MicroTime). */
enum { CLOCK_TEXT_BYTES = 32 };
void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_TEXT_BYTES]);
void clock_rfc3339_micro(uint64_t wall_ms, char out[CLOCK_TEXT_BYTES]);
/* Either form, to milliseconds; returns 0 or -1. */
int clock_parse_rfc3339(const char *text, uint64_t *ret_wall_ms);
