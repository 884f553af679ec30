/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/model/step_plan.h"

/* A loaded model on its device(s), driven by plans.  One thread (the engine's) makes all calls. */
struct model;
struct gguf;

enum {
    MODEL_BLOCK_SIZE = 32, /* tokens a KV block */
    MODEL_STEPS = 2,       /* that may be under way: submitted and not collected */
    MODEL_STEP_TIMEOUT_MS = 120000,
};
#define MODEL_MEMORY_FRACTION 0.9

struct model_options {
    const char *device;       /* "auto", "cpu", "ref" */
    unsigned n_threads;       /* compute threads; 0: what the cgroup allows */
    uint32_t slots_max;       /* sequences at once */
    uint32_t tokens_max;      /* tokens a step */
    uint32_t context_max;     /* positions a sequence may have; 0: the model's own */
    unsigned n_ranks;         /* tensor parallelism: devices that share the model; 0: one */
    bool no_graphs;           /* on a GPU: queue every kernel of a step by itself */
    double memory_fraction;   /* of each GPU's free memory to take; 0: MODEL_MEMORY_FRACTION */
    uint64_t step_timeout_ms; /* a step that takes longer is a lost device; 0: MODEL_STEP_TIMEOUT_MS
                               */
    /* Called while weights load, any number of times: bytes so far, of total. */
    void (*on_progress)(void *userdata, uint64_t bytes, uint64_t total);
    void *userdata;
};

/* Layers whose keys and values live equally long share blocks and a table. */
struct model_kv_group {
    uint32_t n_layers;
    uint32_t window; /* 0: all positions; else a token at p sees p - window + 1 .. p */
    /* One block of MODEL_BLOCK_SIZE positions, all layers of the group: on the rank that has most
     * of it; of all ranks together where they share the host's memory. */
    uint64_t block_bytes;
};

struct model_info {
    char arch[32];   /* "llama", "gemma3" */
    char device[80]; /* the one in use: "cpu (avx2)", "ref", "cuda (NVIDIA H100)" */
    unsigned n_ranks;
    bool runs_ahead; /* the device computes behind the caller's back: keep MODEL_STEPS under way */
    uint32_t n_vocab;
    uint32_t context_train; /* what the model was trained for */
    uint32_t context_max;   /* what this instance serves */
    uint32_t n_layers;
    uint64_t n_params;
    uint64_t weight_bytes; /* as stored */
    uint32_t n_groups;
    struct model_kv_group groups[PLAN_GROUPS_MAX];
};

/* The file is borrowed for the model's life: weights may alias its mapping.  ERR_INVALID names the
 * tensor or key that is wrong or missing, and an architecture that is not supported. */
int model_new(const struct gguf *file, const struct model_options *o, struct model **ret,
              struct err *err) MUST_CHECK;
void model_free(struct model *m);
DEFINE_FREEP(model)
const struct model_info *model_info(const struct model *m);
/* Bytes that the KV cache can have where the device has memory of its own; UINT64_MAX: the host's.
 */
uint64_t model_memory_left(const struct model *m);
/* Most block ids a plan can have. */
static inline size_t model_block_ids_max(uint32_t n_groups, uint32_t slots_max,
                                         uint32_t context_max)
{
    return (size_t)n_groups * slots_max * (context_max / MODEL_BLOCK_SIZE + 1);
}

/* Cut the KV cache: n_blocks[g] blocks for group g.  Once, before the first step. */
int model_kv_init(struct model *m, const uint32_t n_blocks[PLAN_GROUPS_MAX],
                  struct err *err) MUST_CHECK;

/* Have a device that keeps lists of ops make them now, so that no request waits for it: after
 * model_kv_init(), whose blocks it writes to, before the first step. */
int model_warm_up(struct model *m, struct err *err) MUST_CHECK;

/* Start a step.  The plan stays untouched until the ticket was collected; tickets are collected in
 * order, and at most MODEL_STEPS are out. */
struct model_ticket {
    uint64_t step;
};
int model_submit(struct model *m, const struct step_plan *plan, struct model_ticket *ret,
                 struct err *err) MUST_CHECK;
/* Wait for it: ret_tokens[plan->n_samples].  A row whose logits are not finite gives
 * MODEL_TOKEN_BAD and harms no other row. */
#define MODEL_TOKEN_BAD (-1)
int model_collect(struct model *m, struct model_ticket ticket, int32_t *ret_tokens,
                  struct err *err) MUST_CHECK;

/* For tests, perplexity and checks against a reference: run the plan and copy out the logits of
 * every token (not only sampled rows): ret_logits[plan->n_tokens][n_vocab]. */
int model_logits(struct model *m, const struct step_plan *plan, float *ret_logits,
                 struct err *err) MUST_CHECK;
