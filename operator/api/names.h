/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names that stand in objects of a cluster.  They are interface: once released they stay. */
#define API_GROUP "serving.penstock.io"
#define API_VERSION "v1alpha1"
#define API_GROUP_VERSION API_GROUP "/" API_VERSION
#define API_KIND "InferenceService"
#define API_PLURAL "inferenceservices"

#define FIELD_MANAGER "penstock"
#define CONTROLLER_NAME API_GROUP "/operator"
#define LABEL_SERVICE API_GROUP "/service"        /* value: the service's name; our selector */
#define ANNOTATION_APPLIED API_GROUP "/applied"   /* digest of the body we applied */
#define ANNOTATION_TEMPLATE API_GROUP "/template" /* on pods: the revision they come from */
#define ANNOTATION_REFRESH                                                 \
    API_GROUP "/refresh" /* a new value asks for a newly rendered template \
                          */

#define RUNTIME_CONTAINER "runtime"
#define GPU_RESOURCE "nvidia.com/gpu" /* of NVIDIA's device plugin, and the taint of its nodes */
#define PORT_API_NAME "http"
#define PORT_METRICS_NAME "metrics"
enum { PORT_API = 8000, PORT_METRICS = 8001 };

enum { API_NAME_MAX = 52 }; /* of a service: its pods' names add a hash of their own */
