/* SPDX-License-Identifier: Apache-2.0
 *
 * pod.c - why a pod does not serve.
 *
 * Kubernetes spreads the answer over pod conditions, the waiting reason of a container and the end
 * of its last run.  This file reads them in the order in which they explain most: a container that
 * ended says more than the back-off after it, and the runtime's own last line (its termination
 * message) says more than an exit code.  The texts leave out all that changes by itself, so a
 * status made of them is written once, not with every back-off.
 */
#include "operator/api/pod.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "operator/api/names.h"

enum { LOOP_RESTARTS = 2 }; /* from so many restarts on it is a loop, not a mishap */

bool pod_condition_is_true(const cJSON *pod, const char *type)
{
    const cJSON *c = condition_find(json_path(pod, "status.conditions"), type);

    return strcmp(json_str(c, "status", ""), "True") == 0;
}

static void __attribute__((format(printf, 3, 4)))
blame(struct pod_cause *cause, const char *reason, const char *fmt, ...)
{
    va_list ap;

    (void)snprintf(cause->reason, sizeof(cause->reason), "%s", reason);
    va_start(ap, fmt);
    (void)vsnprintf(cause->message, sizeof(cause->message), fmt, ap);
    va_end(ap);
}

/* What a line of a log says: of a JSON line the error, or else the message, without its time. */
static void read_line(const char *line, size_t len, char *out, size_t size)
{
    CLEANUP(json_freep) cJSON *doc = NULL;
    struct err ignored;

    if (len == 0 || line[0] != '{' ||
        json_parse(line, len, &JSON_LIMITS_DEFAULT, &doc, &ignored) != 0)
        (void)snprintf(out, size, "%.*s", (int)len, line);
    else
        (void)snprintf(out, size, "%s", json_str(doc, "error", json_str(doc, "msg", "")));
}

/* The last line of a termination message that is not empty: the kubelet takes the end of the log
 * when a container left no message of its own. */
static void last_line(const char *message, char *out, size_t size)
{
    const char *end = message + strlen(message), *start;

    while (end > message && strchr(" \r\n\t", end[-1]))
        end--;
    start = end;
    while (start > message && start[-1] != '\n')
        start--;
    read_line(start, (size_t)(end - start), out, size);
}

/* A model source that refuses and a GPU that fails deserve reasons of their own; the runtime's
 * message names the status or the failure (runtime/source, runtime/telemetry/gpu). */
static const char *own_reason(const char *message)
{
    static const struct {
        const char *word, *reason;
    } table[] = {
            {": Xid ", "GPUError"}, /* the device failed, and it says of what */
            {"the device failed", "DeviceFailed"},
            {": 401", "SourceUnauthorized"},
            {": 403", "SourceUnauthorized"},
            {"HTTP 401", "SourceUnauthorized"},
            {"HTTP 403", "SourceUnauthorized"},
            {": 404", "SourceNotFound"},
            {": 410", "SourceNotFound"},
            {"HTTP 404", "SourceNotFound"},
            {"no such file", "SourceNotFound"},
            {"resolve", "SourceUnreachable"},
            {"connect", "SourceUnreachable"},
            {"timed out", "SourceUnreachable"},
            {"private", "SourceRefused"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcasestr(message, table[i].word))
            return table[i].reason;
    }
    return NULL;
}

static void blame_end(const cJSON *container, const cJSON *ended, bool loop,
                      struct pod_cause *cause)
{
    const char *name = json_str(container, "name", "?"), *reason;
    char line[400];

    if (strcmp(json_str(ended, "reason", ""), "OOMKilled") == 0) {
        blame(cause, "OOMKilled",
              "container \"%s\" was killed for memory; raise its memory limit (spec.resources) or "
              "lower spec.runtime.kvCache.memory",
              name);
        return;
    }
    last_line(json_str(ended, "message", ""), line, sizeof(line));
    reason = strcmp(name, RUNTIME_CONTAINER) == 0 ? own_reason(line) : NULL;
    if (!reason)
        reason = loop ? "CrashLoopBackOff" : "ContainerExited";
    if (line[0])
        blame(cause, reason, "container \"%s\": %s", name, line);
    else
        blame(cause, reason, "container \"%s\" ended with exit code %d", name,
              (int)json_int(ended, "exitCode", 0));
}

