/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

/* The operator's options; the table makes flags, environment, file, help and reference. */
struct options {
    char *config;
    char *kubeconfig;
    char *namespace;
    char *runtime_image, *runtime_cuda_image, *runtime_pull_policy, *gpu_runtime_class;
    int64_t workers;
    bool leader_elect;
    char *lease_name;
    char *health_address;
    int64_t health_port;
    char *metrics_api_address;
    int64_t metrics_api_port;
    char *service_name;
    int64_t scrape_interval_ms;
    char *log_level, *log_format;
};

extern const struct option OPTIONS[];
extern const size_t OPTIONS_COUNT;
