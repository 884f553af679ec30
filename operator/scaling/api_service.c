/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/scaling/api_service.h"

#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"

enum { SERVICE_PORT = 443, GROUP_PRIORITY = 100, VERSION_PRIORITY = 200 };

static bool is_our_backend(const cJSON *spec, const struct api_service_want *want)
{
    const cJSON *service = json_get(spec, "service");

    return strcmp(json_str(service, "name", ""), want->service) == 0 &&
           strcmp(json_str(service, "namespace", ""), want->namespace) == 0;
}

static bool is_as_it_should_be(const cJSON *spec, const struct api_service_want *want)
{
    return strcmp(json_str(spec, "caBundle", ""), want->ca_bundle) == 0 &&
           !json_bool(spec, "insecureSkipTLSVerify", false) &&
           json_int(spec, "groupPriorityMinimum", 0) == GROUP_PRIORITY &&
           json_int(spec, "versionPriority", 0) == VERSION_PRIORITY &&
           json_int(json_get(spec, "service"), "port", SERVICE_PORT) == SERVICE_PORT;
}

enum api_service_state api_service_judge(const cJSON *list, const struct api_service_want *want,
                                         char owner[API_SERVICE_OWNER_BYTES], bool *ret_ours_too)
{
    enum api_service_state state = API_SERVICE_FREE;
    const cJSON *item;
    bool taken = false;

    owner[0] = '\0';
    *ret_ours_too = false;
    cJSON_ArrayForEach(item, json_get(list, "items"))
    {
        const cJSON *spec = json_get(item, "spec"), *service = json_get(spec, "service");
        const char *name = json_path_str(item, "metadata.name", "");

        if (strcmp(json_str(spec, "group", ""), API_SERVICE_GROUP) != 0)
            continue;
        if (!is_our_backend(spec, want)) {
            taken = true;
            (void)snprintf(owner, API_SERVICE_OWNER_BYTES, "service %.80s/%.80s (%.60s)",
                           json_str(service, "namespace", "?"), json_str(service, "name", "?"),
                           json_str(spec, "version", "?"));
        } else if (strcmp(name, API_SERVICE_NAME) == 0) {
            *ret_ours_too = true;
            state = is_as_it_should_be(spec, want) ? API_SERVICE_OURS : API_SERVICE_DRIFT;
        }
    }
    return taken ? API_SERVICE_TAKEN : state;
}

/* The chart's ClusterRole owns the registration: when the chart goes, so does it, instead of
 * staying behind and breaking discovery. */
static void write_owner(struct json_writer *w, const struct api_service_want *want)
{
    if (want->owner_uid[0] == '\0')
        return;
    json_key(w, "ownerReferences");
    json_arr(w);
    json_obj(w);
    json_kv_text(w, "apiVersion", "rbac.authorization.k8s.io/v1");
    json_kv_text(w, "kind", "ClusterRole");
    json_kv_text(w, "name", want->service);
    json_kv_text(w, "uid", want->owner_uid);
    json_end(w);
    json_end(w);
}

void api_service_write(const struct api_service_want *want, struct str *out)
{
    struct json_writer w = json_writer_start(out);

    json_obj(&w);
    json_kv_text(&w, "apiVersion", "apiregistration.k8s.io/v1");
    json_kv_text(&w, "kind", "APIService");
    json_key(&w, "metadata");
    json_obj(&w);
    json_kv_text(&w, "name", API_SERVICE_NAME);
    json_key(&w, "labels");
    json_obj(&w);
    json_kv_text(&w, "app.kubernetes.io/managed-by", "penstock");
    json_end(&w);
    write_owner(&w, want);
    json_end(&w);
    json_key(&w, "spec");
    json_obj(&w);
    json_kv_text(&w, "group", API_SERVICE_GROUP);
    json_kv_text(&w, "version", API_SERVICE_VERSION);
    json_kv_i64(&w, "groupPriorityMinimum", GROUP_PRIORITY);
    json_kv_i64(&w, "versionPriority", VERSION_PRIORITY);
    json_kv_text(&w, "caBundle", want->ca_bundle);
    json_key(&w, "service");
    json_obj(&w);
    json_kv_text(&w, "namespace", want->namespace);
    json_kv_text(&w, "name", want->service);
    json_kv_i64(&w, "port", SERVICE_PORT);
    json_end(&w);
    json_end(&w);
    json_end(&w);
}
