/* SPDX-License-Identifier: Apache-2.0
 *
 * registrar.c - certificate, server, APIService; in this order.
 *
 * Every ten seconds: read the Secret (make it, or renew what runs out, when we lead), give the
 * server its certificate, then look at all APIServices of the cluster and register ours, unless
 * somebody else serves any version of the group.  A stranger who comes later wins, too: ours is
 * taken back, because two versions of the group with two backends would split the autoscalers.
 *
 * A steady state is three reads and no write.
 */
#include "operator/scaling/registrar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "operator/api/names.h"
#include "operator/kube/base64.h"
#include "operator/scaling/serving_cert.h"

enum {
    PERIOD_MS = 10000,
    FIRST_PERIOD_MS = 500, /* until the certificate is there */
    RETRY_MS = 3000,
    RENEW_RESERVE_S = 60 * 86400,
    PEM_MAX = 64 << 10,
    BODY_MAX = 256 << 10,
    UID_BYTES = 64,
};

static const struct kube_resource CLUSTER_ROLE = {"rbac.authorization.k8s.io", "v1", "clusterroles",
                                                  "ClusterRole"};

struct registrar {
    struct registrar_options opt;
    char secret[280], dns_name[600];
    pthread_t thread;
    pthread_mutex_t lock; /* over the four below */
    pthread_cond_t changed;
    bool stop;
    enum registrar_state state;
    char owner[API_SERVICE_OWNER_BYTES];
    /* thread only */
    struct kube_client *client;
    struct serving_cert cert;
    char *served; /* the leaf the server has */
    struct metrics_api *api;
};

static int read_secret(const cJSON *secret, struct serving_cert *ret, struct err *err)
{
    static const char *const keys[] = {"ca.crt", "ca.key", "tls.crt", "tls.key"};
    char **texts[] = {&ret->ca_cert, &ret->ca_key, &ret->cert, &ret->key};

    for (size_t i = 0; i < 4; i++) {
        CLEANUP(str_release) struct str pem = STR_INIT(PEM_MAX);

        if (base64_decode(json_str(json_get(secret, "data"), keys[i], ""), &pem, err))
            return err_wrap(err, "secret's %s", keys[i]);
        if (pem.len == 0)
            return err_set(err, ERR_INVALID, "secret without %s", keys[i]);
        *texts[i] = str_take(&pem);
        if (!*texts[i])
            return err_set(err, ERR_NO_MEMORY, "certificate");
    }
    return 0;
}

/* The uid of an object of the chart that owns what we make beside it; "" when there is none (the
 * operator was started by hand). */
static void find_owner(struct registrar *r, const struct kube_resource *resource,
                       const char *namespace, char uid[UID_BYTES])
{
    CLEANUP(json_freep) cJSON *owner = NULL;
    struct err err = {0};

    uid[0] = '\0';
    if (kube_get(r->client, resource, namespace, r->opt.service, &owner, &err) == 0)
        (void)snprintf(uid, UID_BYTES, "%s", json_path_str(owner, "metadata.uid", ""));
}

static void write_owner(struct json_writer *w, const struct registrar *r, const char *uid)
{
    if (uid[0] == '\0')
        return;
    json_key(w, "ownerReferences");
    json_arr(w);
    json_obj(w);
    json_kv_text(w, "apiVersion", "v1");
    json_kv_text(w, "kind", "Service");
    json_kv_text(w, "name", r->opt.service);
    json_kv_text(w, "uid", uid);
    json_end(w);
    json_end(w);
}

static void write_secret(struct registrar *r, struct str *out)
{
    char owner[UID_BYTES];
    const char *const keys[] = {"ca.crt", "ca.key", "tls.crt", "tls.key"};
    const char *const texts[] = {r->cert.ca_cert, r->cert.ca_key, r->cert.cert, r->cert.key};
    struct json_writer w = json_writer_start(out);

    find_owner(r, &KUBE_SERVICE, r->opt.namespace, owner);
    json_obj(&w);
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "kind", "Secret");
    json_kv_text(&w, "type", "kubernetes.io/tls");
    json_key(&w, "metadata");
    json_obj(&w);
    json_kv_text(&w, "name", r->secret);
    json_kv_text(&w, "namespace", r->opt.namespace);
    json_key(&w, "labels");
    json_obj(&w);
    json_kv_text(&w, "app.kubernetes.io/managed-by", "penstock");
    json_end(&w);
    write_owner(&w, r, owner);
    json_end(&w);
    json_key(&w, "data");
    json_obj(&w);
    for (size_t i = 0; i < 4; i++) {
        CLEANUP(str_release) struct str encoded = STR_INIT(PEM_MAX);

        base64_encode(texts[i], strlen(texts[i]), &encoded);
        json_kv_text(&w, keys[i], str_text(&encoded));
    }
    json_end(&w);
    json_end(&w);
}

