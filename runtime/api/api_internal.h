/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside runtime/api only. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/http_server.h"
#include "base/mailbox.h"
#include "runtime/api/api.h"
#include "runtime/api/api_error.h"

struct job;

enum { API_WORKERS_MAX = 16 };

struct api {
    struct api_options o;
    struct http_server *server, *health_server;
    struct api_model model;
    int32_t end_ids[REQUEST_END_IDS_MAX]; /* the model's: what ends every generation */
    uint32_t n_end_ids;
    atomic_bool has_model, refusing;
    atomic_uint n_jobs;
    unsigned jobs_max;    /* room in the box, too: a job stands in it once at most */
    struct mailbox *work; /* jobs that want a text worker */
    pthread_t workers[API_WORKERS_MAX];
    unsigned n_workers;
};

/* health.c: /livez /readyz /startupz /metrics and kin; false: not one of those paths.  Any thread;
 * reads atomics only. */
bool health_handle(struct api *a, struct http_exchange *x);
/* models.c; the status it answered */
int models_handle(struct api *a, struct http_exchange *x);

/* job.c: take a generation request; answers it now or later. */
void job_start(struct api *a, struct http_exchange *x, bool chat);
/* On a text worker. */
void job_work(struct job *j);
