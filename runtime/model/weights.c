/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.c - tensors from the file to the device.
 *
 * A table says for each tensor its name, where its handle goes and the dimensions it must have.
 * Loading counts what was used: a tensor left over (biases, experts, a second output) belongs to
 * a variant that decoder.c does not compute, so it is an error, not a warning.  The embedding
 * goes first: it is the largest, and while it is repacked both copies are in memory.
 */
#include "runtime/model/weights.h"

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
    struct device *d;
    const struct model_options *o;
    struct weights *w;
    uint64_t total;
    size_t n_used;
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
    l->w->bytes += t->bytes;
    l->w->n_params += t->ne[0] * t->ne[1];
    if (l->o->on_progress)
        l->o->on_progress(l->o->userdata, l->w->bytes, l->total);
}

static int load_matrix(struct loader *l, const char *name, uint32_t n_in, uint32_t n_out,
                       const struct k_matrix **ret, struct err *err)
{
    const struct gguf_tensor *t;
    const struct device_weight *w;
    struct device_weight_desc desc = {.n_in = n_in, .n_out = n_out};
    bool aliases;
    int r = find(l, name, n_in, n_out, &t, err);

    if (r < 0)
        return r;
    desc.type = (enum k_type)t->type;
    r = device_weight(l->d, &desc, t->data, (struct device_shard){0, n_out}, &w, &aliases, err);
    if (r < 0)
        return r;
    *ret = device_weight_matrix(w);
    loaded(l, t, !aliases);
    return 0;
}

static int load_vector(struct loader *l, const char *name, uint32_t n, const float **ret,
                       struct err *err)
{
    const struct gguf_tensor *t;
    int r = find(l, name, n, 1, &t, err);

    if (r == 0)
        r = device_vector(l->d, (enum k_type)t->type, n, t->data, ret, err);
    if (r == 0)
        loaded(l, t, true);
    return r;
}

static int load_layer_matrices(struct loader *l, const struct arch *a, uint32_t layer,
                               struct layer_weights *w, struct err *err)
{
    uint32_t n_q = a->n_heads * a->head_dim;
    uint32_t n_kv = a->n_kv_heads * a->head_dim;
    const struct {
        const char *name;
        uint32_t n_in;
        uint32_t n_out;
        const struct k_matrix **to;
    } table[] = {
            {"attn_q", a->width, n_q, &w->q},          {"attn_k", a->width, n_kv, &w->k},
            {"attn_v", a->width, n_kv, &w->v},         {"attn_output", n_q, a->width, &w->o},
            {"ffn_gate", a->width, a->n_ff, &w->gate}, {"ffn_up", a->width, a->n_ff, &w->up},
            {"ffn_down", a->n_ff, a->width, &w->down},
    };
    char name[NAME_BYTES];
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(table) / sizeof(table[0]); i++) {
        (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, table[i].name);
        r = load_matrix(l, name, table[i].n_in, table[i].n_out, table[i].to, err);
    }
    return r;
}

static int load_layer_vectors(struct loader *l, const struct arch *a, uint32_t layer,
                              struct layer_weights *w, struct err *err)
{
    const struct {
        const char *name;
        uint32_t n;
        bool wanted;
        const float **to;
    } table[] = {
            {"attn_norm", a->width, true, &w->attn_norm},
            {"ffn_norm", a->width, true, &w->ffn_norm},
            {"attn_q_norm", a->head_dim, a->qk_norm, &w->q_norm},
            {"attn_k_norm", a->head_dim, a->qk_norm, &w->k_norm},
            {"post_attention_norm", a->width, a->post_norm, &w->post_attn_norm},
            {"post_ffw_norm", a->width, a->post_norm, &w->post_ffn_norm},
    };
    char name[NAME_BYTES];
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(table) / sizeof(table[0]); i++) {
        if (!table[i].wanted)
            continue;
        (void)snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, table[i].name);
        r = load_vector(l, name, table[i].n, table[i].to, err);
    }
    return r;
}

static int load_embed(struct loader *l, struct arch *a, struct err *err)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, "token_embd.weight");

    if (!t)
        return err_set(err, ERR_INVALID, "gguf: tensor 'token_embd.weight' is missing");
    if (t->ne[1] > VOCAB_MAX)
        return err_set(err, ERR_INVALID, "gguf: a vocabulary of %llu tokens, at most %d",
                       (unsigned long long)t->ne[1], VOCAB_MAX);
    a->n_vocab = (uint32_t)t->ne[1];
    return load_matrix(l, "token_embd.weight", a->width, a->n_vocab, &l->w->embed, err);
}

static int load_all(struct loader *l, struct arch *a, struct err *err)
{
    int r = load_embed(l, a, err);

    if (r < 0)
        return r;
    l->w->head = l->w->embed;
    if (gguf_tensor(l->g, "output.weight"))
        r = load_matrix(l, "output.weight", a->width, a->n_vocab, &l->w->head, err);
    if (r == 0)
        r = load_vector(l, "output_norm.weight", a->width, &l->w->out_norm, err);
    if (r == 0 && gguf_tensor(l->g, "rope_freqs.weight"))
        r = load_vector(l, "rope_freqs.weight", a->n_rot / 2, &l->w->rope_factors, err);
    for (uint32_t i = 0; r == 0 && i < a->n_layers; i++) {
        r = load_layer_matrices(l, a, i, &l->w->layers[i], err);
        if (r == 0)
            r = load_layer_vectors(l, a, i, &l->w->layers[i], err);
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

int weights_load(const struct gguf *g, struct arch *arch, struct device *d,
                 const struct model_options *o, struct weights *ret, struct err *err)
{
    struct loader l = {.g = g, .d = d, .o = o, .w = ret};
    int r;

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        l.total += gguf_tensor_at(g, i)->bytes;
    r = load_all(&l, arch, err);
    if (r < 0)
        return r;
    return l.n_used == gguf_n_tensors(g) ? 0 : refuse_leftover(&l, arch, err);
}
