/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c - from what the user wrote to a file on this machine.
 */
#include "runtime/source/source.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/http_client.h"
#include "base/log.h"
#include "base/str.h"
#include "base/url.h"
#include "runtime/source/download.h"

#define HF_DEFAULT "https://huggingface.co"

enum { PART_BYTES = 256, URL_BYTES = 2048, HEX_BYTES = 65 };

/* hf://ORG/REPO/PATH/FILE.gguf[@REVISION] */
struct hf_source {
    char org[PART_BYTES], repo[PART_BYTES], file[PART_BYTES], revision[PART_BYTES];
};

/* What may stand in a part of a hub address: no dots alone, nothing that changes the URL. */
static bool is_plain_part(const char *s, bool slashes)
{
    if (!*s || strstr(s, "..") || *s == '/' || *s == '.')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-", *s) && !(slashes && *s == '/'))
            return false;
    return true;
}

static int parse_hf(const char *text, struct hf_source *h, struct err *err)
{
    const char *rest = text + strlen("hf://"), *at = strrchr(rest, '@');
    const char *slash = strchr(rest, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    size_t len = at ? (size_t)(at - rest) : strlen(rest);

    if (!second || second >= rest + len || len >= PART_BYTES ||
        (at && strlen(at + 1) >= PART_BYTES))
        return err_set(err, ERR_INVALID,
                       "'%.200s': expected hf://ORGANISATION/REPOSITORY/FILE.gguf[@REVISION]",
                       text);
    (void)snprintf(h->org, sizeof(h->org), "%.*s", (int)(slash - rest), rest);
    (void)snprintf(h->repo, sizeof(h->repo), "%.*s", (int)(second - slash - 1), slash + 1);
    (void)snprintf(h->file, sizeof(h->file), "%.*s", (int)(rest + len - second - 1), second + 1);
    (void)snprintf(h->revision, sizeof(h->revision), "%s", at ? at + 1 : "main");
    if (!is_plain_part(h->org, false) || !is_plain_part(h->repo, false) ||
        !is_plain_part(h->file, true) || !is_plain_part(h->revision, false))
        return err_set(err, ERR_INVALID,
                       "'%.200s': organisation, repository, file and revision may hold letters, "
                       "digits, '.', '_' and '-'",
                       text);
    if (!str_ends(h->file, ".gguf"))
        return err_set(err, ERR_INVALID, "'%.200s': name the .gguf file of the repository to serve",
                       text);
    return 0;
}

/* CACHE/HASH-FILE.gguf: one name a URL, readable for people. */
static int cache_path(const struct source_options *o, const char *url, const char *file, char *out,
                      struct err *err)
{
    unsigned char digest[32];
    const char *base = strrchr(file, '/');
    char clean[PART_BYTES];
    size_t n = 0;

    base = base ? base + 1 : file;
    for (; *base && *base != '?' && n + 1 < 128; base++)
        clean[n++] = isalnum((unsigned char)*base) || strchr("._-", *base) ? *base : '_';
    clean[n] = '\0';
    if (EVP_Digest(url, strlen(url), digest, NULL, EVP_sha256(), NULL) != 1)
        return err_set(err, ERR_INTERNAL, "SHA-256 is not available");
    if (mkdir(o->cache_dir, 0755) != 0 && errno != EEXIST)
        return err_set(err, ERR_DENIED,
                       "cannot make the cache folder '%s': %s; --cache-dir names another",
                       o->cache_dir, strerror(errno));
    if (snprintf(out, SOURCE_PATH_BYTES, "%s/%02x%02x%02x%02x%02x%02x-%s", o->cache_dir, digest[0],
                 digest[1], digest[2], digest[3], digest[4], digest[5], clean) >= SOURCE_PATH_BYTES)
        return err_set(err, ERR_INVALID, "the cache folder's path is too long");
    return 0;
}

/* The hub tells a large file's SHA-256 in a header of the redirect to its store. */
static int ask_hub(const struct source_options *o, const char *url, char sha256[HEX_BYTES],
                   struct err *err)
{
    struct http_client_options co = {.refuse_private = !o->allow_private};
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    struct http_call call = {.method = "HEAD",
                             .url = url,
                             .bearer = o->hf_token,
                             .want_header = "X-Linked-ETag",
                             .cancel = o->cancel,
                             .timeout_ms = 30000};
    struct http_reply reply;
    int r = http_client_new(&co, &client, err);

    if (r)
        return r;
    r = http_client_do(client, &call, &reply, err);
    if (r == 0 && reply.status >= 400 && reply.status < 500 && reply.status != 429)
        r = download_refused(o->source, reply.status, o->hf_token != NULL, err);
    else if (r == 0 && strlen(reply.wanted) == 66)
        (void)snprintf(sha256, HEX_BYTES, "%.64s", reply.wanted + 1); /* in quotes */
    else if (r != 0 && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT))
        r = 0; /* the download itself retries, and says what is wrong */
    http_reply_release(&reply);
    return r;
}

