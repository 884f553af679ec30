/* SPDX-License-Identifier: Apache-2.0
 *
 * download.c - one file over HTTP, resumable, verified, once.
 *
 * Every attempt asks for the bytes that are still missing, with If-Range naming the version the
 * first bytes came from: a server that has another version by now sends the whole of it, and the
 * part begins anew.  Attempts go on while they make progress; RETRIES_MAX in a row without a new
 * byte end it.
 */
#include "runtime/source/download.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/http_client.h"
#include "base/log.h"

enum { RETRIES_MAX = 6, RETRY_FIRST_MS = 500, RETRY_MAX_MS = 15000, LOCK_POLL_MS = 250 };

struct transfer {
    const struct source_options *o;
    const struct download *d;
    int fd; /* the part */
    char etag[128];
    char etag_path[SOURCE_PATH_BYTES + 16];
    uint64_t done, total;
    unsigned logged_percent;
    struct err err; /* what a callback found wrong; code ERR_NONE: nothing */
};

static bool is_cancelled(const struct source_options *o)
{
    return o->cancel && atomic_load(o->cancel);
}

static void nap(const struct source_options *o, unsigned ms)
{
    for (unsigned slept = 0; slept < ms && !is_cancelled(o); slept += 50)
        (void)usleep(50000);
}

/* Every piece to the caller, every tenth to the log. */
static void progress(struct transfer *t)
{
    unsigned percent = t->total ? (unsigned)(100 * t->done / t->total) : 0;

    if (percent / 10 > t->logged_percent / 10) {
        t->logged_percent = percent;
        log_info(t->o->logger, "downloading", F_U64("percent", percent),
                 F_U64("bytes_done", t->done), F_U64("bytes_total", t->total));
    }
    if (t->o->on_progress)
        t->o->on_progress(t->o->userdata, t->done, t->total);
}

int download_refused(const char *what, int status, bool had_token, struct err *err)
{
    switch (status) {
    case 401:
        return had_token ? err_set(err, ERR_DENIED,
                                   "'%s': 401, the token was refused; check that it is valid", what)
                         : err_set(err, ERR_DENIED,
                                   "'%s': 401, a token is needed; set HF_TOKEN "
                                   "(spec.model.secretRef)",
                                   what);
    case 403:
        return err_set(err, ERR_DENIED,
                       "'%s': 403, access is not granted; a gated model must be accepted on its "
                       "page with the token's account",
                       what);
    case 404:
    case 410:
        return err_set(err, ERR_NOT_FOUND,
                       "'%s': %d, not there; check the spelling of repository, revision and file",
                       what, status);
    case 416:
        return err_set(err, ERR_CONFLICT, "'%s': 416, the file changed while it was fetched", what);
    default:
        return err_set(err, status == 429 || status >= 500 ? ERR_UNAVAILABLE : ERR_INVALID,
                       "'%s': the server answered %d", what, status);
    }
}

static int check_disk(const struct transfer *t, struct err *err)
{
    struct statvfs v;
    uint64_t missing = t->total > t->done ? t->total - t->done : 0;

    if (fstatvfs(t->fd, &v) != 0 || (uint64_t)v.f_bavail * v.f_frsize >= missing)
        return 0;
    return err_set(err, ERR_BUSY, "%llu MiB more are needed in '%s', %llu MiB are free",
                   (unsigned long long)(missing >> 20), t->o->cache_dir,
                   (unsigned long long)((uint64_t)v.f_bavail * v.f_frsize >> 20));
}

static int io_error(struct err *err, const char *verb, const char *path)
{
    int e = errno;

    return err_set(err, e == ENOSPC || e == EDQUOT ? ERR_BUSY : ERR_UNAVAILABLE,
                   "cannot %s '%s': %s", verb, path, strerror(e));
}

/* The part begins anew. */
static int restart(struct transfer *t, struct err *err)
{
    t->done = 0;
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0)
        return io_error(err, "truncate", t->d->path);
    return 0;
}

