/* SPDX-License-Identifier: Apache-2.0
 *
 * serving_cert.c - keys and certificates for one Service name, by OpenSSL.
 *
 * ECDSA P-256.  The CA lives ten years and signs nothing but this leaf, which lives one; the
 * APIService's caBundle names the CA, so a new leaf changes nothing the API server knows.
 */
#include "operator/scaling/serving_cert.h"

#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { DAY_S = 86400, CA_DAYS = 3650, LEAF_DAYS = 365, CA_RESERVE_DAYS = 400, SERIAL_BYTES = 16 };

void serving_cert_release(struct serving_cert *c)
{
    mem_free(c->ca_cert);
    mem_free(c->ca_key);
    mem_free(c->cert);
    mem_free(c->key);
    *c = (struct serving_cert){0};
}

static int failed(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "certificate cannot be made");
}

static char *bio_text(BIO *bio)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);

    return n > 0 ? mem_strndup(data, (size_t)n) : NULL;
}

static char *cert_to_pem(X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *pem = bio && PEM_write_bio_X509(bio, cert) == 1 ? bio_text(bio) : NULL;

    BIO_free(bio);
    return pem;
}

static char *key_to_pem(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *pem = bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1
                        ? bio_text(bio)
                        : NULL;

    BIO_free(bio);
    return pem;
}

static X509 *cert_from_pem(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem ? pem : "", -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return cert;
}

static EVP_PKEY *key_from_pem(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem ? pem : "", -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return key;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *e;
    bool ok;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ok = e && X509_add_ext(cert, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *n;
    bool ok;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] &= 0x7f; /* positive */
    n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return ok;
}

static bool fill(X509 *cert, EVP_PKEY *key, const char *cn, long days)
{
    X509_NAME *name = X509_get_subject_name(cert);

    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -300) && /* clocks differ */
           X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S) &&
           X509_set_pubkey(cert, key) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1,
                                      0) == 1;
}

static int make_ca(struct serving_cert *c, struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    bool ok = key && cert && fill(cert, key, "penstock-operator-ca", CA_DAYS) &&
              X509_set_issuer_name(cert, X509_get_subject_name(cert)) == 1 &&
              add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
              add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
              add_extension(cert, cert, NID_subject_key_identifier, "hash") &&
              X509_sign(cert, key, EVP_sha256()) > 0;

    mem_free(c->ca_cert);
    mem_free(c->ca_key);
    c->ca_cert = ok ? cert_to_pem(cert) : NULL;
    c->ca_key = ok ? key_to_pem(key) : NULL;
    X509_free(cert);
    EVP_PKEY_free(key);
    return c->ca_cert && c->ca_key ? 0 : failed(err);
}

static int make_leaf(struct serving_cert *c, X509 *ca, EVP_PKEY *ca_key, const char *dns_name,
                     struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    char san[300];
    int n = snprintf(san, sizeof(san), "DNS:%s", dns_name);
    bool ok = n > 0 && (size_t)n < sizeof(san) && key && cert &&
              fill(cert, key, "penstock-operator", LEAF_DAYS) &&
              X509_set_issuer_name(cert, X509_get_subject_name(ca)) == 1 &&
              add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
              add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") &&
              add_extension(cert, ca, NID_ext_key_usage, "serverAuth") &&
              add_extension(cert, ca, NID_subject_alt_name, san) &&
              add_extension(cert, ca, NID_authority_key_identifier, "keyid") &&
              X509_sign(cert, ca_key, EVP_sha256()) > 0;

    mem_free(c->cert);
    mem_free(c->key);
    c->cert = ok ? cert_to_pem(cert) : NULL;
    c->key = ok ? key_to_pem(key) : NULL;
    X509_free(cert);
    EVP_PKEY_free(key);
    return c->cert && c->key ? 0 : failed(err);
}

static bool lives_longer(const X509 *cert, int64_t seconds)
{
    int days, rest;

    return cert && ASN1_TIME_diff(&days, &rest, NULL, X509_get0_notAfter(cert)) == 1 &&
           (int64_t)days * DAY_S + rest > seconds;
}

int serving_cert_issue(struct serving_cert *c, const char *dns_name, struct err *err)
{
    X509 *ca = cert_from_pem(c->ca_cert);
    EVP_PKEY *ca_key = key_from_pem(c->ca_key);
    int r = 0;

    if (!ca || !ca_key || X509_check_private_key(ca, ca_key) != 1 ||
        !lives_longer(ca, (int64_t)CA_RESERVE_DAYS * DAY_S)) {
        X509_free(ca);
        EVP_PKEY_free(ca_key);
        r = make_ca(c, err);
        ca = r ? NULL : cert_from_pem(c->ca_cert);
        ca_key = r ? NULL : key_from_pem(c->ca_key);
    }
    if (r == 0)
        r = ca && ca_key ? make_leaf(c, ca, ca_key, dns_name, err) : failed(err);
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    return r;
}

bool serving_cert_is_good(const struct serving_cert *c, const char *dns_name, int64_t reserve_s)
{
    X509 *ca = cert_from_pem(c->ca_cert), *cert = cert_from_pem(c->cert);
    EVP_PKEY *key = key_from_pem(c->key), *ca_public = ca ? X509_get0_pubkey(ca) : NULL;
    bool good = ca && cert && key && ca_public && X509_verify(cert, ca_public) == 1 &&
                X509_check_private_key(cert, key) == 1 &&
                X509_check_host(cert, dns_name, 0, 0, NULL) == 1 && lives_longer(cert, reserve_s) &&
                lives_longer(ca, reserve_s);

    X509_free(ca);
    X509_free(cert);
    EVP_PKEY_free(key);
    return good;
}
