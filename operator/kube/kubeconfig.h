/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The part of a kubeconfig that its current context selects.  Every text is owned; NULL: not
 * given.  Certificates are PEM text or files, never both. */
struct kubeconfig {
    char *server;
    char *ca_file, *ca_pem;
    char *cert_file, *cert_pem;
    char *key_file, *key_pem;
    char *token, *token_file;
    char *namespace;
    char *tls_server_name;
    bool insecure_skip_verify;
};

/* folder: relative paths in the file are taken from it.  ERR_INVALID names what is wrong. */
int kubeconfig_parse(const char *text, size_t len, const char *folder, struct kubeconfig *ret,
                     struct err *err) MUST_CHECK;
void kubeconfig_release(struct kubeconfig *k);
