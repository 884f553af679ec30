/* SPDX-License-Identifier: Apache-2.0
 *
 * http_client.c - HTTP calls over libcurl.
 *
 * One easy handle a client keeps its connections alive between calls; each call resets the
 * handle's options and sets all of them, so nothing leaks from one call into the next.
 */
#include "base/http_client.h"

#include <ctype.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/assertion.h"
#include "base/http_call.h"
#include "base/mem.h"
#include "base/url.h"

enum {
    CONNECT_TIMEOUT_MS = 10000,
    IDLE_TIMEOUT_MS = 60000,
    REPLY_MAX_BYTES = 8 << 20,
    REDIRECTS_MAX = 5,
};

void http_client_global_init(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_reply_init(struct http_reply *r)
{
    *r = (struct http_reply){
            .content_length = -1, .range_start = -1, .range_total = -1, .retry_after_ms = -1};
}

void http_reply_release(struct http_reply *r)
{
    str_release(&r->body);
}

static bool copy_option(char **to, const char *from)
{
    *to = from ? mem_strdup(from) : NULL;
    return !from || *to;
}

int http_client_new(const struct http_client_options *o, struct http_client **ret, struct err *err)
{
    CLEANUP(http_client_freep) struct http_client *c = mem_calloc(1, sizeof(*c));

    if (!c)
        return err_set(err, ERR_NO_MEMORY, "HTTP client");
    c->connect_timeout_ms = o->connect_timeout_ms ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    c->idle_timeout_ms = o->idle_timeout_ms ? o->idle_timeout_ms : IDLE_TIMEOUT_MS;
    c->insecure = o->insecure_skip_verify;
    c->follow = o->follow_redirects;
    c->refuse_private = o->refuse_private;
    if (!copy_option(&c->ca_file, o->ca_file) || !copy_option(&c->ca_pem, o->ca_pem) ||
        !copy_option(&c->cert_file, o->cert_file) || !copy_option(&c->key_file, o->key_file) ||
        !copy_option(&c->cert_pem, o->cert_pem) || !copy_option(&c->key_pem, o->key_pem) ||
        !copy_option(&c->tls_server_name, o->tls_server_name))
        return err_set(err, ERR_NO_MEMORY, "HTTP client");
    c->curl = curl_easy_init();
    if (!c->curl)
        return err_set(err, ERR_NO_MEMORY, "HTTP client");
    *ret = TAKE_PTR(c);
    return 0;
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    if (c->curl)
        curl_easy_cleanup(c->curl);
    mem_free(c->ca_file);
    mem_free(c->ca_pem);
    mem_free(c->cert_file);
    mem_free(c->key_file);
    mem_free(c->cert_pem);
    mem_free(c->key_pem);
    mem_free(c->tls_server_name);
    mem_free(c);
}

/* curl's callbacks */

static int tell_head(struct call_state *s)
{
    long status = 0;

    if (s->head_told)
        return 0;
    s->head_told = true;
    (void)curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    s->reply->status = (int)status;
    if (s->call->on_head && s->call->on_head(s->call->userdata, s->reply) != 0) {
        s->stopped = true;
        return -1;
    }
    return 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
    struct call_state *s = userdata;
    size_t len = size * n;

    if (tell_head(s) != 0)
        return 0;
    if (s->call->on_body && s->reply->status >= 200 && s->reply->status < 300) {
        if (s->call->on_body(s->call->userdata, data, len) != 0) {
            s->stopped = true;
            return 0;
        }
        return len;
    }
    str_add(&s->reply->body, data, len);
    if (s->reply->body.failed) {
        s->too_long = true;
        return 0;
    }
    return len;
}

/* "Name: value" of a header line, when the name is 'want'; trimmed into out. */
static bool header_value(const char *line, size_t len, const char *want, char *out, size_t size)
{
    size_t n = strlen(want);

    if (len <= n || strncasecmp(line, want, n) != 0 || line[n] != ':')
        return false;
    line += n + 1;
    len -= n + 1;
    while (len && isspace((unsigned char)*line)) {
        line++;
        len--;
    }
    while (len && isspace((unsigned char)line[len - 1]))
        len--;
    if (len >= size)
        len = size - 1;
    memcpy(out, line, len);
    out[len] = '\0';
    return true;
}

/* "bytes 100-199/1234" or "bytes 100-199" followed by a star: start and total. */
static void read_content_range(struct http_reply *r, char *value)
{
    char *start = strchr(value, ' '), *dash, *slash;
    struct err ignored;
    int64_t v;

    if (!start || !(dash = strchr(start, '-')) || !(slash = strchr(dash, '/')))
        return;
    *dash = '\0';
    if (parse_i64(start + 1, 0, INT64_MAX, &v, &ignored) == 0)
        r->range_start = v;
    if (parse_i64(slash + 1, 0, INT64_MAX, &v, &ignored) == 0)
        r->range_total = v;
}

static size_t on_header(char *data, size_t size, size_t n, void *userdata)
{
    struct call_state *s = userdata;
    struct http_reply *r = s->reply;
    size_t len = size * n;
    char value[128];
    struct err ignored;
    int64_t v;

    if (len > 5 && strncmp(data, "HTTP/", 5) == 0) { /* a new answer: after a redirect, or 100 */
        struct str body = r->body;
        char location[sizeof(r->location)];

        memcpy(location, r->location, sizeof(location));
        http_reply_init(r);
        r->body = body;
        memcpy(r->location, location, sizeof(location));
    } else if (header_value(data, len, "Content-Type", r->content_type, sizeof(r->content_type)) ||
               header_value(data, len, "ETag", r->etag, sizeof(r->etag)) ||
               header_value(data, len, "Location", r->location, sizeof(r->location))) {
        /* stored */
    } else if (s->call->want_header &&
               header_value(data, len, s->call->want_header, r->wanted, sizeof(r->wanted))) {
        /* stored */
    } else if (header_value(data, len, "Content-Length", value, sizeof(value))) {
        if (parse_i64(value, 0, INT64_MAX, &v, &ignored) == 0)
            r->content_length = v;
    } else if (header_value(data, len, "Content-Range", value, sizeof(value))) {
        read_content_range(r, value);
    } else if (header_value(data, len, "Retry-After", value, sizeof(value))) {
        if (parse_i64(value, 0, 86400, &v, &ignored) == 0)
            r->retry_after_ms = v * 1000;
    } else if (header_value(data, len, "retry-after-ms", value, sizeof(value))) {
        if (parse_i64(value, 0, 86400000, &v, &ignored) == 0)
            r->retry_after_ms = v;
    }
    return len;
}

static int on_progress(void *userdata, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                       curl_off_t ulnow)
{
    const struct call_state *s = userdata;

    (void)dltotal;
    (void)dlnow;
    (void)ultotal;
    (void)ulnow;
    return s->call->cancel && atomic_load(s->call->cancel) ? 1 : 0;
}

/* Every address curl connects to passes here, whatever name or redirect led to it. */
static curl_socket_t on_socket(void *userdata, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct call_state *s = userdata;

    if (purpose == CURLSOCKTYPE_IPCXN && s->client->refuse_private &&
        url_address_is_private(&address->addr)) {
        s->private_host = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* setting up */

static void set_blob(CURL *curl, CURLoption option, const char *pem)
{
    struct curl_blob blob = {
            .data = (void *)(uintptr_t)pem, .len = strlen(pem), .flags = CURL_BLOB_COPY};

    (void)curl_easy_setopt(curl, option, &blob);
}

static void set_tls(const struct http_client *c, CURL *curl)
{
    (void)curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (c->insecure) {
        (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->ca_file)
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, c->ca_file);
    if (c->ca_pem)
        set_blob(curl, CURLOPT_CAINFO_BLOB, c->ca_pem);
    if (c->cert_file)
        (void)curl_easy_setopt(curl, CURLOPT_SSLCERT, c->cert_file);
    if (c->key_file)
        (void)curl_easy_setopt(curl, CURLOPT_SSLKEY, c->key_file);
    if (c->cert_pem)
        set_blob(curl, CURLOPT_SSLCERT_BLOB, c->cert_pem);
    if (c->key_pem)
        set_blob(curl, CURLOPT_SSLKEY_BLOB, c->key_pem);
}

static int set_headers(struct call_state *s, struct err *err)
{
    struct curl_slist *list = NULL;

    for (size_t i = 0; i < HTTP_HEADERS_MAX && s->call->headers[i]; i++) {
        struct curl_slist *longer = curl_slist_append(list, s->call->headers[i]);

        if (!longer) {
            curl_slist_free_all(list);
            return err_set(err, ERR_NO_MEMORY, "HTTP headers");
        }
        list = longer;
    }
    s->headers = list;
    (void)curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, list);
    return 0;
}

static void set_method(const struct http_call *call, CURL *curl)
{
    if (call->body) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);
    } else if (call->method && strcmp(call->method, "HEAD") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
        return;
    }
    if (call->method)
        (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
}

static void set_limits(struct call_state *s)
{
    const struct http_client *c = s->client;
    CURL *curl = s->curl;

    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_timeout_ms);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)s->call->timeout_ms);
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(c->idle_timeout_ms + 999) / 1000);
    (void)curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR,
                           strncasecmp(s->call->url, "https:", 6) == 0 ? "https" : "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, c->follow ? 1L : 0L);
    (void)curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

