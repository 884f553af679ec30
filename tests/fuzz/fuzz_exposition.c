/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a pod's /metrics: a count that can be one, or none. */
#include <math.h>
#include <stdint.h>

#include "base/assertion.h"
#include "operator/scaling/exposition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    double v = -1;

    if (exposition_sum((const char *)data, len, "q", &v))
        ASSERT(isfinite(v) && v >= 0);
    return 0;
}
