/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/request/inbox.h"
#include "runtime/telemetry/health.h"
#include "runtime/telemetry/runtime_metrics.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

struct logger;

/* The two listeners: the OpenAI API, and health + metrics on a port and thread of their own.  Both
 * serve from the first moment; generation is refused with 503 until api_set_model(). */
struct api;

struct api_options {
    const char *host, *metrics_host;
    uint16_t port, metrics_port;
    unsigned n_threads, n_text_workers;
    unsigned connections_max, connections_per_address_max;
    size_t body_bytes_max;
    const char *const *api_keys; /* NULL or empty: open; borrowed, as all pointers here */
    size_t n_api_keys;
    const char *model_name;
    struct health *health;
    struct runtime_metrics *metrics;
    struct logger *logger;
};

/* What arrives once the model is loaded; borrowed. */
struct api_model {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; /* NULL: the model has none */
    struct inbox *inbox;
    uint32_t context_max; /* prompt and output of one request */
    uint64_t created_s;   /* wall clock, for /v1/models */
};

int api_start(const struct api_options *o, struct api **ret, struct err *err) MUST_CHECK;
uint16_t api_port(const struct api *a);
uint16_t api_metrics_port(const struct api *a);
/* Once.  From now on requests are served. */
void api_set_model(struct api *a, const struct api_model *m);
/* Answers carry Connection: close; requests are still taken. */
void api_drain(struct api *a);
/* New generation requests get 503. */
void api_refuse(struct api *a);
/* Generations under way, from the handler to the end of the answer. */
unsigned api_in_progress(const struct api *a);
/* Ends every connection and stops listeners and workers.  The engine still runs (its requests are
 * cancelled, and this waits for their end) or has ended every request. */
void api_free(struct api *a);
DEFINE_FREEP(api)
