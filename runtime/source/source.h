/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct logger;

/* From what the user wrote to a file on this machine.
 *   PATH, file://PATH               used where it lies
 *   https://HOST/.../FILE.gguf      downloaded into the cache
 *   hf://ORG/REPO/FILE.gguf[@REV]   the same, from HF_ENDPOINT (default https://huggingface.co),
 *                                   with the hub's SHA-256 of the file checked
 * A download goes on where an earlier one stopped (a kill, a lost connection), if the server still
 * has the same file; appears under its name only when complete and checked; and is done once when
 * several processes share the cache. */
struct source_options {
    const char *source;
    const char *cache_dir;
    const char *sha256;      /* expected, hex; NULL: the hub's, or none */
    const char *hf_endpoint; /* NULL: the public hub */
    const char *hf_token;    /* NULL: none; sent to the hub alone */
    bool allow_private;      /* private addresses and plain http:// */
    const atomic_bool *cancel;
    struct logger *logger;
    /* bytes so far, of total (0: not known yet) */
    void (*on_progress)(void *userdata, uint64_t done, uint64_t total);
    void *userdata;
};

enum { SOURCE_PATH_BYTES = 4096 };

/* ret_path[SOURCE_PATH_BYTES].  Errors say what to do: ERR_DENIED (401, 403), ERR_NOT_FOUND,
 * ERR_INVALID (bad source, wrong checksum, not a GGUF), ERR_BUSY (disk full), ERR_UNAVAILABLE after
 * all retries, ERR_CANCELED. */
int source_fetch(const struct source_options *o, char *ret_path, struct err *err) MUST_CHECK;
/* The file's base name without .gguf: a default model name. out[size]. */
void source_model_name(const char *source, char *out, size_t size);
