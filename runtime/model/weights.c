/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.c - tensors from the file to the device.
 *
 * A table says for each tensor its name, where its handle goes and the dimensions it must have.
 * Loading counts what was used: a tensor left over (biases, experts, a second output) belongs to
 * a variant that decoder.c does not compute, so it is an error, not a warning.  The embedding
 * goes first: it is the largest, and while it is repacked both copies are in memory.  With several
 * ranks each tensor is read once and cut for all of them.
 */
#include "runtime/model/weights.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { NAME_BYTES = 64, VOCAB_MAX = 1 << 22 };

/* GGUF's type numbers are the kernels'. */
_Static_assert((int)GGUF_F32 == (int)K_F32 && (int)GGUF_F16 == (int)K_F16, "types");
_Static_assert((int)GGUF_Q4_0 == (int)K_Q4_0 && (int)GGUF_Q4_1 == (int)K_Q4_1, "types");
_Static_assert((int)GGUF_Q5_0 == (int)K_Q5_0 && (int)GGUF_Q5_1 == (int)K_Q5_1, "types");
_Static_assert((int)GGUF_Q8_0 == (int)K_Q8_0 && (int)GGUF_Q4_K == (int)K_Q4_K, "types");
_Static_assert((int)GGUF_Q5_K == (int)K_Q5_K && (int)GGUF_Q6_K == (int)K_Q6_K, "types");
_Static_assert((int)GGUF_BF16 == (int)K_BF16, "types");

struct loader {
    const struct gguf *g;
    const struct arch *arch;
    const struct weights_rank *ranks;
    unsigned n_ranks;
    const struct model_options *o;
    uint64_t total, bytes, n_params;
    size_t n_used;
};

/* Which rows or columns of a matrix a rank keeps. */
enum split {
    SPLIT_NONE,
    SPLIT_HEADS,
    SPLIT_KV_HEADS,
    SPLIT_FF,
    SPLIT_VOCAB,
    SPLIT_IN_HEADS,
    SPLIT_IN_FF
};

/* A matrix of the table: its handle's place in struct weights, or in a layer of it. */
struct matrix {
    const char *name;
    uint32_t n_in;
    uint32_t n_out;
    enum split split;
    size_t offset;
};

static int find(const struct loader *l, const char *name, uint64_t ne0, uint64_t ne1,
                const struct gguf_tensor **ret, struct err *err)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, name);

    if (!t)
        return err_set(err, ERR_INVALID, "gguf: tensor '%s' is missing", name);
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
        return err_set(
                err, ERR_INVALID, "gguf: tensor '%s' is %llu x %llu x %llu, want %llu x %llu", name,
                (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                (unsigned long long)t->ne[2], (unsigned long long)ne0, (unsigned long long)ne1);
    *ret = t;
    return 0;
}

static void loaded(struct loader *l, const struct gguf_tensor *t, bool drop)
{
    if (drop)
        gguf_drop(l->g, t);
    l->n_used++;
    l->bytes += t->bytes;
    l->n_params += t->ne[0] * t->ne[1];
    if (l->o->on_progress)
        l->o->on_progress(l->o->userdata, l->bytes, l->total);
}

static struct device_shard part_of(const struct matrix *m, const struct shard *s, uint32_t head_dim)
{
    struct device_shard all = {.n_out = m->n_out, .n_in = m->n_in};
    const struct {
        uint32_t first;
        uint32_t n;
    } rows[] = {
            [SPLIT_HEADS] = {s->first_head * head_dim, s->n_heads * head_dim},
            [SPLIT_KV_HEADS] = {s->first_kv_head * head_dim, s->n_kv_heads * head_dim},
            [SPLIT_FF] = {s->first_ff, s->n_ff},
            [SPLIT_VOCAB] = {s->first_vocab, s->n_vocab},
            [SPLIT_IN_HEADS] = {s->first_head * head_dim, s->n_heads * head_dim},
            [SPLIT_IN_FF] = {s->first_ff, s->n_ff},
    };

    if (m->split == SPLIT_NONE || s->size == 1)
        return all;
    if (m->split == SPLIT_IN_HEADS || m->split == SPLIT_IN_FF) {
        all.first_in = rows[m->split].first;
        all.n_in = rows[m->split].n;
    } else {
        all.first_out = rows[m->split].first;
        all.n_out = rows[m->split].n;
    }
    return all;
}

/* layer: its index, or -1 for a matrix of the model. */
static void *place_of(struct weights *w, int layer, size_t offset)
{
    return (char *)(layer < 0 ? (void *)w : (void *)&w->layers[layer]) + offset;
}

static int load_matrix(struct loader *l, const char *name, const struct matrix *m, int layer,
                       struct err *err)
{
    const struct gguf_tensor *t;
    struct device_weight_desc desc = {.n_in = m->n_in, .n_out = m->n_out};
    bool some_alias = false;
    int r = find(l, name, m->n_in, m->n_out, &t, err);