static int fetch_hf(const struct source_options *o, char *ret_path, struct err *err)
{
    const char *endpoint = o->hf_endpoint && *o->hf_endpoint ? o->hf_endpoint : HF_DEFAULT;
    char url[URL_BYTES], sha256[HEX_BYTES] = "";
    struct download d = {.url = url, .token = o->hf_token, .path = ret_path, .what = o->source};
    struct hf_source h;
    int r = parse_hf(o->source, &h, err);

    if (r)
        return r;
    if (snprintf(url, sizeof(url), "%s%s%s/%s/resolve/%s/%s", endpoint,
                 str_ends(endpoint, "/") ? "" : "/", h.org, h.repo, h.revision,
                 h.file) >= URL_BYTES)
        return err_set(err, ERR_INVALID, "HF_ENDPOINT is too long");
    r = cache_path(o, url, h.file, ret_path, err);
    if (r || access(ret_path, R_OK) == 0)
        return r;
    r = ask_hub(o, url, sha256, err);
    if (r)
        return r;
    d.sha256 = o->sha256 ? o->sha256 : sha256[0] ? sha256 : NULL;
    if (!d.sha256)
        log_warn(o->logger, "the hub told no SHA-256, the download will not be checked by one");
    return download_run(o, &d, err);
}

static int fetch_http(const struct source_options *o, char *ret_path, struct err *err)
{
    char shown[URL_BYTES]; /* a query may hold a signature: it is in no error and no log */
    struct download d = {.url = o->source, .path = ret_path, .sha256 = o->sha256, .what = shown};
    struct url u;
    int r = url_parse(o->source, &u, err);

    if (r)
        return err_wrap(err, "model source");
    (void)snprintf(shown, sizeof(shown), "%.*s", (int)strcspn(o->source, "?"), o->source);
    if (strcmp(u.scheme, "https") != 0 && !o->allow_private)
        return err_set(err, ERR_INVALID,
                       "'%.200s': use https://; plain http needs --allow-private-sources", shown);
    r = cache_path(o, o->source, u.path, ret_path, err);
    return r ? r : download_run(o, &d, err);
}

static int use_path(const char *path, char *ret_path, struct err *err)
{
    if (access(path, R_OK) != 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED,
                       "cannot read the model '%s': %s", path, strerror(errno));
    if (snprintf(ret_path, SOURCE_PATH_BYTES, "%s", path) >= SOURCE_PATH_BYTES)
        return err_set(err, ERR_INVALID, "the model's path is too long");
    return 0;
}

int source_fetch(const struct source_options *o, char *ret_path, struct err *err)
{
    int r;

    if (str_starts(o->source, "file://"))
        return use_path(o->source + strlen("file://"), ret_path, err);
    if (!strstr(o->source, "://"))
        return use_path(o->source, ret_path, err);
    if (str_starts(o->source, "hf://"))
        r = fetch_hf(o, ret_path, err);
    else if (str_starts(o->source, "https://") || str_starts(o->source, "http://"))
        r = fetch_http(o, ret_path, err);
    else
        r = err_set(err, ERR_INVALID,
                    "'%.200s': a model is a path, file://, https:// or hf:// address", o->source);
    if (r == 0)
        log_info(o->logger, "model file", F_STR("path", ret_path));
    return r;
}

void source_model_name(const char *source, char *out, size_t size)
{
    const char *base = strrchr(source, '/');
    size_t n;

    base = base ? base + 1 : source;
    n = strcspn(base, "?@");
    if (n > 5 && strncmp(base + n - 5, ".gguf", 5) == 0)
        n -= 5;
    (void)snprintf(out, size, "%.*s", (int)n, n ? base : "model");
    if (n == 0)
        (void)snprintf(out, size, "model");
}
