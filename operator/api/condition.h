/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/json.h"
#include "base/json_writer.h"

enum condition_status { CONDITION_UNKNOWN, CONDITION_TRUE, CONDITION_FALSE };

enum { CONDITION_MESSAGE_BYTES = 640, CONDITION_REASON_BYTES = 64 };

/* metav1.Condition without what follows from the old one. */
struct condition {
    const char *type;
    enum condition_status status;
    char reason[CONDITION_REASON_BYTES];
    char message[CONDITION_MESSAGE_BYTES];
};

void condition_set(struct condition *c, enum condition_status status, const char *reason,
                   const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The condition of this type in a status.conditions list, NULL: none. */
const cJSON *condition_find(const cJSON *conditions, const char *type);
const char *condition_status_name(enum condition_status s);
/* As an object of status.conditions; lastTransitionTime stays unless the status flipped. */
void condition_write(struct json_writer *w, const struct condition *c, int64_t generation,
                     const cJSON *old_conditions, const char *now_rfc3339);
