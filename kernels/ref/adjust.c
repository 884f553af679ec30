/* SPDX-License-Identifier: Apache-2.0
 *
 * adjust.c - penalties, biases and masks on rows of logits.
 *
 * The lists name few tokens of many, so they are walked and the row is not; only a mask looks at
 * every token.
 */
#include <math.h>

#include "kernels/ref/ref.h"

static float penalised(const struct k_adjustment *row, const struct k_seen *seen, float logit)
{
    if (seen->n_prompt > 0 || seen->n_output > 0)
        logit = logit > 0 ? logit / row->repetition : logit * row->repetition;
    if (seen->n_output > 0)
        logit -= row->presence + row->frequency * (float)seen->n_output;
    return logit;
}

static void forbid(float *logits, const uint32_t *mask, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if ((mask[i / 32] >> (i % 32) & 1) == 0)
            logits[i] = -INFINITY;
}

void k_ref_adjust(const struct k_adjust *a, uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        const struct k_adjustment *row = &a->rows[r];
        float *logits = a->logits + (size_t)r * a->n_vocab;

        for (uint32_t i = 0; i < row->n_seen; i++) {
            const struct k_seen *seen = &a->seen[row->first_seen + i];

            logits[seen->id] = penalised(row, seen, logits[seen->id]);
        }
        for (uint32_t i = 0; i < row->n_biases; i++)
            logits[a->biases[row->first_bias + i].id] += a->biases[row->first_bias + i].value;
        if (row->masked)
            forbid(logits, a->masks + (size_t)row->mask * k_mask_words(a->n_vocab), a->n_vocab);
    }
}
