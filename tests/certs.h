/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tests/support.h"

/* Throw-away certificates for tests: P-256 keys, valid for a day. */
struct test_cert {
    char cert_pem[4096];
    char key_pem[2048];
    X509 *x509;
    EVP_PKEY *key;
};

static inline void test_cert_to_pem(struct test_cert *c)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int n;

    assert_int_equal(PEM_write_bio_X509(bio, c->x509), 1);
    n = BIO_read(bio, c->cert_pem, sizeof(c->cert_pem) - 1);
    c->cert_pem[n > 0 ? n : 0] = '\0';
    assert_int_equal(PEM_write_bio_PrivateKey(bio, c->key, NULL, NULL, 0, NULL, NULL), 1);
    n = BIO_read(bio, c->key_pem, sizeof(c->key_pem) - 1);
    c->key_pem[n > 0 ? n : 0] = '\0';
    BIO_free(bio);
}

static inline void test_cert_extend(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *ext;

    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(ext);
    assert_int_equal(X509_add_ext(x, ext, -1), 1);
    X509_EXTENSION_free(ext);
}

/* Signed by 'ca', or by itself as a CA when that is NULL.  names: "DNS:localhost,IP:127.0.0.1". */
static inline void test_cert_make(struct test_cert *c, const char *cn, const char *names,
                                  const struct test_cert *ca)
{
    static long serial = 1;
    X509_NAME *subject;

    c->key = EVP_EC_gen("P-256");
    c->x509 = X509_new();
    assert_non_null(c->key);
    (void)X509_set_version(c->x509, 2);
    (void)ASN1_INTEGER_set(X509_get_serialNumber(c->x509), serial++);
    (void)X509_gmtime_adj(X509_getm_notBefore(c->x509), -3600);
    (void)X509_gmtime_adj(X509_getm_notAfter(c->x509), 86400);
    (void)X509_set_pubkey(c->x509, c->key);
    subject = X509_get_subject_name(c->x509);
    (void)X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1,
                                     0);
    (void)X509_set_issuer_name(c->x509, ca ? X509_get_subject_name(ca->x509) : subject);
    if (!ca)
        test_cert_extend(c->x509, c->x509, NID_basic_constraints, "critical,CA:TRUE");
    if (names)
        test_cert_extend(c->x509, ca ? ca->x509 : c->x509, NID_subject_alt_name, names);
    assert_true(X509_sign(c->x509, ca ? ca->key : c->key, EVP_sha256()) > 0);
    test_cert_to_pem(c);
}

static inline void test_cert_release(struct test_cert *c)
{
    X509_free(c->x509);
    EVP_PKEY_free(c->key);
}
