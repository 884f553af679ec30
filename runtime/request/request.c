/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/request/request.h"

#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

int request_new(const int32_t *prompt, uint32_t n_prompt, uint32_t max_tokens, struct request **ret,
                struct err *err)
{
    struct request *r = mem_calloc(1, sizeof(*r));

    ASSERT(n_prompt > 0 && max_tokens > 0);
    if (r)
        r->tokens = mem_calloc((size_t)n_prompt + max_tokens, sizeof(*r->tokens));
    if (!r || !r->tokens) {
        mem_free(r);
        return err_set(err, ERR_NO_MEMORY, "request of %u tokens", n_prompt + max_tokens);
    }
    memcpy(r->tokens, prompt, n_prompt * sizeof(*prompt));
    r->n_prompt = n_prompt;
    r->max_tokens = max_tokens;
    atomic_init(&r->refs, 1);
    *ret = r;
    return 0;
}

void request_ref(struct request *r)
{
    atomic_fetch_add(&r->refs, 1);
}

void request_unref(struct request *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    mem_free(r->tokens);
    mem_free(r);
}

void request_end(struct request *r, enum finish_reason why)
{
    int none = FINISH_NONE;

    (void)atomic_compare_exchange_strong(&r->cancel, &none, (int)why);
}
