/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/model/tiny_model.h"

#include <stdio.h>

#include "tests/kernels/kernel_data.h"
#include "tests/support.h"

enum { SLOTS = 8, TOKENS = 200, BLOCKS_A_SLOT = 5, WINDOW = 40, NAME_BYTES = 64, KEY_BYTES = 96 };

struct sizes {
    uint32_t layers, width, heads, kv_heads, head_dim, ff, vocab;
    bool gemma;
};

static struct sizes sizes_of(const char *arch)
{
    if (strcmp(arch, "gemma3") == 0)
        return (struct sizes){7, 64, 4, 1, 32, 96, 70, true};
    if (strcmp(arch, "nine") == 0)
        return (struct sizes){2, 160, 9, 3, 16, 160, 60, false};
    return (struct sizes){3, 64, 4, 2, 16, 96, 50, false};
}

static void key_u32(struct gguf_builder *b, const char *arch, const char *name, uint32_t value)
{
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof(key), "%s.%s", arch, name);
    gguf_builder_u32(b, key, value);
}

void tiny_keys(struct gguf_builder *b, const char *arch)
{
    struct sizes s = sizes_of(arch);
    char key[KEY_BYTES];

    arch = s.gemma ? "gemma3" : "llama";
    gguf_builder_string(b, "general.architecture", arch);
    key_u32(b, arch, "embedding_length", s.width);
    key_u32(b, arch, "block_count", s.layers);
    key_u32(b, arch, "feed_forward_length", s.ff);
    key_u32(b, arch, "context_length", TINY_CONTEXT);
    key_u32(b, arch, "attention.head_count", s.heads);
    key_u32(b, arch, "attention.head_count_kv", s.kv_heads);
    (void)snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_builder_f32(b, key, 1e-5F);
    if (s.heads * s.head_dim != s.width) {
        key_u32(b, arch, "attention.key_length", s.head_dim);
        key_u32(b, arch, "attention.value_length", s.head_dim);
    }
    if (s.gemma) {
        key_u32(b, arch, "attention.sliding_window", WINDOW);
    }
}

static void matrix(struct gguf_builder *b, struct random *r, const char *name, enum k_type type,
                   uint32_t n_in, uint32_t n_out)
{
    void *data = random_matrix(r, type, n_in, n_out);

    gguf_builder_tensor(b, name, (enum gguf_type)type, n_in, n_out, data,
                        (size_t)n_out * (n_in / k_block_len(type)) * k_block_bytes(type));
    mem_free(data);
}

static void vector(struct gguf_builder *b, struct random *r, const char *name, uint32_t n)
{
    float *data = random_floats(r, n, 0.5F, 1.5F);

    gguf_builder_tensor(b, name, GGUF_F32, n, 0, data, n * sizeof(*data));
    mem_free(data);
}