/* Issue and store; two leaders in a row may both try, then the first one's stays. */
static int renew(struct registrar *r, bool exists, struct err *err)
{
    CLEANUP(str_release) struct str body = STR_INIT(BODY_MAX);
    int result = serving_cert_issue(&r->cert, r->dns_name, err);

    if (result)
        return result;
    write_secret(r, &body);
    result = str_check(&body, "secret", err);
    if (result)
        return result;
    log_info(r->opt.lg, "certificate of the metrics API issued", F_STR("name", r->dns_name));
    if (!exists)
        return kube_create(r->client, &KUBE_SECRET, r->opt.namespace, str_text(&body), NULL, err);
    return kube_apply(r->client, &KUBE_SECRET, r->opt.namespace, r->secret, NULL, FIELD_MANAGER,
                      str_text(&body), NULL, err);
}

static int get_cert(struct registrar *r, struct err *err)
{
    CLEANUP(json_freep) cJSON *secret = NULL;
    int result = kube_get(r->client, &KUBE_SECRET, r->opt.namespace, r->secret, &secret, err);
    bool exists = result == 0;

    if (result && result != -ERR_NOT_FOUND)
        return err_wrap(err, "secret \"%s\"", r->secret);
    serving_cert_release(&r->cert);
    if (exists && read_secret(secret, &r->cert, err))
        log_warn(r->opt.lg, "secret of the metrics API is unusable", F_ERR(err));
    if (serving_cert_is_good(&r->cert, r->dns_name, RENEW_RESERVE_S))
        return 0;
    if (r->opt.is_leader(r->opt.userdata))
        return renew(r, exists, err);
    if (serving_cert_is_good(&r->cert, r->dns_name, 0))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "no certificate yet; the leader makes it");
}

static int serve(struct registrar *r, struct err *err)
{
    struct metrics_api_options o = r->opt.api;
    int result = 0;

    if (r->served && strcmp(r->served, r->cert.cert) == 0)
        return 0;
    if (r->api) {
        result = metrics_api_set_cert(r->api, r->cert.cert, r->cert.key, err);
    } else {
        o.cert_pem = r->cert.cert;
        o.key_pem = r->cert.key;
        result = metrics_api_start(&o, &r->api, err);
    }
    if (result)
        return result;
    mem_free(r->served);
    r->served = mem_strdup(r->cert.cert);
    return 0;
}

static int unregister(struct registrar *r, const cJSON *list, struct err *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, json_get(list, "items"))
    {
        if (strcmp(json_path_str(item, "metadata.name", ""), API_SERVICE_NAME) == 0)
            return kube_delete(r->client, &KUBE_API_SERVICE, NULL, API_SERVICE_NAME,
                               json_path_str(item, "metadata.uid", ""), err);
    }
    return 0;
}

static void set_state(struct registrar *r, enum registrar_state state, const char *owner)
{
    bool differs;

    (void)pthread_mutex_lock(&r->lock);
    differs = r->state != state || strcmp(r->owner, owner) != 0;
    r->state = state;
    (void)snprintf(r->owner, sizeof(r->owner), "%s", owner);
    (void)pthread_mutex_unlock(&r->lock);
    if (!differs)
        return;
    if (state == REGISTRAR_TAKEN)
        log_warn(r->opt.lg, "custom.metrics.k8s.io has another owner", F_STR("owner", owner));
    r->opt.on_change(r->opt.userdata);
}

