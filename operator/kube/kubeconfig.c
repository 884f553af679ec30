/* SPDX-License-Identifier: Apache-2.0
 *
 * kubeconfig.c - the file kubectl reads, as far as a service needs it.
 *
 * Certificates and tokens, inline or in files.  Credential plug-ins (exec, auth-provider) and
 * passwords are refused by name: better than a 401 nobody can explain.
 */
#include "operator/kube/kubeconfig.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/url.h"
#include "base/yaml.h"
#include "operator/kube/base64.h"

enum { PEM_MAX = 256 << 10 };

static const struct json_limits LIMITS = {
        .bytes_max = 4u << 20, .depth_max = 32, .values_max = 100000};

void kubeconfig_release(struct kubeconfig *k)
{
    char **texts[] = {&k->server,     &k->ca_file,   &k->ca_pem,         &k->cert_file,
                      &k->cert_pem,   &k->key_file,  &k->key_pem,        &k->token,
                      &k->token_file, &k->namespace, &k->tls_server_name};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        mem_free(*texts[i]);
    *k = (struct kubeconfig){0};
}

/* The entry called 'name' of one of the three lists, and in it the object 'inner'. */
static const cJSON *entry(const cJSON *doc, const char *list, const char *name, const char *inner)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, json_get(doc, list))
    {
        if (strcmp(json_str(e, "name", ""), name) == 0)
            return json_get(e, inner);
    }
    return NULL;
}

static int copy_text(const cJSON *obj, const char *key, char **ret, struct err *err)
{
    const char *s = json_str(obj, key, NULL);

    if (!s || s[0] == '\0')
        return 0;
    *ret = mem_strdup(s);
    return *ret ? 0 : err_set(err, ERR_NO_MEMORY, "kubeconfig");
}

static int copy_path(const cJSON *obj, const char *key, const char *folder, char **ret,
                     struct err *err)
{
    CLEANUP(str_release) struct str path = STR_INIT(8192);
    const char *s = json_str(obj, key, NULL);

    if (!s || s[0] == '\0')
        return 0;
    if (s[0] != '/')
        str_addf(&path, "%s/", folder);
    str_adds(&path, s);
    *ret = str_take(&path);
    return *ret ? 0 : err_set(err, ERR_NO_MEMORY, "kubeconfig");
}

static int copy_base64(const cJSON *obj, const char *key, char **ret, struct err *err)
{
    CLEANUP(str_release) struct str pem = STR_INIT(PEM_MAX);
    const char *s = json_str(obj, key, NULL);

    if (!s || s[0] == '\0')
        return 0;
    if (base64_decode(s, &pem, err))
        return err_wrap(err, "kubeconfig: %s", key);
    *ret = str_take(&pem);
    return *ret ? 0 : err_set(err, ERR_NO_MEMORY, "kubeconfig");
}

static int parse_cluster(const cJSON *cluster, const char *folder, struct kubeconfig *k,
                         struct err *err)
{
    struct url *url = mem_calloc(1, sizeof(*url));
    size_t n;
    int r;

    if (!url)
        return err_set(err, ERR_NO_MEMORY, "kubeconfig");
    r = url_parse(json_str(cluster, "server", ""), url, err);
    mem_free(url);
    if (r)
        return err_wrap(err, "kubeconfig: cluster's server");
    k->insecure_skip_verify = json_bool(cluster, "insecure-skip-tls-verify", false);
    if (copy_text(cluster, "server", &k->server, err) ||
        copy_text(cluster, "tls-server-name", &k->tls_server_name, err) ||
        copy_base64(cluster, "certificate-authority-data", &k->ca_pem, err))
        return -(int)err->code;
    n = strlen(k->server);
    while (n && k->server[n - 1] == '/')
        k->server[--n] = '\0';
    return k->ca_pem ? 0 : copy_path(cluster, "certificate-authority", folder, &k->ca_file, err);
}

static int parse_user(const cJSON *user, const char *folder, struct kubeconfig *k, struct err *err)
{
    static const char *const refused[] = {"exec", "auth-provider", "username", "password", "as"};

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (json_get(user, refused[i]))
            return err_set(err, ERR_INVALID,
                           "kubeconfig: \"%s\" is not supported; use a client certificate, token "
                           "or tokenFile",
                           refused[i]);
    }
    if (copy_base64(user, "client-certificate-data", &k->cert_pem, err) ||
        copy_base64(user, "client-key-data", &k->key_pem, err) ||
        copy_text(user, "token", &k->token, err) ||
        copy_path(user, "tokenFile", folder, &k->token_file, err))
        return -(int)err->code;
    if (!k->cert_pem && copy_path(user, "client-certificate", folder, &k->cert_file, err))
        return -(int)err->code;
    if (!k->key_pem && copy_path(user, "client-key", folder, &k->key_file, err))
        return -(int)err->code;
    if ((k->cert_pem || k->cert_file) != (k->key_pem || k->key_file))
        return err_set(err, ERR_INVALID, "kubeconfig: certificate and key go together");
    return 0;
}

static int parse_document(const cJSON *doc, const char *folder, struct kubeconfig *k,
                          struct err *err)
{
    const char *name = json_str(doc, "current-context", "");
    const cJSON *context, *cluster, *user;
    int r;

    if (name[0] == '\0')
        return err_set(err, ERR_INVALID, "kubeconfig: no current-context");
    context = entry(doc, "contexts", name, "context");
    if (!context)
        return err_set(err, ERR_INVALID, "kubeconfig: no context \"%.100s\"", name);
    cluster = entry(doc, "clusters", json_str(context, "cluster", ""), "cluster");
    if (!cluster)
        return err_set(err, ERR_INVALID, "kubeconfig: no cluster \"%.100s\"",
                       json_str(context, "cluster", ""));
    user = entry(doc, "users", json_str(context, "user", ""), "user");
    r = parse_cluster(cluster, folder, k, err);
    if (r == 0)
        r = copy_text(context, "namespace", &k->namespace, err);
    return r ? r : parse_user(user, folder, k, err);
}

int kubeconfig_parse(const char *text, size_t len, const char *folder, struct kubeconfig *ret,
                     struct err *err)
{
    CLEANUP(json_freep) cJSON *doc = NULL;
    struct kubeconfig k = {0};
    int r = yaml_parse(text, len, &LIMITS, &doc, err);

    if (r)
        return err_wrap(err, "kubeconfig");
    r = parse_document(doc, folder, &k, err);
    if (r) {
        kubeconfig_release(&k);
        return r;
    }
    *ret = k;
    return 0;
}
