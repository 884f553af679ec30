/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* Reference answers as tests/golden/make_golden.py writes them (its comment has the format). */
struct golden;

struct golden_position {
    float log_sum_exp;
    float maximum;
    float magnitude;       /* the largest |logit| */
    const uint32_t *ids;   /* [top], best first */
    const uint16_t *below; /* [top] units under the maximum */
};

struct golden_prompt {
    uint32_t n_prompt;
    uint32_t n_total;
    const int32_t *tokens;
    const uint8_t *positions;
};

#define GOLDEN_UNIT (1.0 / 2048)
enum { GOLDEN_FAR = 65535 };

int golden_open(const char *path, struct golden **ret, struct err *err) MUST_CHECK;
void golden_free(struct golden *g);
DEFINE_FREEP(golden)
uint32_t golden_n_vocab(const struct golden *g);
uint32_t golden_top(const struct golden *g);
uint32_t golden_n_prompts(const struct golden *g);
const struct golden_prompt *golden_prompt_at(const struct golden *g, uint32_t i);
struct golden_position golden_position_at(const struct golden *g, const struct golden_prompt *p,
                                          uint32_t i);
/* The text: tokens, and the log-probability of each but the first. */
uint32_t golden_text(const struct golden *g, const int32_t **tokens, const float **probabilities);