    for (unsigned k = 0; k < l->n_ranks && r == 0; k++) {
        const struct weights_rank *rank = &l->ranks[k];
        const struct device_weight *w;
        bool aliases;

        desc.type = (enum k_type)t->type;
        r = device_weight(rank->device, &desc, t->data, part_of(m, &rank->shard, l->arch->head_dim),
                          &w, &aliases, err);
        if (r < 0)
            break;
        *(const struct k_matrix **)place_of(rank->weights, layer, m->offset) =
                device_weight_matrix(w);
        some_alias = some_alias || aliases;
    }
    if (r == 0)
        loaded(l, t, !some_alias);
    return r;
}

static int load_vector(struct loader *l, const char *name, uint32_t n, int layer, size_t offset,
                       struct err *err)
{
    const struct gguf_tensor *t;
    int r = find(l, name, n, 1, &t, err);

    for (unsigned k = 0; k < l->n_ranks && r == 0; k++)
        r = device_vector(l->ranks[k].device, (enum k_type)t->type, n, t->data,
                          place_of(l->ranks[k].weights, layer, offset), err);
    if (r == 0)
        loaded(l, t, true);
    return r;
}

#define IN_LAYER(member) offsetof(struct layer_weights, member)
#define IN_MODEL(member) offsetof(struct weights, member)

static int load_layer_matrices(struct loader *l, uint32_t layer, struct err *err)
{
    const struct arch *a = l->arch;
    uint32_t n_q = a->n_heads * a->head_dim;
    uint32_t n_kv = a->n_kv_heads * a->head_dim;
    const struct matrix table[] = {
            {"attn_q", a->width, n_q, SPLIT_HEADS, IN_LAYER(q)},
            {"attn_k", a->width, n_kv, SPLIT_KV_HEADS, IN_LAYER(k)},
            {"attn_v", a->width, n_kv, SPLIT_KV_HEADS, IN_LAYER(v)},
            {"attn_output", n_q, a->width, SPLIT_IN_HEADS, IN_LAYER(o)},
            {"ffn_gate", a->width, a->n_ff, SPLIT_FF, IN_LAYER(gate)},
            {"ffn_up", a->width, a->n_ff, SPLIT_FF, IN_LAYER(up)},
            {"ffn_down", a->n_ff, a->width, SPLIT_IN_FF, IN_LAYER(down)},
    };
    char name[NAME_BYTES];
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(table) / sizeof(table[0]); i++) {
        (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, table[i].name);
        r = load_matrix(l, name, &table[i], (int)layer, err);
    }
    return r;
}

static int load_layer_vectors(struct loader *l, uint32_t layer, struct err *err)
{
    const struct arch *a = l->arch;
    const struct {
        const char *name;
        uint32_t n;
        bool wanted;
        size_t offset;
    } table[] = {
            {"attn_norm", a->width, true, IN_LAYER(attn_norm)},
            {"ffn_norm", a->width, true, IN_LAYER(ffn_norm)},
            {"attn_q_norm", a->head_dim, a->qk_norm, IN_LAYER(q_norm)},
            {"attn_k_norm", a->head_dim, a->qk_norm, IN_LAYER(k_norm)},
            {"post_attention_norm", a->width, a->post_norm, IN_LAYER(post_attn_norm)},
            {"post_ffw_norm", a->width, a->post_norm, IN_LAYER(post_ffn_norm)},
    };
    char name[NAME_BYTES];
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(table) / sizeof(table[0]); i++) {
        if (!table[i].wanted)
            continue;
        (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, table[i].name);
        r = load_vector(l, name, table[i].n, (int)layer, table[i].offset, err);
    }
    return r;
}

static int load_rope_factors(struct loader *l, struct err *err)
{
    const struct gguf_tensor *t;
    uint32_t n = l->arch->n_rot / 2;
    int r = find(l, "rope_freqs.weight", n, 1, &t, err);

    if (r == 0 && n % k_block_len((enum k_type)t->type) != 0)
        r = err_set(err, ERR_INVALID, "gguf: tensor 'rope_freqs.weight' has an unsupported type");
    if (r < 0)
        return r;
    for (unsigned k = 0; k < l->n_ranks; k++) {
        k_dequantise((enum k_type)t->type, t->data, n, l->ranks[k].weights->rope_factors);
        l->ranks[k].weights->has_rope_factors = true;
    }
    loaded(l, t, true);
    return 0;
}

