/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What http_client.c (blocking) and http_loop.c (many at once) share: one call set up on one curl
 * handle, and what came of it.  Nobody else includes this. */
#include <curl/curl.h>
#include <stdbool.h>

#include "base/http_client.h"

struct http_client {
    CURL *curl; /* for http_client_do() */
    unsigned connect_timeout_ms, idle_timeout_ms;
    bool insecure, follow, refuse_private;
    char *ca_file, *ca_pem, *cert_file, *key_file, *cert_pem, *key_pem, *tls_server_name;
};

/* A call under way.  Lives on the stack of http_client_do() or inside an http_task. */
struct call_state {
    const struct http_client *client;
    const struct http_call *call;
    struct http_reply *reply;
    CURL *curl;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    bool head_told;    /* on_head ran */
    bool stopped;      /* a callback asked to stop */
    bool too_long;     /* the body passed reply_max */
    bool private_host; /* an address was refused */
    char reason[CURL_ERROR_SIZE];
};

int call_setup(struct call_state *s, struct err *err) MUST_CHECK;
/* Fill the reply's figures and turn curl's result into 0 or -code. */
int call_finish(struct call_state *s, CURLcode rc, struct err *err);
void call_cleanup(struct call_state *s);
