/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a pod's /metrics: figures that can be ones, or none. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "operator/scaling/exposition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const char *text = (const char *)data, *end = text + len;
    struct exposition_series s;
    double sum = -1, mean = -1;
    char label[16];
    bool has_sum = exposition_sum(text, len, "q", &sum);
    bool has_mean = exposition_mean(text, len, "q", &mean);

    ASSERT(has_sum == has_mean);
    if (has_sum)
        ASSERT(isfinite(sum) && isfinite(mean) && mean >= 0 && mean <= sum);
    while (exposition_next(&text, end, "q", &s) > 0) {
        ASSERT(text <= end && s.labels_len <= len);
        if (exposition_label(&s, "uuid", label, sizeof(label)))
            ASSERT(strlen(label) < sizeof(label));
    }
    return 0;
}