/* ImagePullBackOff repeats what ErrImagePull said, behind a preamble: one text for both. */
static void blame_image(const cJSON *container, const cJSON *waiting, struct pod_cause *cause)
{
    static const char mark[] = "ErrImagePull: ";
    const char *message = json_str(waiting, "message", ""), *inner = strstr(message, mark);

    if (inner)
        message = inner + strlen(mark);
    if (strncmp(message, "Back-off", 8) == 0)
        message = "";
    blame(cause, "ImagePull", "image \"%s\" of container \"%s\" cannot be pulled%s%.300s",
          json_str(container, "image", "?"), json_str(container, "name", "?"),
          message[0] ? ": " : "", message);
}

/* *ret_stuck: waits for something that no retry of the container itself mends. */
static void look_at_container(const cJSON *container, struct pod_cause *cause, bool *ret_stuck)
{
    const cJSON *state = json_get(container, "state");
    const cJSON *waiting = json_get(state, "waiting"), *ended = json_get(state, "terminated");
    const cJSON *last = json_path(container, "lastState.terminated");
    const char *why = json_str(waiting, "reason", "");
    int64_t restarts = json_int(container, "restartCount", 0);
    bool loop = restarts >= LOOP_RESTARTS || strcmp(why, "CrashLoopBackOff") == 0;

    *ret_stuck = false;
    if (strstr(why, "ImagePull") || strstr(why, "ImageName") || strstr(why, "ImageInspect")) {
        blame_image(container, waiting, cause);
        *ret_stuck = true;
    } else if (strcmp(why, "CreateContainerConfigError") == 0 ||
               strcmp(why, "CreateContainerError") == 0 || strcmp(why, "RunContainerError") == 0) {
        blame(cause, "ContainerConfig", "container \"%s\": %.400s",
              json_str(container, "name", "?"), json_str(waiting, "message", why));
        *ret_stuck = true;
    } else if (ended && json_int(ended, "exitCode", 0) != 0) {
        blame_end(container, ended, loop, cause);
        *ret_stuck = loop;
    } else if (last && restarts > 0 && !json_bool(container, "ready", false)) {
        blame_end(container, last, loop, cause);
        *ret_stuck = loop;
    }
}

static bool look_at_containers(const cJSON *pod, struct pod_cause *cause)
{
    static const char *const lists[] = {"initContainerStatuses", "containerStatuses"};
    bool any_stuck = false;

    for (size_t i = 0; i < 2; i++) {
        const cJSON *c;

        cJSON_ArrayForEach(c, json_get(json_get(pod, "status"), lists[i]))
        {
            struct pod_cause found = {0};
            bool stuck;

            look_at_container(c, &found, &stuck);
            if (found.reason[0] && (!cause->reason[0] || (stuck && !any_stuck)))
                *cause = found;
            any_stuck = any_stuck || stuck;
        }
    }
    return any_stuck;
}

static bool look_at_scheduling(const cJSON *pod, struct pod_cause *cause)
{
    const cJSON *c = condition_find(json_path(pod, "status.conditions"), "PodScheduled");

    if (strcmp(json_str(c, "status", ""), "False") != 0)
        return false;
    blame(cause, "Unschedulable", "%.500s", json_str(c, "message", "no node fits"));
    return true;
}

enum pod_state pod_state_of(const cJSON *pod, const struct pod_signal *signal,
                            struct pod_cause *cause)
{
    struct pod_cause found = {0};
    const char *phase = json_path_str(pod, "status.phase", "");
    enum pod_state state = POD_LOADING;

    if (strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0) {
        blame(&found, json_path_str(pod, "status.reason", "PodFailed"), "%.500s",
              json_path_str(pod, "status.message", "the pod ended"));
        state = POD_GONE;
    } else if (json_path(pod, "metadata.deletionTimestamp")) {
        state = POD_LEAVING;
    } else if (look_at_scheduling(pod, &found) || look_at_containers(pod, &found)) {
        state = POD_FAILING;
    } else if (pod_condition_is_true(pod, "Ready")) {
        state = POD_SERVING;
    } else if (signal && signal->phase == LOAD_FAILED && signal->error[0]) {
        const char *reason = own_reason(signal->error);

        blame(&found, reason ? reason : "StartFailed", "container \"%s\": %s", RUNTIME_CONTAINER,
              signal->error);
        state = POD_FAILING;
    }
    if (cause)
        *cause = found;
    return state;
}