static void set_callbacks(struct call_state *s)
{
    CURL *curl = s->curl;

    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, s);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, s);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, s);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, s);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, s->reason);
}

/* Another name than the URL's host in the certificate: connect to the URL's host, speak to the
 * name.  curl takes SNI and the name to verify from the URL, so the URL gets the name. */
static int set_target(struct call_state *s, struct err *err)
{
    const char *name = s->client->tls_server_name;
    char address[600], url[URL_BYTES_MAX * 2 + 400];
    struct url u;
    bool v6;
    int r;

    if (!name) {
        (void)curl_easy_setopt(s->curl, CURLOPT_URL, s->call->url);
        return 0;
    }
    r = url_parse(s->call->url, &u, err);
    if (r)
        return r;
    v6 = strchr(u.host, ':') != NULL;
    (void)snprintf(address, sizeof(address), "::%s%s%s:%u", v6 ? "[" : "", u.host, v6 ? "]" : "",
                   u.port ? u.port : 443u);
    (void)snprintf(url, sizeof(url), "%s://%s:%u%s%s%s", u.scheme, name, u.port ? u.port : 443u,
                   u.path, u.query[0] ? "?" : "", u.query);
    s->connect_to = curl_slist_append(NULL, address);
    if (!s->connect_to)
        return err_set(err, ERR_NO_MEMORY, "HTTP call");
    (void)curl_easy_setopt(s->curl, CURLOPT_CONNECT_TO, s->connect_to);
    (void)curl_easy_setopt(s->curl, CURLOPT_URL, url);
    return 0;
}