static int load_all(struct loader *l, struct err *err)
{
    const struct arch *a = l->arch;
    const struct matrix embed = {
            .n_in = a->width, .n_out = a->n_vocab, .split = SPLIT_VOCAB, .offset = IN_MODEL(embed)};
    struct matrix head = embed;
    int r = load_matrix(l, "token_embd.weight", &embed, -1, err);

    for (unsigned k = 0; k < l->n_ranks; k++)
        l->ranks[k].weights->head = l->ranks[k].weights->embed;
    head.offset = IN_MODEL(head);
    if (r == 0 && gguf_tensor(l->g, "output.weight"))
        r = load_matrix(l, "output.weight", &head, -1, err);
    if (r == 0)
        r = load_vector(l, "output_norm.weight", a->width, -1, IN_MODEL(out_norm), err);
    if (r == 0 && gguf_tensor(l->g, "rope_freqs.weight"))
        r = load_rope_factors(l, err);
    for (uint32_t i = 0; r == 0 && i < a->n_layers; i++) {
        r = load_layer_matrices(l, i, err);
        if (r == 0)
            r = load_layer_vectors(l, i, err);
    }
    return r;
}

/* A tensor outside what load_all() asks for, to name it. */
static bool is_known(const struct arch *a, const struct gguf_str *name)
{
    static const char *const parts[] = {
            "attn_q.weight",      "attn_k.weight",    "attn_v.weight",
            "attn_output.weight", "ffn_gate.weight",  "ffn_up.weight",
            "ffn_down.weight",    "attn_norm.weight", "ffn_norm.weight",
    };
    static const char *const qk_parts[] = {"attn_q_norm.weight", "attn_k_norm.weight"};
    static const char *const post_parts[] = {"post_attention_norm.weight", "post_ffw_norm.weight"};
    char text[NAME_BYTES + 1];
    const char *dot;

    (void)snprintf(text, sizeof(text), "%.*s", (int)name->len, name->data);
    if (strncmp(text, "blk.", 4) != 0)
        return strcmp(text, "token_embd.weight") == 0 || strcmp(text, "output.weight") == 0 ||
               strcmp(text, "output_norm.weight") == 0 || strcmp(text, "rope_freqs.weight") == 0;
    dot = strchr(text + 4, '.');
    for (size_t i = 0; dot && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(dot + 1, parts[i]) == 0)
            return true;
    for (size_t i = 0; dot && i < 2; i++)
        if ((a->qk_norm && strcmp(dot + 1, qk_parts[i]) == 0) ||
            (a->post_norm && strcmp(dot + 1, post_parts[i]) == 0))
            return true;
    return false;
}

static int refuse_leftover(const struct loader *l, const struct arch *a, struct err *err)
{
    for (size_t i = 0; i < gguf_n_tensors(l->g); i++) {
        const struct gguf_str *name = &gguf_tensor_at(l->g, i)->name;

        if (!is_known(a, name))
            return err_set(err, ERR_INVALID,
                           "gguf: tensor '%.*s' is not supported in architecture '%s'",
                           (int)name->len, name->data, a->name);
    }
    return err_set(err, ERR_INVALID, "gguf: %zu tensors, but %u layers use %zu",
                   gguf_n_tensors(l->g), a->n_layers, l->n_used);
}

static void longest_block(const struct gguf *g, uint32_t layer, const char *part, uint32_t *longest)
{
    char name[NAME_BYTES];
    const struct gguf_tensor *t;

    (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, part);
    t = gguf_tensor(g, name);
    if (t && k_block_len((enum k_type)t->type) > *longest)
        *longest = k_block_len((enum k_type)t->type);
}

int weights_survey(const struct gguf *g, struct arch *arch, uint32_t *ret_head_block,
                   uint32_t *ret_ff_block, struct err *err)
{
    const struct gguf_tensor *t = gguf_tensor(g, "token_embd.weight");

    if (!t)
        return err_set(err, ERR_INVALID, "gguf: tensor 'token_embd.weight' is missing");
    if (t->ne[1] > VOCAB_MAX)
        return err_set(err, ERR_INVALID, "gguf: a vocabulary of %llu tokens, at most %d",
                       (unsigned long long)t->ne[1], VOCAB_MAX);
    arch->n_vocab = (uint32_t)t->ne[1];
    *ret_head_block = *ret_ff_block = 1;
    for (uint32_t i = 0; i < arch->n_layers; i++) {
        longest_block(g, i, "attn_output", ret_head_block);
        longest_block(g, i, "ffn_down", ret_ff_block);
    }
    return 0;
}

int weights_load(const struct gguf *g, const struct arch *arch, const struct weights_rank *ranks,
                 unsigned n_ranks, const struct model_options *o, struct err *err)
{
    struct loader l = {.g = g, .arch = arch, .ranks = ranks, .n_ranks = n_ranks, .o = o};
    int r;

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        l.total += gguf_tensor_at(g, i)->bytes;
    r = load_all(&l, err);
    if (r < 0)
        return r;
    for (unsigned k = 0; k < n_ranks; k++) {
        ranks[k].weights->bytes = l.bytes;
        ranks[k].weights->n_params = l.n_params;
    }
    return l.n_used == gguf_n_tensors(g) ? 0 : refuse_leftover(&l, arch, err);
}
