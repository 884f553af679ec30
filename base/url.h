/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A URL taken apart, strictly: scheme://[userinfo@]host[:port][/path][?query].  Refused: control
 * bytes and spaces, a backslash, user information, an empty host, a port out of range, a fragment,
 * over URL_BYTES_MAX bytes. Percent escapes are checked, not decoded. */
enum { URL_BYTES_MAX = 2048 };

struct url {
    char scheme[16];           /* lower case */
    char host[256];            /* lower case; IPv6 without brackets */
    uint16_t port;             /* 0: the scheme's own */
    char path[URL_BYTES_MAX];  /* "/" at least */
    char query[URL_BYTES_MAX]; /* without '?'; "" if none */
};

int url_parse(const char *text, struct url *ret, struct err *err) MUST_CHECK;
/* A name, or an IPv4/IPv6 literal, that must not be fetched unless allowed: loopback, link-local,
 * private, carrier-grade NAT, multicast, unspecified, v4-mapped forms of them. */
bool url_address_is_private(const void *sockaddr_in_or_in6);