int call_setup(struct call_state *s, struct err *err)
{
    const struct http_call *call = s->call;
    int r;

    ASSERT(call->url);
    http_reply_init(s->reply);
    s->reply->body.max = call->reply_max ? call->reply_max : REPLY_MAX_BYTES;
    curl_easy_reset(s->curl);
    set_limits(s);
    set_callbacks(s);
    set_tls(s->client, s->curl);
    set_method(call, s->curl);
    if (call->bearer) {
        (void)curl_easy_setopt(s->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        (void)curl_easy_setopt(s->curl, CURLOPT_XOAUTH2_BEARER, call->bearer);
    }
    r = set_target(s, err);
    return r ? r : set_headers(s, err);
}

static enum err_code code_of_curl(CURLcode rc)
{
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_TIMEOUT;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ISSUER_ERROR:
        return ERR_DENIED;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_TOO_MANY_REDIRECTS:
        return ERR_INVALID;
    case CURLE_OUT_OF_MEMORY:
        return ERR_NO_MEMORY;
    default:
        return ERR_UNAVAILABLE;
    }
}

static uint64_t get_us(CURL *curl, CURLINFO what)
{
    curl_off_t us = 0;

    (void)curl_easy_getinfo(curl, what, &us);
    return us > 0 ? (uint64_t)us : 0;
}

/* What to call the other side in an error: no path, no query, where secrets may stand. */
static const char *host_of(const struct http_call *call, struct url *u)
{
    struct err ignored;

    return url_parse(call->url, u, &ignored) == 0 ? u->host : "the server";
}

int call_finish(struct call_state *s, CURLcode rc, struct err *err)
{
    struct url u;
    const char *host = host_of(s->call, &u);

    if (rc == CURLE_OK && tell_head(s) != 0)
        rc = CURLE_ABORTED_BY_CALLBACK;
    s->reply->connect_us = get_us(s->curl, CURLINFO_CONNECT_TIME_T);
    s->reply->first_byte_us = get_us(s->curl, CURLINFO_STARTTRANSFER_TIME_T);
    s->reply->total_us = get_us(s->curl, CURLINFO_TOTAL_TIME_T);
    if (rc == CURLE_OK)
        return 0;
    if (s->stopped || rc == CURLE_ABORTED_BY_CALLBACK)
        return err_set(err, ERR_CANCELED, "call to %s was cancelled", host);
    if (s->too_long)
        return err_set(err, ERR_INVALID, "%s answered more than %zu bytes", host,
                       s->reply->body.max);
    if (s->private_host)
        return err_set(err, ERR_DENIED, "%s is at a private address, which is not allowed", host);
    return err_set(err, code_of_curl(rc), "%s: %s", host,
                   s->reason[0] ? s->reason : curl_easy_strerror(rc));
}

void call_cleanup(struct call_state *s)
{
    curl_slist_free_all(s->headers);
    curl_slist_free_all(s->connect_to);
    s->headers = s->connect_to = NULL;
}

int http_client_do(struct http_client *c, const struct http_call *call, struct http_reply *reply,
                   struct err *err)
{
    struct call_state s = {.client = c, .call = call, .reply = reply, .curl = c->curl};
    int r = call_setup(&s, err);

    if (r == 0)
        r = call_finish(&s, curl_easy_perform(c->curl), err);
    call_cleanup(&s);
    return r;
}
