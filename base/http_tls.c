/* SPDX-License-Identifier: Apache-2.0
 *
 * http_tls.c - the server's certificate, replaceable while it serves.
 *
 * libmicrohttpd's TLS is GnuTLS; it asks for the certificate at each handshake, so a new one is a
 * change of a pointer.  Handshakes under way may still hold the old one: replaced certificates
 * stay until the server goes (they rotate every few weeks, and weigh a few kilobytes).
 */
#include <string.h>

#include "base/file.h"
#include "base/http_internal.h"
#include "base/mem.h"

enum { PEM_MAX_BYTES = 1 << 20, CHAIN_MAX = 16 };

static void cert_free(struct http_cert *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < c->n_chain; i++)
        gnutls_pcert_deinit(&c->chain[i]);
    mem_free(c->chain);
    gnutls_privkey_deinit(c->key);
    mem_free(c);
}

static int load(struct http_cert *c, const char *cert_pem, const char *key_pem, struct err *err)
{
    gnutls_datum_t cert = {(unsigned char *)(uintptr_t)cert_pem, (unsigned)strlen(cert_pem)};
    gnutls_datum_t key = {(unsigned char *)(uintptr_t)key_pem, (unsigned)strlen(key_pem)};
    unsigned n = CHAIN_MAX;
    int r;

    c->chain = mem_calloc(CHAIN_MAX, sizeof(*c->chain));
    if (!c->chain || gnutls_privkey_init(&c->key) != 0)
        return err_set(err, ERR_NO_MEMORY, "certificate");
    r = gnutls_pcert_list_import_x509_raw(c->chain, &n, &cert, GNUTLS_X509_FMT_PEM, 0);
    if (r != 0)
        return err_set(err, ERR_INVALID, "TLS certificate: %s", gnutls_strerror(r));
    c->n_chain = n;
    r = gnutls_privkey_import_x509_raw(c->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r != 0)
        return err_set(err, ERR_INVALID, "TLS key: %s", gnutls_strerror(r));
    return 0;
}

int http_tls_set(struct http_tls *t, const char *cert_pem, const char *key_pem, struct err *err)
{
    struct http_cert *c = mem_calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_set(err, ERR_NO_MEMORY, "certificate");
    r = load(c, cert_pem, key_pem, err);
    if (r) {
        cert_free(c);
        return r;
    }
    (void)pthread_mutex_lock(&t->lock);
    c->older = t->current;
    t->current = c;
    (void)pthread_mutex_unlock(&t->lock);
    return 0;
}

static int set_from_files(struct http_tls *t, struct err *err)
{
    CLEANUP(str_release) struct str cert = STR_INIT(PEM_MAX_BYTES);
    CLEANUP(str_release) struct str key = STR_INIT(PEM_MAX_BYTES);
    int r = file_read(t->cert_file, &cert, err);

    if (r == 0)
        r = file_read(t->key_file, &key, err);
    return r ? r : http_tls_set(t, str_text(&cert), str_text(&key), err);
}

static uint64_t files_stamp(const struct http_tls *t)
{
    return file_stamp(t->cert_file) * 31 + file_stamp(t->key_file);
}

void http_tls_refresh(struct http_tls *t)
{
    struct err ignored;
    uint64_t stamp;

    if (!t->cert_file)
        return;
    stamp = files_stamp(t);
    /* a pair caught half-written does not load: the next look tries again */
    if (stamp != t->stamp && set_from_files(t, &ignored) == 0)
        t->stamp = stamp;
}

int http_tls_new(const struct http_server_options *o, struct http_tls **ret, struct err *err)
{
    struct http_tls *t = mem_calloc(1, sizeof(*t));
    int r;

    if (!t)
        return err_set(err, ERR_NO_MEMORY, "TLS");
    (void)pthread_mutex_init(&t->lock, NULL);
    if (o->cert_pem) {
        r = http_tls_set(t, o->cert_pem, o->key_pem, err);
    } else {
        t->cert_file = mem_strdup(o->cert_file);
        t->key_file = mem_strdup(o->key_file);
        r = t->cert_file && t->key_file ? 0 : err_set(err, ERR_NO_MEMORY, "TLS");
        if (r == 0) {
            t->stamp = files_stamp(t);
            r = set_from_files(t, err);
        }
    }
    if (r) {
        http_tls_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

void http_tls_free(struct http_tls *t)
{
    if (!t)
        return;
    for (struct http_cert *c = t->current, *older; c; c = older) {
        older = c->older;
        cert_free(c);
    }
    mem_free(t->cert_file);
    mem_free(t->key_file);
    (void)pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

int http_tls_retrieve(gnutls_session_t session, const gnutls_datum_t *req_ca_dn, int nreqs,
                      const gnutls_pk_algorithm_t *algos, int algos_length, gnutls_pcert_st **chain,
                      unsigned *n_chain, gnutls_privkey_t *key)
{
    struct MHD_Connection *mhd = gnutls_session_get_ptr(session);
    struct http_conn *c =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct http_tls *t;

    (void)req_ca_dn;
    (void)nreqs;
    (void)algos;
    (void)algos_length;
    if (!c)
        return -1;
    t = c->server->tls;
    if (c->server->o.want_client_cert)
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
    (void)pthread_mutex_lock(&t->lock);
    *chain = t->current->chain;
    *n_chain = t->current->n_chain;
    *key = t->current->key;
    (void)pthread_mutex_unlock(&t->lock);
    return 0;
}
