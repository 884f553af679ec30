/* SPDX-License-Identifier: Apache-2.0
 *
 * front_proxy.c - believe X-Remote-User only from the aggregator.
 *
 * The TLS library asks for a certificate and checks nothing (DESIGN section 8), so the whole check
 * is here, with OpenSSL, on the DER form: the chain to the request-header CA, the purpose (client),
 * the dates, and the common name among those allowed (an empty list allows every name the CA
 * signed).  The aggregator has authorised the request before it forwarded it, which is why no
 * SubjectAccessReview follows.
 */
#include "operator/scaling/front_proxy.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { NAMES_MAX = 32, NAME_BYTES = 256, DER_MAX = 64 << 10 };

struct front_proxy {
    pthread_mutex_t lock;
    X509_STORE *store; /* NULL: nothing known yet */
    char names[NAMES_MAX][NAME_BYTES];
    size_t n_names; /* 0: any name */
};

int front_proxy_new(struct front_proxy **ret, struct err *err)
{
    struct front_proxy *f = mem_calloc(1, sizeof(*f));

    if (!f)
        return err_set(err, ERR_NO_MEMORY, "front proxy");
    (void)pthread_mutex_init(&f->lock, NULL);
    *ret = f;
    return 0;
}

void front_proxy_free(struct front_proxy *f)
{
    if (!f)
        return;
    X509_STORE_free(f->store);
    (void)pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

static X509_STORE *read_bundle(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509_STORE *store = X509_STORE_new();
    X509 *cert;
    int n = 0;

    while (bio && store && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        n += X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
    }
    BIO_free(bio);
    if (n > 0)
        return store;
    X509_STORE_free(store);
    return NULL;
}

/* requestheader-allowed-names is a JSON list inside the text.  -1: unreadable, which must not
 * become "every name". */
static int read_names(const char *text, char names[NAMES_MAX][NAME_BYTES], size_t *ret_n)
{
    CLEANUP(json_freep) cJSON *list = NULL;
    const cJSON *name;
    struct err err;

    *ret_n = 0;
    if (text[0] == '\0')
        return 0;
    if (json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &list, &err) ||
        !(cJSON_IsArray(list) || cJSON_IsNull(list)))
        return -1;
    cJSON_ArrayForEach(name, list)
    {
        if (!cJSON_IsString(name) || strlen(name->valuestring) >= NAME_BYTES || *ret_n >= NAMES_MAX)
            return -1;
        memcpy(names[(*ret_n)++], name->valuestring, strlen(name->valuestring) + 1);
    }
    return 0;
}

int front_proxy_update(struct front_proxy *f, const cJSON *config_map, struct err *err)
{
    const cJSON *data = json_get(config_map, "data");
    struct front_proxy *fresh = mem_calloc(1, sizeof(*fresh));
    X509_STORE *old;

    if (!fresh)
        return err_set(err, ERR_NO_MEMORY, "front proxy");
    fresh->store = read_bundle(json_str(data, "requestheader-client-ca-file", ""));
    if (!fresh->store || read_names(json_str(data, "requestheader-allowed-names", ""), fresh->names,
                                    &fresh->n_names)) {
        X509_STORE_free(fresh->store);
        mem_free(fresh);
        return err_set(err, ERR_INVALID,
                       "the cluster's request-header CA or its allowed names cannot be read");
    }
    (void)pthread_mutex_lock(&f->lock);
    old = f->store;
    f->store = fresh->store;
    memcpy(f->names, fresh->names, sizeof(f->names));
    f->n_names = fresh->n_names;
    (void)pthread_mutex_unlock(&f->lock);
    X509_STORE_free(old);
    mem_free(fresh);
    return 0;
}

static int check_name(const struct front_proxy *f, X509 *cert, struct err *err)
{
    char cn[NAME_BYTES] = "";
    int n = X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, cn, sizeof(cn));

    if (f->n_names == 0)
        return 0;
    for (size_t i = 0; i < f->n_names; i++) {
        /* The length too: a NUL inside the name must not end the comparison. */
        if (n >= 0 && strlen(f->names[i]) == (size_t)n && memcmp(cn, f->names[i], (size_t)n) == 0)
            return 0;
    }
    return err_set(err, ERR_DENIED, "client certificate: name is not allowed");
}

static int verify(X509_STORE *store, X509 *cert, struct err *err)
{
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    int r = 0;

    if (!ctx || X509_STORE_CTX_init(ctx, store, cert, NULL) != 1 ||
        X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_CLIENT) != 1)
        r = err_set(err, ERR_NO_MEMORY, "certificate check");
    else if (X509_verify_cert(ctx) != 1)
        r = err_set(err, ERR_DENIED, "client certificate: %s",
                    X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
    X509_STORE_CTX_free(ctx);
    return r;
}

int front_proxy_check(struct front_proxy *f, const void *der, size_t len, struct err *err)
{
    const unsigned char *p = der;
    X509 *cert;
    int r;

    if (!der || len == 0 || len > DER_MAX)
        return err_set(err, ERR_DENIED, "no client certificate");
    cert = d2i_X509(NULL, &p, (long)len);
    if (!cert || p != (const unsigned char *)der + len) {
        X509_free(cert);
        return err_set(err, ERR_DENIED, "client certificate: cannot be read");
    }
    (void)pthread_mutex_lock(&f->lock);
    r = f->store ? verify(f->store, cert, err)
                 : err_set(err, ERR_DENIED, "the cluster's request-header CA is not known yet");
    if (r == 0)
        r = check_name(f, cert, err);
    (void)pthread_mutex_unlock(&f->lock);
    X509_free(cert);
    return r;
}