static int register_service(struct registrar *r, struct err *err)
{
    CLEANUP(json_freep) cJSON *list = NULL;
    CLEANUP(str_release) struct str bundle = STR_INIT(PEM_MAX);
    CLEANUP(str_release) struct str body = STR_INIT(BODY_MAX);
    struct kube_request q = {.resource = &KUBE_API_SERVICE, .query = "limit=1000"};
    char owner[API_SERVICE_OWNER_BYTES], role_uid[UID_BYTES] = "";
    struct api_service_want want = {
            .namespace = r->opt.namespace, .service = r->opt.service, .owner_uid = role_uid};
    bool leads = r->opt.is_leader(r->opt.userdata), ours_too;
    int result = kube_do(r->client, &q, &list, err);

    if (result)
        return err_wrap(err, "APIServices");
    base64_encode(r->cert.ca_cert, strlen(r->cert.ca_cert), &bundle);
    want.ca_bundle = str_text(&bundle);
    switch (api_service_judge(list, &want, owner, &ours_too)) {
    case API_SERVICE_TAKEN:
        if (ours_too && leads)
            result = unregister(r, list, err);
        set_state(r, REGISTRAR_TAKEN, owner);
        return result;
    case API_SERVICE_FREE:
    case API_SERVICE_DRIFT:
        find_owner(r, &CLUSTER_ROLE, NULL, role_uid);
        api_service_write(&want, &body);
        result = str_check(&body, "APIService", err);
        if (result == 0 && leads)
            result = kube_apply(r->client, &KUBE_API_SERVICE, NULL, API_SERVICE_NAME, NULL,
                                FIELD_MANAGER, str_text(&body), NULL, err);
        if (result || !leads)
            return result;
        break;
    case API_SERVICE_OURS:
        break;
    }
    set_state(r, REGISTRAR_SERVING, "");
    return 0;
}

static bool sleep_for(struct registrar *r, unsigned ms)
{
    struct timespec until;
    bool stop;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&r->lock);
    while (!r->stop && pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0) {
    }
    stop = r->stop;
    (void)pthread_mutex_unlock(&r->lock);
    return !stop;
}

static unsigned next_look(struct registrar *r, bool failed)
{
    if (registrar_state(r, NULL) != REGISTRAR_STARTING)
        return PERIOD_MS;
    return failed ? RETRY_MS : FIRST_PERIOD_MS;
}

static void *run(void *arg)
{
    struct registrar *r = arg;
    bool going = true;

    while (going) {
        struct err err = {0};
        int result = get_cert(r, &err);

        if (result == 0)
            result = serve(r, &err);
        if (result == 0)
            result = register_service(r, &err);
        if (result && err.code != ERR_NOT_FOUND)
            log_warn(r->opt.lg, "metrics API is not in place", F_ERR(&err));
        going = sleep_for(r, next_look(r, result && err.code != ERR_NOT_FOUND));
    }
    return NULL;
}

static void registrar_free(struct registrar *r)
{
    metrics_api_stop(r->api);
    kube_client_free(r->client);
    serving_cert_release(&r->cert);
    mem_free(r->served);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

int registrar_start(const struct registrar_options *o, struct registrar **ret, struct err *err)
{
    struct registrar *r = mem_calloc(1, sizeof(*r));
    pthread_condattr_t attr;
    int result;

    if (!r)
        return err_set(err, ERR_NO_MEMORY, "registrar");
    r->opt = *o;
    (void)snprintf(r->secret, sizeof(r->secret), "%.250s-tls", o->service);
    (void)snprintf(r->dns_name, sizeof(r->dns_name), "%.250s.%.250s.svc", o->service, o->namespace);
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    result = kube_client_new(&o->client, &r->client, err);
    if (result == 0 && pthread_create(&r->thread, NULL, run, r))
        result = err_set(err, ERR_NO_MEMORY, "registrar thread");
    if (result) {
        registrar_free(r);
        return result;
    }
    *ret = r;
    return 0;
}

enum registrar_state registrar_state(struct registrar *r, char owner[API_SERVICE_OWNER_BYTES])
{
    enum registrar_state state;

    (void)pthread_mutex_lock(&r->lock);
    state = r->state;
    if (owner)
        memcpy(owner, r->owner, sizeof(r->owner));
    (void)pthread_mutex_unlock(&r->lock);
    return state;
}

void registrar_stop(struct registrar *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_join(r->thread, NULL);
    registrar_free(r);
}
