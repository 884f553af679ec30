/* SPDX-License-Identifier: Apache-2.0 */

/* Any text as a URL: what is accepted, written out again, reads as the same URL. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assertion.h"
#include "base/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void read_again(const struct url *u)
{
    bool v6 = strchr(u->host, ':') != NULL;
    char text[3 * URL_BYTES_MAX], port[8] = "";
    struct url again;
    struct err err;

    if (u->port)
        (void)snprintf(port, sizeof(port), ":%u", u->port);
    (void)snprintf(text, sizeof(text), "%s://%s%s%s%s%s%s%s", u->scheme, v6 ? "[" : "", u->host,
                   v6 ? "]" : "", port, u->path, u->query[0] ? "?" : "", u->query);
    if (strlen(text) >= URL_BYTES_MAX)
        return;
    ASSERT(url_parse(text, &again, &err) == 0);
    ASSERT(strcmp(again.host, u->host) == 0 && again.port == u->port);
    ASSERT(strcmp(again.path, u->path) == 0 && strcmp(again.query, u->query) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char text[URL_BYTES_MAX + 100];
    struct sockaddr_storage sa = {0};
    struct url u;
    struct err err;
    size_t n = len < sizeof(text) - 1 ? len : sizeof(text) - 1;

    memcpy(text, data, n);
    text[n] = '\0';
    if (url_parse(text, &u, &err) == 0) {
        ASSERT(u.host[0] && u.path[0] == '/');
        ASSERT(!strpbrk(u.host, "/@?#\\ %"));
        read_again(&u);
    }
    memcpy(&sa, data, len < sizeof(sa) ? len : sizeof(sa));
    sa.ss_family = len % 2 ? AF_INET : AF_INET6;
    (void)url_address_is_private(&sa);
    return 0;
}
