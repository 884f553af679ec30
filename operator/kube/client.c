/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c - one request, one answer.
 *
 * Every write of the operator passes kube_do(), which is where leadership is asked for: a process
 * that was stopped for half a minute and wakes up in the middle of a reconcile must not write in
 * the name of a lease it no longer has.
 */
#include "operator/kube/client.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "operator/kube/answer.h"

enum { TIMEOUT_MS = 30000, REPLY_MAX = 64 << 20, URL_MAX = 16 << 10, BODY_MAX = 64 << 10 };

struct kube_client {
    struct kube_client_options opt;
    struct http_client *http;
    uint64_t auth_version;
    int64_t retry_after_ms;
    struct str url, token;
};

int kube_client_new(const struct kube_client_options *o, struct kube_client **ret, struct err *err)
{
    struct kube_client *c = mem_calloc(1, sizeof(*c));

    if (!c)
        return err_set(err, ERR_NO_MEMORY, "API client");
    c->opt = *o;
    if (c->opt.timeout_ms == 0)
        c->opt.timeout_ms = TIMEOUT_MS;
    c->url.max = URL_MAX;
    c->token.max = KUBE_TOKEN_MAX;
    *ret = c;
    return 0;
}

void kube_client_free(struct kube_client *c)
{
    if (!c)
        return;
    http_client_free(c->http);
    str_release(&c->url);
    str_release(&c->token);
    mem_free(c);
}

int64_t kube_client_retry_after_ms(const struct kube_client *c)
{
    return c->retry_after_ms;
}

/* Made on first use, and anew when a certificate was rotated. */
static int connect_http(struct kube_client *c, struct err *err)
{
    struct http_client_options o = {.connect_timeout_ms = 5000};
    uint64_t version = kube_auth_version(c->opt.auth);

    if (c->http && version == c->auth_version)
        return 0;
    http_client_free(c->http);
    c->http = NULL;
    kube_auth_fill(c->opt.auth, &o);
    c->auth_version = version;
    return http_client_new(&o, &c->http, err);
}

static int send_once(struct kube_client *c, const struct kube_request *q, struct http_reply *reply,
                     struct err *err)
{
    char content_type[96] = "Content-Type: application/json";
    struct http_call call = {.method = q->method,
                             .timeout_ms = c->opt.timeout_ms,
                             .reply_max = REPLY_MAX,
                             .cancel = c->opt.cancel,
                             .headers = {"Accept: application/json"}};
    int r = connect_http(c, err);

    if (r == 0)
        r = kube_auth_token(c->opt.auth, &c->token, err);
    if (r)
        return r;
    if (q->body) {
        if (q->content_type)
            (void)snprintf(content_type, sizeof(content_type), "Content-Type: %s", q->content_type);
        call.headers[1] = content_type;
        call.body = q->body;
        call.body_len = strlen(q->body);
    }
    call.url = str_text(&c->url);
    call.bearer = c->token.len ? str_text(&c->token) : NULL;
    r = http_client_do(c->http, &call, reply, err);
    if (c->opt.on_answer)
        c->opt.on_answer(c->opt.userdata, q->method ? q->method : "GET", reply->status);
    return r;
}

static int make_url(struct kube_client *c, const struct kube_request *q, struct err *err)
{
    str_clear(&c->url);
    str_adds(&c->url, kube_auth_server(c->opt.auth));
    kube_path(q->resource, q->namespace, q->name, q->subresource, &c->url);
    if (q->query)
        str_addf(&c->url, "?%s", q->query);
    return str_check(&c->url, "URL", err);
}

static bool is_write(const struct kube_request *q)
{
    return q->method && strcmp(q->method, "GET") != 0;
}

int kube_do(struct kube_client *c, const struct kube_request *q, cJSON **ret, struct err *err)
{
    CLEANUP(http_reply_release) struct http_reply reply;
    int r = make_url(c, q, err);

    http_reply_init(&reply);
    c->retry_after_ms = 0;
    if (r)
        return r;
    if (is_write(q) && c->opt.may_write && !c->opt.may_write(c->opt.userdata))
        return err_set(err, ERR_CANCELED, "not the leader");
    r = send_once(c, q, &reply, err);
    if (r == 0 && reply.status == 401) {
        kube_auth_refused(c->opt.auth);
        http_reply_release(&reply);
        http_reply_init(&reply);
        r = send_once(c, q, &reply, err);
    }
    if (r)
        return r;
    if (reply.status < 200 || reply.status > 299) {
        c->retry_after_ms = reply.retry_after_ms > 0 ? reply.retry_after_ms : 0;
        return kube_answer_error(reply.status, str_text(&reply.body), reply.body.len, err);
    }
    return ret ? kube_answer_parse(reply.body.data, reply.body.len, ret, err) : 0;
}

int kube_get(struct kube_client *c, const struct kube_resource *r, const char *namespace,
             const char *name, cJSON **ret, struct err *err)
{
    struct kube_request q = {.resource = r, .namespace = namespace, .name = name};

    return kube_do(c, &q, ret, err);
}

int kube_apply(struct kube_client *c, const struct kube_resource *r, const char *namespace,
               const char *name, const char *subresource, const char *manager, const char *body,
               cJSON **ret, struct err *err)
{
    CLEANUP(str_release) struct str query = STR_INIT(512);
    struct kube_request q = {.method = "PATCH",
                             .resource = r,
                             .namespace = namespace,
                             .name = name,
                             .subresource = subresource,
                             .content_type = "application/apply-patch+yaml",
                             .body = body};

    str_adds(&query, "force=true&fieldManager=");
    kube_encode(manager, &query);
    q.query = str_text(&query);
    return kube_do(c, &q, ret, err);
}

int kube_create(struct kube_client *c, const struct kube_resource *r, const char *namespace,
                const char *body, cJSON **ret, struct err *err)
{
    struct kube_request q = {.method = "POST", .resource = r, .namespace = namespace, .body = body};

    return kube_do(c, &q, ret, err);
}

int kube_delete(struct kube_client *c, const struct kube_resource *r, const char *namespace,
                const char *name, const char *uid, struct err *err)
{
    CLEANUP(str_release) struct str body = STR_INIT(BODY_MAX);
    struct kube_request q = {
            .method = "DELETE", .resource = r, .namespace = namespace, .name = name};
    int result;

    str_addf(&body,
             "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\","
             "\"propagationPolicy\":\"Background\",\"preconditions\":{\"uid\":\"%s\"}}",
             uid);
    if (str_check(&body, "delete options", err))
        return -(int)err->code;
    q.body = str_text(&body);
    result = kube_do(c, &q, NULL, err);
    return result == -ERR_NOT_FOUND ? 0 : result;
}
