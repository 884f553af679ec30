/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/source/source.h"

/* One file over HTTP into the cache.  The state between attempts and processes is on disk:
 *   NAME.part        what has arrived
 *   NAME.part.etag   which version of the file that is, so that a resume cannot mix two
 *   NAME.lock        held while fetching; a second process waits, then finds the file
 *   NAME             appears by rename, when complete and checked */
struct download {
    const char *url;
    const char *token;  /* bearer for the first host, or NULL */
    const char *path;   /* NAME, with its folder */
    const char *sha256; /* hex, or NULL */
    const char *what;   /* the source as the user wrote it, for errors */
};

int download_run(const struct source_options *o, const struct download *d,
                 struct err *err) MUST_CHECK;
/* The reason a status stands for, with its remedy. */
int download_refused(const char *what, int status, bool had_token, struct err *err);
