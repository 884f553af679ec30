/* SPDX-License-Identifier: Apache-2.0
 *
 * url.c - a URL taken apart, strictly (RFC 3986, less what no model source needs).
 *
 * Two readers that disagree about one URL are a security hole, so whatever has two readings is
 * refused rather than repaired.
 */
#include "base/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <string.h>

#include "base/str.h"

static int check_bytes(const char *text, struct err *err)
{
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (c <= 0x20 || c >= 0x7F || strchr("\\\"<>^`{|}", c))
            return err_set(err, ERR_INVALID, "URL has byte 0x%02x; percent-encode it", c);
        if (c == '%' && !(isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2])))
            return err_set(err, ERR_INVALID, "URL has '%%' without two hexadecimal digits");
        if (c == '#')
            return err_set(err, ERR_INVALID, "URL has a fragment; leave out '#' and what follows");
    }
    return 0;
}

static int parse_scheme(const char **text, struct url *u, struct err *err)
{
    const char *sep = strstr(*text, "://");
    size_t n = sep ? (size_t)(sep - *text) : 0;

    if (n == 0 || n >= sizeof(u->scheme))
        return err_set(err, ERR_INVALID, "'%.80s' is no URL: expected scheme://host/path", *text);
    for (size_t i = 0; i < n; i++) {
        int c = tolower((unsigned char)(*text)[i]);

        if (!islower(c) && !(i && (isdigit(c) || c == '+' || c == '-' || c == '.')))
            return err_set(err, ERR_INVALID, "'%.80s' has a bad scheme", *text);
        u->scheme[i] = (char)c;
    }
    *text = sep + 3;
    return 0;
}

static bool host_byte_ok(char c, bool v6)
{
    if (v6)
        return isxdigit((unsigned char)c) || c == ':' || c == '.';
    return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_';
}

static int copy_host(const char *from, size_t n, bool v6, struct url *u, struct err *err)
{
    if (n == 0 || n >= sizeof(u->host))
        return err_set(err, ERR_INVALID, "URL has %s host", n ? "too long a" : "no");
    for (size_t i = 0; i < n; i++) {
        if (!host_byte_ok(from[i], v6))
            return err_set(err, ERR_INVALID, "URL host has byte '%c'", from[i]);
        u->host[i] = (char)tolower((unsigned char)from[i]);
    }
    return 0;
}

static int parse_authority(const char *text, size_t n, struct url *u, struct err *err)
{
    const char *end = text + n, *host_end;
    bool v6 = n && text[0] == '[';
    uint64_t port = 0;
    char digits[8];
    int r;

    if (memchr(text, '@', n))
        return err_set(err, ERR_INVALID, "URL carries user information; use a token instead");
    if (v6)
        text++;
    host_end = memchr(text, v6 ? ']' : ':', (size_t)(end - text));
    if (!host_end && v6)
        return err_set(err, ERR_INVALID, "URL has '[' without ']'");
    if (!host_end)
        host_end = end;
    r = copy_host(text, (size_t)(host_end - text), v6, u, err);
    if (r)
        return r;
    if (v6)
        host_end++;
    if (host_end == end)
        return 0;
    n = (size_t)(end - host_end) - 1;
    if (*host_end != ':' || n == 0 || n >= sizeof(digits))
        return err_set(err, ERR_INVALID, "URL has a bad port");
    memcpy(digits, host_end + 1, n);
    digits[n] = '\0';
    r = parse_u64(digits, 1, 65535, &port, err);
    u->port = (uint16_t)port;
    return r ? err_wrap(err, "URL port") : 0;
}

int url_parse(const char *text, struct url *ret, struct err *err)
{
    struct url u = {0};
    size_t n, path_len;
    int r;

    if (strlen(text) >= URL_BYTES_MAX)
        return err_set(err, ERR_INVALID, "URL of over %d bytes", URL_BYTES_MAX - 1);
    r = check_bytes(text, err);
    if (r == 0)
        r = parse_scheme(&text, &u, err);
    if (r)
        return r;
    n = strcspn(text, "/?");
    r = parse_authority(text, n, &u, err);
    if (r)
        return r;
    text += n;
    path_len = strcspn(text, "?");
    memcpy(u.path, text, path_len);
    if (path_len == 0)
        u.path[0] = '/';
    if (text[path_len] == '?')
        memcpy(u.query, text + path_len + 1, strlen(text + path_len + 1));
    *ret = u;
    return 0;
}

static bool v4_is_private(uint32_t a) /* host order */
{
    static const struct {
        uint32_t net;
        unsigned bits;
    } nets[] = {
            {0x00000000, 8},  /* "this" network */
            {0x0A000000, 8},  /* 10/8 */
            {0x64400000, 10}, /* carrier-grade NAT */
            {0x7F000000, 8},  /* loopback */
            {0xA9FE0000, 16}, /* link-local, the clouds' metadata services */
            {0xAC100000, 12}, /* 172.16/12 */
            {0xC0000000, 24}, /* protocol assignments */
            {0xC0A80000, 16}, /* 192.168/16 */
            {0xC6120000, 15}, /* benchmarking */
            {0xE0000000, 3},  /* multicast, reserved, broadcast */
    };

    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++)
        if ((a ^ nets[i].net) >> (32 - nets[i].bits) == 0)
            return true;
    return false;
}

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool v6_is_private(const struct in6_addr *a)
{
    static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};
    const uint8_t *b = a->s6_addr;

    if (IN6_IS_ADDR_V4MAPPED(a) || IN6_IS_ADDR_V4COMPAT(a) || memcmp(b, nat64, 12) == 0)
        return v4_is_private(load_be32(b + 12));
    if (b[0] == 0x20 && b[1] == 0x02) /* 6to4 carries an IPv4 address */
        return v4_is_private(load_be32(b + 2));
    return IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_LINKLOCAL(a) ||
           IN6_IS_ADDR_SITELOCAL(a) || IN6_IS_ADDR_MULTICAST(a) || (b[0] & 0xFE) == 0xFC;
}

bool url_address_is_private(const void *sockaddr_in_or_in6)
{
    const struct sockaddr *sa = sockaddr_in_or_in6;

    if (sa->sa_family == AF_INET)
        return v4_is_private(
                ntohl(((const struct sockaddr_in *)sockaddr_in_or_in6)->sin_addr.s_addr));
    if (sa->sa_family == AF_INET6)
        return v6_is_private(&((const struct sockaddr_in6 *)sockaddr_in_or_in6)->sin6_addr);
    return true;
}