static int begin_body(struct transfer *t, const struct http_reply *reply, struct err *err)
{
    int r = 0;

    if (reply->status == 200 && t->done)
        r = restart(t, err); /* the server does not resume, or has another version */
    else if (reply->status == 206 && reply->range_start != (int64_t)t->done)
        r = err_set(err, ERR_UNAVAILABLE, "the server sent another range than asked for");
    if (r)
        return r;
    if (reply->status == 206 && reply->range_total >= 0)
        t->total = (uint64_t)reply->range_total;
    else
        t->total = reply->content_length >= 0 ? t->done + (uint64_t)reply->content_length : 0;
    (void)snprintf(t->etag, sizeof(t->etag), "%s", reply->etag);
    r = file_write_atomic(t->etag_path, t->etag, strlen(t->etag), 0644, err);
    return r ? r : check_disk(t, err);
}

static int on_head(void *userdata, const struct http_reply *reply)
{
    struct transfer *t = userdata;

    if (reply->status != 200 && reply->status != 206)
        return 0;
    return begin_body(t, reply, &t->err);
}

static int on_body(void *userdata, const char *data, size_t len)
{
    struct transfer *t = userdata;

    while (len) {
        ssize_t n = write(t->fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error(&t->err, "write", t->d->path);
        data += n;
        len -= (size_t)n;
        t->done += (uint64_t)n;
    }
    progress(t);
    return 0;
}

/* One request for what is missing.  0: the file is complete. */
static int attempt(struct transfer *t, struct http_client *client, struct err *err)
{
    char range[64], if_range[192];
    struct http_call call = {.url = t->d->url,
                             .bearer = t->d->token,
                             .cancel = t->o->cancel,
                             .reply_max = 1 << 16,
                             .on_head = on_head,
                             .on_body = on_body,
                             .userdata = t};
    struct http_reply reply;
    int r;

    if (t->done && t->etag[0]) {
        (void)snprintf(range, sizeof(range), "Range: bytes=%llu-", (unsigned long long)t->done);
        (void)snprintf(if_range, sizeof(if_range), "If-Range: %s", t->etag);
        call.headers[0] = range;
        call.headers[1] = if_range;
    } else if (t->done) {
        r = restart(t, err); /* no version known: nothing to resume from */
        if (r)
            return r;
    }
    t->err.code = ERR_NONE;
    r = http_client_do(client, &call, &reply, err);
    if (t->err.code != ERR_NONE) {
        *err = t->err;
        r = -(int)err->code;
    } else if (r == 0 && reply.status == 416 && restart(t, err) == 0) {
        r = download_refused(t->d->what, 416, t->d->token != NULL, err);
        err->code = ERR_UNAVAILABLE; /* try again from the start */
    } else if (r == 0 && reply.status != 200 && reply.status != 206) {
        r = download_refused(t->d->what, reply.status, t->d->token != NULL, err);
    } else if (r == 0 && t->total && t->done != t->total) {
        r = err_set(err, ERR_UNAVAILABLE, "'%s': the connection ended early", t->d->what);
    }
    http_reply_release(&reply);
    return r;
}

static bool may_retry(const struct err *err)
{
    return err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT;
}

static int attempts(struct transfer *t, struct http_client *client, struct err *err)
{
    unsigned wait_ms = RETRY_FIRST_MS, idle = 0;

    for (;;) {
        uint64_t before = t->done;
        int r = attempt(t, client, err);

        if (r == 0)
            return 0;
        if (is_cancelled(t->o))
            return err_set(err, ERR_CANCELED, "told to stop while fetching '%s'", t->d->what);
        idle = t->done > before ? 0 : idle + 1;
        if (!may_retry(err) || idle >= RETRIES_MAX)
            return r;
        if (idle == 0)
            wait_ms = RETRY_FIRST_MS;
        log_warn(t->o->logger, "download interrupted, trying again", F_ERR(err),
                 F_U64("bytes_done", t->done), F_U64("wait_ms", wait_ms));
        nap(t->o, wait_ms);
        wait_ms = wait_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : wait_ms * 2;
    }
}

/* checking */

static int hash_file(int fd, char out[65], struct err *err)
{
    unsigned char buf[1 << 16], digest[32];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    ssize_t n = 0;
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 && lseek(fd, 0, SEEK_SET) == 0;

    while (ok && (n = read(fd, buf, sizeof(buf))) > 0)
        ok = EVP_DigestUpdate(ctx, buf, (size_t)n) == 1;
    ok = ok && n == 0 && EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return err_set(err, ERR_UNAVAILABLE, "cannot read the downloaded file back");
    for (int i = 0; i < 32; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static int check_content(const struct transfer *t, struct err *err)
{
    char magic[4], hex[65];
    int r;

    if (pread(t->fd, magic, 4, 0) != 4 || memcmp(magic, "GGUF", 4) != 0)
        return err_set(err, ERR_INVALID,
                       "'%s' is not a GGUF file; check that the address is of the file itself, "
                       "not of a page about it",
                       t->d->what);
    if (!t->d->sha256)
        return 0;
    r = hash_file(t->fd, hex, err);
    if (r)
        return r;
    if (strcasecmp(hex, t->d->sha256) != 0)
        return err_set(err, ERR_INVALID, "'%s' has SHA-256 %s, expected %s", t->d->what, hex,
                       t->d->sha256);
    return 0;
}

/* A part with its version, from an earlier process; none: starts at 0. */
static int open_part(struct transfer *t, const char *part, struct err *err)
{
    CLEANUP(str_release) struct str etag = STR_INIT(sizeof(t->etag) - 1);
    struct err ignored;
    struct stat st;

    t->fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (t->fd < 0 || fstat(t->fd, &st) != 0)
        return io_error(err, "open", part);
    if (file_read(t->etag_path, &etag, &ignored) == 0)
        (void)snprintf(t->etag, sizeof(t->etag), "%s", str_text(&etag));
    t->done = (uint64_t)st.st_size;
    if (lseek(t->fd, 0, SEEK_END) < 0)
        return io_error(err, "seek in", part);
    return 0;
}

static int fetch_part(struct transfer *t, const char *part, struct err *err)
{
    struct http_client_options co = {.follow_redirects = true,
                                     .refuse_private = !t->o->allow_private};
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    int r = http_client_new(&co, &client, err);

    if (r == 0)
        r = open_part(t, part, err);
    if (r == 0)
        r = attempts(t, client, err);
    if (r == 0 && (r = check_content(t, err)) != 0)
        (void)unlink(part); /* wrong from the start: nothing to resume */
    if (r == 0 && fsync(t->fd) != 0)
        r = io_error(err, "flush", part);
    if (r == 0 && rename(part, t->d->path) != 0)
        r = io_error(err, "rename", part);
    if (r == 0)
        (void)unlink(t->etag_path);
    return r;
}

/* Wait for whoever fetches the same file into the same cache. */
static int lock_name(const struct source_options *o, const struct download *d, int *ret_fd,
                     struct err *err)
{
    char path[SOURCE_PATH_BYTES + 16];
    bool told = false;
    int fd;

    (void)snprintf(path, sizeof(path), "%s.lock", d->path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return io_error(err, "create", path);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (is_cancelled(o)) {
            (void)close(fd);
            return err_set(err, ERR_CANCELED, "told to stop while waiting for '%s'", d->what);
        }
        if (!told)
            log_info(o->logger, "another process fetches the same file, waiting");
        told = true;
        nap(o, LOCK_POLL_MS);
    }
    *ret_fd = fd;
    return 0;
}

int download_run(const struct source_options *o, const struct download *d, struct err *err)
{
    struct transfer t = {.o = o, .d = d, .fd = -1};
    char part[SOURCE_PATH_BYTES + 16];
    int lock = -1, r;

    if (access(d->path, R_OK) == 0)
        return 0;
    r = lock_name(o, d, &lock, err);
    if (r)
        return r;
    (void)snprintf(part, sizeof(part), "%s.part", d->path);
    (void)snprintf(t.etag_path, sizeof(t.etag_path), "%s.etag", part);
    if (access(d->path, R_OK) != 0)
        r = fetch_part(&t, part, err);
    if (t.fd >= 0)
        (void)close(t.fd);
    (void)close(lock);
    return r;
}
