/* SPDX-License-Identifier: Apache-2.0 */

/* Any JSON as an InferenceService: decoded or refused with the field's name; what is decoded can be
 * planned, and planning the result again has nothing to do but the status. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "operator/reconcile/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void plan_twice(const cJSON *cr, const struct inference_service *spec,
                       const struct err *refused, struct arena *mem)
{
    static const struct template_defaults defaults = {.image = "i", .cuda_image = "c"};
    struct observed seen = {.service = cr, .defaults = &defaults};
    const cJSON *revisions[1];
    struct plan first, second;
    struct err err;
    int r = plan_make(spec, refused, &seen, mem, &first, &err);

    ASSERT(r == 0 || r == -ERR_NO_MEMORY || r == -ERR_INVALID);
    if (r)
        return;
    for (size_t i = 0; i < first.n_steps; i++) {
        if (first.steps[i].child == CHILD_REVISION) {
            revisions[0] = first.steps[i].body;
            seen.revisions = revisions;
            seen.n_revisions = 1;
        } else {
            seen.children[first.steps[i].child] = first.steps[i].body;
        }
    }
    ASSERT(plan_make(spec, refused, &seen, mem, &second, &err) == 0);
    ASSERT(second.n_steps == 0);
    plan_release(&second);
    plan_release(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP(arena_freep) struct arena *mem = NULL;
    CLEANUP(json_freep) cJSON *cr = NULL;
    static const struct json_limits limits = {
            .bytes_max = 16384, .depth_max = 16, .values_max = 1000};
    struct inference_service spec;
    struct err err, refused = {0};
    int r;

    if (json_parse((const char *)data, len, &limits, &cr, &err))
        return 0;
    ASSERT(arena_new(16 << 20, &mem, &err) == 0);
    r = inference_service_decode(cr, mem, &spec, &refused);
    ASSERT(r == 0 || (r == -ERR_INVALID && refused.msg[0]));
    plan_twice(cr, &spec, r ? &refused : NULL, mem);
    return 0;
}