static void layer(struct gguf_builder *b, struct random *r, const struct sizes *s, uint32_t i)
{
    const struct {
        const char *name;
        enum k_type type;
        uint32_t n_in;
        uint32_t n_out; /* 0: a vector */
        bool gemma;
    } table[] = {
            {"attn_norm", K_F32, s->width, 0, false},
            {"attn_q", K_Q4_1, s->width, s->heads * s->head_dim, false},
            {"attn_k", K_Q5_0, s->width, s->kv_heads * s->head_dim, false},
            {"attn_v", K_Q8_0, s->width, s->kv_heads * s->head_dim, false},
            {"attn_q_norm", K_F32, s->head_dim, 0, true},
            {"attn_k_norm", K_F32, s->head_dim, 0, true},
            {"attn_output", K_F16, s->heads * s->head_dim, s->width, false},
            {"post_attention_norm", K_F32, s->width, 0, true},
            {"ffn_norm", K_F32, s->width, 0, false},
            {"ffn_gate", K_Q4_0, s->width, s->ff, false},
            {"ffn_up", K_BF16, s->width, s->ff, false},
            {"ffn_down", K_Q5_1, s->ff, s->width, false},
            {"post_ffw_norm", K_F32, s->width, 0, true},
    };
    char name[NAME_BYTES];

    for (size_t t = 0; t < sizeof(table) / sizeof(table[0]); t++) {
        if (table[t].gemma && !s->gemma)
            continue;
        (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", i, table[t].name);
        if (table[t].n_out == 0)
            vector(b, r, name, table[t].n_in);
        else
            matrix(b, r, name, table[t].type, table[t].n_in, table[t].n_out);
    }
}

void tiny_tensors(struct gguf_builder *b, const char *arch)
{
    struct sizes s = sizes_of(arch);
    struct random r = {s.vocab};

    matrix(b, &r, "token_embd.weight", K_Q8_0, s.width, s.vocab);
    if (!s.gemma)
        matrix(b, &r, "output.weight", K_Q8_0, s.width, s.vocab);
    vector(b, &r, "output_norm.weight", s.width);
    for (uint32_t i = 0; i < s.layers; i++)
        layer(b, &r, &s, i);
}

void tiny_init(struct tiny *t, const char *arch)
{
    struct err err;

    gguf_builder_init(&t->builder);
    tiny_keys(&t->builder, arch);
    tiny_tensors(&t->builder, arch);
    gguf_builder_end(&t->builder);
    t->gguf = NULL;
    assert_ok(gguf_parse(t->builder.file.data, t->builder.file.len, &t->gguf, &err), &err);
}

void tiny_release(struct tiny *t)
{
    gguf_free(t->gguf);
    gguf_builder_release(&t->builder);
}

struct model *tiny_open(const struct tiny *t, const char *device, unsigned n_threads,
                        unsigned n_ranks, bool no_graphs)
{
    static const uint32_t n_blocks[PLAN_GROUPS_MAX] = {TINY_BLOCKS, TINY_BLOCKS, TINY_BLOCKS,
                                                       TINY_BLOCKS};
    struct model_options o = {.device = device,
                              .n_threads = n_threads,
                              .slots_max = SLOTS,
                              .tokens_max = TOKENS,
                              .n_ranks = n_ranks,
                              .no_graphs = no_graphs};
    struct model *m = NULL;
    struct err err;

    assert_ok(model_new(t->gguf, &o, &m, &err), &err);
    assert_ok(model_kv_init(m, n_blocks, &err), &err);
    return m;
}

struct model *tiny_model(const struct tiny *t, const char *device, unsigned n_threads)
{
    return tiny_open(t, device, n_threads, 1, false);
}

struct model *tiny_ranks(const struct tiny *t, const char *device, unsigned n_ranks)
{
    return tiny_open(t, device, n_ranks, n_ranks, false);
}

struct batch {
    int32_t tokens[TOKENS];
    struct plan_seq seqs[SLOTS];
    struct plan_sample samples[SLOTS];
    uint32_t blocks[SLOTS * 2 * BLOCKS_A_SLOT]; /* a table for each group */
    struct step_plan plan;
};

static void fill_table(const struct tiny_seq *s, uint32_t group, uint32_t *table)
{
    for (uint32_t k = 0; k < BLOCKS_A_SLOT; k++) {
        bool behind = (k + 1) * MODEL_BLOCK_SIZE + WINDOW <= s->start_pos + 1;

        table[k] = s->slot * BLOCKS_A_SLOT + (k * 3 + 1) % BLOCKS_A_SLOT;
        if (group == 1 && s->left_behind && behind)
            table[k] = PLAN_BLOCK_NONE;
    }
}

static void batch_make(struct batch *b, const struct tiny_seq *seqs, uint32_t n_seqs)
{
    *b = (struct batch){.plan = {.n_seqs = n_seqs,
                                 .n_block_ids = n_seqs * 2 * BLOCKS_A_SLOT,
                                 .tokens = b->tokens,
                                 .seqs = b->seqs,
                                 .samples = b->samples,
                                 .block_ids = b->blocks}};
    for (uint32_t i = 0; i < n_seqs; i++) {
        const struct tiny_seq *s = &seqs[i];
        struct plan_seq *to = &b->seqs[i];

        *to = (struct plan_seq){.slot = s->slot,
                                .first_token = b->plan.n_tokens,
                                .n_tokens = s->n_tokens,
                                .start_pos = s->start_pos,
                                .sample = PLAN_NO_SAMPLE};
        for (uint32_t g = 0; g < 2; g++) {
            to->table_first[g] = (i * 2 + g) * BLOCKS_A_SLOT;
            to->table_len[g] = BLOCKS_A_SLOT;
            fill_table(s, g, &b->blocks[to->table_first[g]]);
        }
        memcpy(b->tokens + b->plan.n_tokens, s->tokens, s->n_tokens * sizeof(*s->tokens));
        b->plan.n_tokens += s->n_tokens;
        if (s->sample) {
            to->sample = b->plan.n_samples;
            b->samples[b->plan.n_samples++] =
                    (struct plan_sample){.slot = s->slot,
                                         .position = s->start_pos + s->n_tokens,
                                         .seed = s->slot,
                                         .temperature = s->temperature,
                                         .top_p = 1};
        }
    }
}

void tiny_logits(struct model *m, const struct tiny_seq *seqs, uint32_t n_seqs, float *ret_logits)
{
    struct batch b;
    struct err err;

    batch_make(&b, seqs, n_seqs);
    assert_ok(model_logits(m, &b.plan, ret_logits, &err), &err);
}

void tiny_step(struct model *m, const struct tiny_seq *seqs, uint32_t n_seqs, int32_t *ret_tokens)
{
    struct model_ticket ticket;
    struct batch b;
    struct err err;

    batch_make(&b, seqs, n_seqs);
    assert_ok(model_submit(m, &b.plan, &ticket, &err), &err);
    assert_ok(model_collect(m, ticket, ret_tokens, &err), &err);
}

void tiny_tokens(int32_t *tokens, uint32_t n, uint32_t seed)
{
    struct random r = {seed};

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(random_u32(&r) % 50);
}

void tiny_two_chunks(struct model *m, float *ret_logits)
{
    int32_t tokens[TINY_N];
    struct tiny_seq first = {.slot = 1, .tokens = tokens, .n_tokens = TINY_FIRST};
    struct tiny_seq second[] = {{.slot = 1,
                                 .tokens = tokens + TINY_FIRST,
                                 .n_tokens = TINY_N - TINY_FIRST,
                                 .start_pos = TINY_FIRST},
                                {.slot = 3, .tokens = tokens, .n_tokens = TINY_OTHER}};

    tiny_tokens(tokens, TINY_N, 11);
    tiny_logits(m, &first, 1, ret_logits);
    tiny_logits(m, second, 2, ret_logits + (size_t)TINY_FIRST * model_info(m)->n_vocab);
}
