/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/cleanup.h"
#include "base/err.h"
#include "base/metrics.h"

/* All series of the runtime, made at start: nothing a client sends can create one.  Gauges are set
 * at each transition, not by a step of the engine, so they are true while it is idle too. */

enum { RUNTIME_ENDPOINTS = 5, RUNTIME_CODES = 12, RUNTIME_FINISHES = 4, RUNTIME_REJECTS = 4 };

enum runtime_reject { REJECT_QUEUE_FULL, REJECT_LOADING, REJECT_DRAINING, REJECT_TOO_LONG };

struct runtime_metrics {
    struct metrics *all;
    /* from the start */
    struct metric *requests[RUNTIME_ENDPOINTS][RUNTIME_CODES]; /* runtime_metrics_answer() */
    struct metric *finished[RUNTIME_FINISHES];                 /* stop, length, abort, error */
    struct metric *rejected[RUNTIME_REJECTS];
    struct metric *loaded_bytes, *ready;
    struct metric *process[3];
    /* from runtime_metrics_serving() on; NULL before */
    struct metric *requests_all, *requests_failed;
    struct metric *queue_length, *queue_tokens, *running, *in_progress;
    struct metric *kv_usage, *kv_blocks, *kv_blocks_used, *preemptions;
    struct metric *tokens, *prompt_tokens, *generated_tokens;
    struct metric *ttft, *itl, *request_seconds, *queue_seconds, *prefill_seconds, *decode_seconds;
    struct metric *batch_sequences, *batch_tokens;
};

/* model_name stands as a label on every series; aliases: the vllm: and openllm_ names too. */
int runtime_metrics_new(const char *model_name, bool aliases, struct runtime_metrics **ret,
                        struct err *err) MUST_CHECK;
void runtime_metrics_free(struct runtime_metrics *m);
DEFINE_FREEP(runtime_metrics)

/* The model is loaded: the gauges of queue, batch and cache come into being.  A pod that is still
 * loading exports none of them, so that no autoscaler takes it for an idle one. */
int runtime_metrics_serving(struct runtime_metrics *m, uint32_t block_size, uint32_t n_blocks,
                            struct err *err) MUST_CHECK;
/* Count an answer.  endpoint: the routed path, "health" or "other". */
void runtime_metrics_answer(struct runtime_metrics *m, const char *endpoint, int status);
/* The table, for docs/reference. */
const struct metric_desc *runtime_metrics_table(size_t *ret_n);
