/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For C the host API alone, for C++ launches and what kernels may name as well. */

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "vgpu_launch.h"

#include "vgpu_device.h"
#endif
