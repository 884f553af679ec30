/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/kube/auth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "operator/kube/kubeconfig.h"

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

enum { FILE_MAX = 4 << 20, REREAD_MS = 60000 };

struct kube_auth {
    struct kubeconfig config;
    const struct clock *clock;
    pthread_mutex_t lock; /* over what follows */
    struct str token;
    uint64_t token_read_ms; /* 0: read it next time */
    uint64_t stamps, version, version_read_ms;
};

static int copy(const char *s, char **ret, struct err *err)
{
    *ret = mem_strdup(s);
    return *ret ? 0 : err_set(err, ERR_NO_MEMORY, "credentials");
}

/* Spaces and line ends around a file's text. */
static void trim(struct str *s)
{
    size_t front = 0;

    while (s->len && strchr(" \t\r\n", s->data[s->len - 1]))
        s->data[--s->len] = '\0';
    while (front < s->len && strchr(" \t\r\n", s->data[front]))
        front++;
    str_consume(s, front);
}

static int load_account(struct kube_auth *a, struct err *err)
{
    CLEANUP(str_release) struct str url = STR_INIT(1024);
    CLEANUP(str_release) struct str ns = STR_INIT(1024);
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    struct kubeconfig *k = &a->config;

    if (!host || !port)
        return err_set(err, ERR_INVALID,
                       "not in a pod (no KUBERNETES_SERVICE_HOST) and no --kubeconfig");
    str_addf(&url, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
    if (str_check(&url, "server", err) || file_read(ACCOUNT "namespace", &ns, err))
        return -(int)err->code;
    trim(&ns);
    if (copy(str_text(&url), &k->server, err) || copy(str_text(&ns), &k->namespace, err) ||
        copy(ACCOUNT "ca.crt", &k->ca_file, err) || copy(ACCOUNT "token", &k->token_file, err))
        return -(int)err->code;
    return 0;
}

static int load_kubeconfig(struct kube_auth *a, const char *path, struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(FILE_MAX);
    CLEANUP(mem_freep) char *folder = NULL;
    const char *slash = strrchr(path, '/');

    folder = slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
    if (!folder)
        return err_set(err, ERR_NO_MEMORY, "kubeconfig");
    if (file_read(path, &text, err) ||
        kubeconfig_parse(str_text(&text), text.len, folder, &a->config, err))
        return err_wrap(err, "\"%s\"", path);
    return 0;
}

int kube_auth_load(const char *kubeconfig, const struct clock *clock, struct kube_auth **ret,
                   struct err *err)
{
    CLEANUP(kube_auth_freep) struct kube_auth *a = mem_calloc(1, sizeof(*a));
    int r;

    if (!a)
        return err_set(err, ERR_NO_MEMORY, "credentials");
    a->clock = clock;
    a->token.max = KUBE_TOKEN_MAX;
    (void)pthread_mutex_init(&a->lock, NULL);
    r = kubeconfig && kubeconfig[0] ? load_kubeconfig(a, kubeconfig, err) : load_account(a, err);
    if (r)
        return r;
    *ret = TAKE_PTR(a);
    return 0;
}

void kube_auth_free(struct kube_auth *a)
{
    if (!a)
        return;
    kubeconfig_release(&a->config);
    str_release(&a->token);
    (void)pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

const char *kube_auth_server(const struct kube_auth *a)
{
    return a->config.server;
}

const char *kube_auth_namespace(const struct kube_auth *a)
{
    return a->config.namespace ? a->config.namespace : "default";
}

void kube_auth_fill(const struct kube_auth *a, struct http_client_options *o)
{
    const struct kubeconfig *k = &a->config;

    o->ca_file = k->ca_file;
    o->ca_pem = k->ca_pem;
    o->cert_file = k->cert_file;
    o->cert_pem = k->cert_pem;
    o->key_file = k->key_file;
    o->key_pem = k->key_pem;
    o->tls_server_name = k->tls_server_name;
    o->insecure_skip_verify = k->insecure_skip_verify;
}

static int reread(struct kube_auth *a, uint64_t now, struct err *err)
{
    CLEANUP(str_release) struct str fresh = STR_INIT(KUBE_TOKEN_MAX);
    int r = file_read(a->config.token_file, &fresh, err);

    /* While the file is being replaced the old token is still the best we have. */
    if (r && a->token.len == 0)
        return err_wrap(err, "service account token");
    if (r == 0) {
        trim(&fresh);
        str_clear(&a->token);
        str_add(&a->token, str_text(&fresh), fresh.len);
    }
    a->token_read_ms = now;
    return str_check(&a->token, "token", err);
}

int kube_auth_token(struct kube_auth *a, struct str *out, struct err *err)
{
    uint64_t now = clock_ms(a->clock) + 1; /* never 0 */
    int r = 0;

    str_clear(out);
    if (a->config.token)
        str_adds(out, a->config.token);
    if (a->config.token || !a->config.token_file)
        return str_check(out, "token", err);
    (void)pthread_mutex_lock(&a->lock);
    if (a->token_read_ms == 0 || now - a->token_read_ms >= REREAD_MS)
        r = reread(a, now, err);
    if (r == 0)
        str_add(out, str_text(&a->token), a->token.len);
    (void)pthread_mutex_unlock(&a->lock);
    return r ? r : str_check(out, "token", err);
}

void kube_auth_refused(struct kube_auth *a)
{
    (void)pthread_mutex_lock(&a->lock);
    a->token_read_ms = 0;
    (void)pthread_mutex_unlock(&a->lock);
}

uint64_t kube_auth_version(struct kube_auth *a)
{
    const char *files[] = {a->config.ca_file, a->config.cert_file, a->config.key_file};
    uint64_t now = clock_ms(a->clock) + 1, stamps = 0, version;

    (void)pthread_mutex_lock(&a->lock);
    if (a->version_read_ms == 0 || now - a->version_read_ms >= REREAD_MS) {
        for (size_t i = 0; i < 3; i++)
            stamps = stamps * 31 + (files[i] ? file_stamp(files[i]) : 0);
        if (stamps != a->stamps)
            a->version++;
        a->stamps = stamps;
        a->version_read_ms = now;
    }
    version = a->version;
    (void)pthread_mutex_unlock(&a->lock);
    return version;
}
