/* SPDX-License-Identifier: Apache-2.0
 * size: why - a table.
 */
#include "runtime/options.h"

#include <stddef.h>

#define AT(f) .offset = offsetof(struct serve_options, f)

const struct option SERVE_OPTIONS[] = {
        {"model", OPTION_STR, AT(model), NULL, 0, 0, NULL, "Model", "SOURCE",
         "What to serve: a GGUF file's path, file://PATH, https://HOST/FILE.gguf or "
         "hf://ORG/REPO/FILE.gguf (HF_ENDPOINT and HF_TOKEN are honoured).",
         {"model-path", "m"}, false},
        {"served-model-name", OPTION_STR, AT(served_model_name), NULL, 0, 0, NULL, "Model", "NAME",
         "The 'model' clients ask for; the file's name if not given.",
         {"model-name", "alias"}, false},
        {"model-sha256", OPTION_STR, AT(model_sha256), NULL, 0, 0, NULL, "Model", "HEX",
         "Refuse a downloaded file whose SHA-256 is another.", {NULL}, false},
        {"cache-dir", OPTION_STR, AT(cache_dir), "/var/cache/penstock", 0, 0, NULL, "Model", "DIR",
         "Where downloads are kept; an interrupted one goes on from there.",
         {"download-dir"}, false},
        {"allow-private-sources", OPTION_BOOL, AT(allow_private_sources), "false", 0, 0, NULL,
         "Model", NULL, "Also download from loopback, private and link-local addresses.", {NULL},
         false},
        {"chat-template", OPTION_STR, AT(chat_template), NULL, 0, 0, NULL, "Model", "PATH",
         "A Jinja file to use instead of the model's own chat template.",
         {"chat-template-file"}, false},

        {"host", OPTION_STR, AT(host), "127.0.0.1", 0, 0, NULL, "API", "ADDRESS",
         "Address the API listens on; 0.0.0.0 or :: for all.", {NULL}, false},
        {"port", OPTION_I64, AT(port), "8000", 0, 65535, NULL, "API", "N",
         "Port of the API; 0 picks a free one and logs it.", {NULL}, false},
        {"metrics-host", OPTION_STR, AT(metrics_host), "127.0.0.1", 0, 0, NULL, "API", "ADDRESS",
         "Address of the health and metrics listener.", {NULL}, false},
        {"metrics-port", OPTION_I64, AT(metrics_port), "8001", 0, 65535, NULL, "API", "N",
         "Port of /livez, /readyz, /startupz and /metrics; 0 picks a free one.", {NULL}, false},
        {"api-key", OPTION_LIST, AT(api_keys), NULL, 0, 0, NULL, "API", "KEY",
         "Clients must send this key; may be given again. Better: --api-key-file.", {NULL}, true},
        {"api-key-file", OPTION_STR, AT(api_key_file), NULL, 0, 0, NULL, "API", "PATH",
         "File with one key a line.", {NULL}, false},
        {"http-threads", OPTION_I64, AT(http_threads), "1", 1, 64, NULL, "API", "N",
         "Threads that read and write connections.", {NULL}, false},
        {"text-workers", OPTION_I64, AT(text_workers), "1", 1, 16, NULL, "API", "N",
         "Threads that tokenise and detokenise.", {NULL}, false},
        {"max-connections", OPTION_I64, AT(max_connections), "1024", 1, 65536, NULL, "API", "N",
         "Connections at once; more are closed.", {NULL}, false},
        {"max-connections-per-address", OPTION_I64, AT(max_connections_per_address), "0", 0, 65536,
         NULL, "API", "N", "Connections from one address; 0: no limit of its own.", {NULL}, false},
        {"max-body", OPTION_BYTES, AT(max_body), "8MiB", 1024, 1073741824, NULL, "API", "SIZE",
         "Largest request body; a larger one gets 413.", {NULL}, false},

        {"device", OPTION_CHOICE, AT(device), "auto", 0, 0, "auto cpu ref", "Engine", "NAME",
         "Where to compute; ref is the slow reference for tests.", {NULL}, false},
        {"threads", OPTION_I64, AT(threads), "0", 0, 256, NULL, "Engine", "N",
         "Compute threads; 0: what the cgroup allows.", {"t"}, false},
        {"max-num-seqs", OPTION_I64, AT(max_num_seqs), "64", 1, 1024, NULL, "Engine", "N",
         "Requests computed together; more wait.",
         {"max-batch-size", "max-running-requests", "parallel"}, false},
        {"max-num-batched-tokens", OPTION_I64, AT(max_num_batched_tokens), "512", 16, 65536, NULL,
         "Engine", "N", "Tokens a step, prompts and decodes together.",
         {"chunked-prefill-size", "batch-size"}, false},
        {"max-model-len", OPTION_I64, AT(max_model_len), "0", 0, 1048576, NULL, "Engine", "N",
         "Tokens of one request, prompt and answer; 0: the model's own, as memory allows.",
         {"context-length", "ctx-size"}, false},
        {"kv-cache-memory", OPTION_BYTES, AT(kv_cache_memory), "0", 0, 1e15, NULL, "Engine", "SIZE",
         "Memory for keys and values; 0: a quarter of what the cgroup allows, at most what "
         "--max-num-seqs full requests need.",
         {"kv-cache-memory-bytes"}, false},
        {"max-queue-requests", OPTION_I64, AT(max_queue_requests), "256", 1, 65536, NULL, "Engine",
         "N", "Requests that may wait; more get 429 with Retry-After.",
         {"max-num-queued-reqs", "max-queued-requests"}, false},
        {"max-queue-tokens", OPTION_I64, AT(max_queue_tokens), "262144", 1, 1e9, NULL, "Engine",
         "N", "Prompt tokens that may wait; beyond: 429.", {"max-num-queued-tokens"}, false},
        {"hang-limit", OPTION_MS, AT(hang_limit_ms), "5m", 1000, 86400000, NULL, "Engine", "TIME",
         "A step longer than this makes /livez fail.", {"watchdog-timeout"}, false},

        {"drain-grace", OPTION_MS, AT(drain_grace_ms), "5s", 0, 600000, NULL, "Leaving", "TIME",
         "After SIGTERM requests are still taken for so long, since endpoints change late.",
         {NULL}, false},
        {"drain-timeout", OPTION_MS, AT(drain_timeout_ms), "60s", 0, 86400000, NULL, "Leaving",
         "TIME", "After the grace, running requests have so long to end; then they get an error.",
         {"shutdown-timeout"}, false},

        {"log-format", OPTION_CHOICE, AT(log_format), "json", 0, 0, "json text", "Logging", "NAME",
         "JSON lines for machines, text for people.", {NULL}, false},
        {"log-level", OPTION_CHOICE, AT(log_level), "info", 0, 0, "error warn info debug",
         "Logging", "NAME", "What to log, on standard error.", {NULL}, false},
        {"metric-aliases", OPTION_BOOL, AT(metric_aliases), "true", 0, 0, NULL, "Logging", NULL,
         "Also export the vllm: and openllm_ names of metrics.", {NULL}, false},
        {"config", OPTION_STR, AT(config), NULL, 0, 0, NULL, "Logging", "PATH",
         "YAML file with any of these options.", {NULL}, false},
        {"print-config", OPTION_BOOL, AT(print_config), "false", 0, 0, NULL, "Logging", NULL,
         "Print the effective options as such a file and exit.", {NULL}, false},
};

const size_t SERVE_OPTIONS_COUNT = sizeof(SERVE_OPTIONS) / sizeof(SERVE_OPTIONS[0]);
