/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err_code code_of_errno(int e)
{
    switch (e) {
    case ENOENT:
    case ENOTDIR:
        return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    case ENOMEM:
        return ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return ERR_BUSY;
    default:
        return ERR_UNAVAILABLE;
    }
}

static int fail(struct err *err, const char *verb, const char *path)
{
    int e = errno;

    return err_set(err, code_of_errno(e), "cannot %s '%s': %s", verb, path, strerror(e));
}

int file_read(const char *path, struct str *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char buf[16384];
    ssize_t n;

    if (fd < 0)
        return fail(err, "open", path);
    str_clear(out);
    while ((n = read(fd, buf, sizeof(buf))) > 0) {
        str_add(out, buf, (size_t)n);
        if (out->failed) {
            (void)close(fd);
            return err_set(err, ERR_INVALID, "'%s' is larger than %zu bytes", path, out->max);
        }
    }
    if (n < 0) {
        int r = fail(err, "read", path);

        (void)close(fd);
        return r;
    }
    (void)close(fd);
    return 0;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd);
}

int file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                      struct err *err)
{
    char temp[4096];
    int fd, r = 0;

    if (snprintf(temp, sizeof(temp), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(temp))
        return err_set(err, ERR_INVALID, "path '%s' is too long", path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return fail(err, "create", temp);
    if (write_all(fd, data, len) != 0)
        r = fail(err, "write", temp);
    if (close(fd) != 0 && r == 0)
        r = fail(err, "write", temp);
    if (r == 0 && rename(temp, path) != 0)
        r = fail(err, "rename over", path);
    if (r != 0)
        (void)unlink(temp);
    return r;
}

uint64_t file_stamp(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return 0;
    return ((uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec) ^
           (uint64_t)st.st_ino << 20 ^ (uint64_t)st.st_size;
}
