/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/config.h"

/* Options of 'penstock-runtime serve'.  The table in options.c is the one place that knows them:
 * flag, environment, file, --help and docs/reference are made from it. */
struct serve_options {
    char *config;
    char *model, *served_model_name, *model_sha256, *cache_dir, *chat_template;
    bool allow_private_sources;
    char *host, *metrics_host;
    int64_t port, metrics_port;
    int64_t http_threads, text_workers, max_connections, max_connections_per_address, max_body;
    struct option_list api_keys;
    char *api_key_file;
    char *device;
    int64_t threads, tensor_parallel_size;
    bool no_cuda_graphs;
    double gpu_memory_fraction;
    int64_t max_num_seqs, max_num_batched_tokens, max_model_len, kv_cache_memory;
    int64_t max_queue_requests, max_queue_tokens;
    int64_t drain_grace_ms, drain_timeout_ms, hang_limit_ms;
    char *log_format, *log_level;
    bool metric_aliases;
    bool print_config;
};

extern const struct option SERVE_OPTIONS[];
extern const size_t SERVE_OPTIONS_COUNT;
