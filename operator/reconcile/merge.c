/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c - enough of strategic merge.
 *
 * A user's podTemplate is laid over ours the way kubectl patch would do it, for the lists that
 * matter in a pod.  The same list keys tell whether a live object still is as we applied it.  The
 * server rewrites some values (quantities into their shortest form), so scalars that differ as
 * text are compared as quantities before they count as drift.
 */
#include "operator/reconcile/merge.h"

#include <string.h>

#include "operator/api/units.h"

/* The member that identifies an element of the list called 'field'; NULL: the list is one value. */
static const char *list_key(const char *field, const cJSON *element)
{
    static const struct {
        const char *field, *key;
    } table[] = {
            {"containers", "name"},        {"initContainers", "name"},
            {"volumes", "name"},           {"env", "name"},
            {"volumeMounts", "mountPath"}, {"imagePullSecrets", "name"},
            {"hostAliases", "ip"},         {"ports", "containerPort"},
            {"ownerReferences", "uid"},    {"volumeDevices", "devicePath"},
    };

    if (!field || !cJSON_IsObject(element))
        return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].field, field) == 0 && json_get(element, table[i].key))
            return table[i].key;
    }
    return strcmp(field, "ports") == 0 && json_get(element, "port") ? "port" : NULL;
}

static cJSON *element_with(cJSON *list, const char *key, const cJSON *value)
{
    cJSON *e;

    cJSON_ArrayForEach(e, list)
    {
        const cJSON *v = json_get(e, key);

        if (v && json_equal(v, value))
            return e;
    }
    return NULL;
}

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NO_MEMORY, "merge of objects");
}

static int add_copy(cJSON *to, const cJSON *v, bool as_member, struct err *err)
{
    cJSON *copy = cJSON_Duplicate(v, true);

    if (copy &&
        (as_member ? cJSON_AddItemToObject(to, v->string, copy) : cJSON_AddItemToArray(to, copy)))
        return 0;
    cJSON_Delete(copy);
    return no_memory(err);
}

/* Of a probe's or volume's several forms one may be set: naming one drops the other. */
static void drop_other_forms(cJSON *base, const char *member)
{
    static const char *const handlers[] = {"httpGet", "exec", "tcpSocket", "grpc"};
    bool is_handler = false;

    for (size_t i = 0; i < 4; i++)
        is_handler = is_handler || strcmp(handlers[i], member) == 0;
    for (size_t i = 0; is_handler && i < 4; i++) {
        if (strcmp(handlers[i], member) != 0)
            cJSON_DeleteItemFromObjectCaseSensitive(base, handlers[i]);
    }
}

static int merge_member(cJSON *base, const cJSON *over, struct err *err);

static int merge_list(cJSON *base, const cJSON *over, const char *field, struct err *err)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, over)
    {
        const char *key = list_key(field, e);
        cJSON *mine = key ? element_with(base, key, json_get(e, key)) : NULL;
        int r;

        /* A volume's source is one of thirty members: ours would stay beside theirs. */
        if (mine && strcmp(field, "volumes") == 0) {
            cJSON_Delete(cJSON_DetachItemViaPointer(base, mine));
            mine = NULL;
        }
        r = mine ? merge_over(mine, e, err) : add_copy(base, e, false, err);
        if (r)
            return r;
    }
    return 0;
}

/* over is a member of an object: put it into base under its name. */
static int merge_member(cJSON *base, const cJSON *over, struct err *err)
{
    cJSON *mine = cJSON_GetObjectItemCaseSensitive(base, over->string);

    drop_other_forms(base, over->string);
    if (cJSON_IsObject(mine) && cJSON_IsObject(over))
        return merge_over(mine, over, err);
    /* An empty list adds nothing to a keyed one; only null takes it away. */
    if (cJSON_IsArray(mine) && cJSON_IsArray(over) &&
        list_key(over->string, over->child ? over->child : mine->child))
        return merge_list(mine, over, over->string, err);
    cJSON_DeleteItemFromObjectCaseSensitive(base, over->string);
    return cJSON_IsNull(over) ? 0 : add_copy(base, over, true, err);
}

/* Depth is bounded by the parser's limit. */
int merge_over(cJSON *base, const cJSON *over, struct err *err)
{
    const cJSON *v;

    cJSON_ArrayForEach(v, over)
    {
        int r = v->string ? merge_member(base, v, err) : 0;

        if (r)
            return r;
    }
    return 0;
}

static bool is_nothing(const cJSON *v)
{
    return cJSON_IsNull(v) || ((cJSON_IsObject(v) || cJSON_IsArray(v)) && !v->child);
}

/* The server leaves zero values out of what it stores. */
static bool is_zero(const cJSON *v)
{
    return (cJSON_IsString(v) && v->valuestring[0] == '\0') || cJSON_IsFalse(v) ||
           (cJSON_IsNumber(v) && !(v->valuedouble < 0) && !(v->valuedouble > 0));
}

static bool same_quantity(const cJSON *a, const cJSON *b)
{
    double value[2];
    const cJSON *both[] = {a, b};
    struct err err;

    for (int i = 0; i < 2; i++) {
        if (cJSON_IsNumber(both[i]))
            value[i] = both[i]->valuedouble;
        else if (!cJSON_IsString(both[i]) || parse_quantity(both[i]->valuestring, &value[i], &err))
            return false;
    }
    return value[0] <= value[1] && value[0] >= value[1];
}

/* Has the list an element of want's key that covers it?  (Nothing stops a user from naming a
 * variable twice.) */
static bool covers_element(const cJSON *live, const cJSON *want, const char *key)
{
    const cJSON *l;

    cJSON_ArrayForEach(l, live)
    {
        if (json_equal(json_get(l, key), json_get(want, key)) && merge_covers(l, want))
            return true;
    }
    return false;
}

static bool covers_list(const cJSON *live, const cJSON *want)
{
    const cJSON *w, *at = live->child;
    bool keyed = list_key(want->string, want->child) != NULL;

    if (!keyed && cJSON_GetArraySize(live) != cJSON_GetArraySize(want))
        return false;
    cJSON_ArrayForEach(w, want)
    {
        const char *key = keyed ? list_key(want->string, w) : NULL;

        if (key ? !covers_element(live, w, key) : !at || !merge_covers(at, w))
            return false;
        at = at ? at->next : NULL;
    }
    return true;
}

bool merge_covers(const cJSON *live, const cJSON *want)
{
    const cJSON *w;

    if (is_nothing(want))
        return true;
    if (!live)
        return is_zero(want);
    if (cJSON_IsObject(want)) {
        cJSON_ArrayForEach(w, want)
        {
            if (!merge_covers(json_get(live, w->string), w))
                return false;
        }
        return cJSON_IsObject(live);
    }
    if (cJSON_IsArray(want))
        return cJSON_IsArray(live) && covers_list(live, want);
    return json_equal(live, want) || same_quantity(live, want);
}
