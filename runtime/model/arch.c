/* SPDX-License-Identifier: Apache-2.0
 *
 * arch.c - GGUF metadata to struct arch.
 *
 * Keys are "<architecture>.<name>".  A value that would change the computation and that we do not
 * implement (experts, soft caps, yarn) is refused by name: a model that runs wrongly is worse
 * than one that does not load.  Bounds are generous but finite, so that sizes computed from them
 * later fit 64 bits without a check at each product.
 */
#include "runtime/model/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY_BYTES = 96,
    HEADS_MAX = 1024,
    FF_MAX = 1 << 20,
    CONTEXT_MAX = 1 << 24,
    GEMMA3_FULL_EVERY = 6,
    GEMMA3_27B_LAYERS = 62,
};

static const double gemma3_local_theta = 10000;

struct reader {
    const struct gguf *g;
    const char *arch;
};

static void key_name(const struct reader *rd, const char *name, char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "%s.%s", rd->arch, name);
}

static int get_u32(const struct reader *rd, const char *name, uint32_t max, uint32_t *ret,
                   struct err *err)
{
    char key[KEY_BYTES];
    uint64_t v;
    int r;

    key_name(rd, name, key);
    r = gguf_u64(rd->g, key, max, &v, err);
    if (r < 0)
        return r;
    if (v == 0)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is 0", key);
    *ret = (uint32_t)v;
    return 0;
}

/* The same, leaving *ret when the key is absent. */
static int get_u32_or(const struct reader *rd, const char *name, uint32_t max, uint32_t *ret,
                      struct err *err)
{
    int r = get_u32(rd, name, max, ret, err);

    return r == -ERR_NOT_FOUND ? 0 : r;
}

static int get_f64_or(const struct reader *rd, const char *name, double min, double max,
                      double *ret, struct err *err)
{
    char key[KEY_BYTES];
    double v;
    int r;

    key_name(rd, name, key);
    if (!gguf_has(rd->g, key))
        return 0;
    r = gguf_f64(rd->g, key, &v, err);
    if (r < 0)
        return r;
    if (!(v >= min && v <= max))
        return err_set(err, ERR_INVALID, "gguf: key '%s' is %g, want %g..%g", key, v, min, max);
    *ret = v;
    return 0;
}

/* Keys whose presence means a computation that decoder.c does not do. */
static int refuse_keys(const struct reader *rd, struct err *err)
{
    static const char *const names[] = {"expert_count", "attn_logit_softcapping",
                                        "final_logit_softcapping", "attention.max_alibi_bias",
                                        "attention.clamp_kqv"};
    char key[KEY_BYTES];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        key_name(rd, names[i], key);
        if (gguf_has(rd->g, key))
            return err_set(err, ERR_INVALID, "gguf: key '%s' is not supported", key);
    }
    return 0;
}

static int read_sizes(const struct reader *rd, struct arch *a, struct err *err)
{
    double eps = 1e-5;
    uint32_t value_dim;
    int r = get_u32(rd, "embedding_length", ARCH_WIDTH_MAX, &a->width, err);

    if (r == 0)
        r = get_u32(rd, "block_count", ARCH_LAYERS_MAX, &a->n_layers, err);
    if (r == 0)
        r = get_u32(rd, "feed_forward_length", FF_MAX, &a->n_ff, err);
    if (r == 0)
        r = get_u32(rd, "context_length", CONTEXT_MAX, &a->context, err);
    if (r == 0)
        r = get_u32(rd, "attention.head_count", HEADS_MAX, &a->n_heads, err);
    a->n_kv_heads = a->n_heads;
    if (r == 0)
        r = get_u32_or(rd, "attention.head_count_kv", HEADS_MAX, &a->n_kv_heads, err);
    if (r < 0)
        return r;
    a->head_dim = a->width / a->n_heads;
    r = get_u32_or(rd, "attention.key_length", K_HEAD_DIM_MAX, &a->head_dim, err);
    value_dim = a->head_dim;
    if (r == 0)
        r = get_u32_or(rd, "attention.value_length", K_HEAD_DIM_MAX, &value_dim, err);
    a->n_rot = a->head_dim;
    if (r == 0)
        r = get_u32_or(rd, "rope.dimension_count", K_HEAD_DIM_MAX, &a->n_rot, err);
    if (r == 0)
        r = get_f64_or(rd, "attention.layer_norm_rms_epsilon", 0, 1, &eps, err);
    if (r < 0)
        return r;
    a->norm_eps = (float)eps;
    if (a->n_heads % a->n_kv_heads != 0 || a->head_dim == 0 || a->head_dim % 8 != 0 ||
        a->head_dim > K_HEAD_DIM_MAX || value_dim != a->head_dim || a->n_rot > a->head_dim ||
        a->n_rot % 2 != 0)
        return err_set(err, ERR_INVALID,
                       "gguf: %u heads, %u KV heads of %u keys, %u values, %u rotary dimensions "
                       "do not go together",
                       a->n_heads, a->n_kv_heads, a->head_dim, value_dim, a->n_rot);
    a->attn_scale = (float)(1 / sqrt((double)a->head_dim));
    return 0;
}

/* theta and a linear factor into group 0; other ways of stretching positions are refused. */
static int read_rope(const struct reader *rd, struct arch *a, struct err *err)
{
    char key[KEY_BYTES];
    struct gguf_str type = {.data = "linear", .len = 6};
    int r = get_f64_or(rd, "rope.freq_base", 1, 1e12, &a->groups[0].rope_theta, err);

    if (r < 0)
        return r;
    key_name(rd, "rope.scaling.type", key);
    if (gguf_has(rd->g, key))
        r = gguf_string(rd->g, key, &type, err);
    if (r < 0)
        return r;
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0)
        return 0;
    if (type.len != 6 || memcmp(type.data, "linear", 6) != 0)
        return err_set(err, ERR_INVALID, "gguf: key '%s' is '%.*s', which is not supported", key,
                       (int)(type.len < 64 ? type.len : 64), type.data);
    return get_f64_or(rd, "rope.scaling.factor", 1, 1e6, &a->groups[0].rope_factor, err);
}

static int read_llama(const struct reader *rd, struct arch *a, struct err *err)
{
    (void)rd;
    (void)err;
    a->rope = K_ROPE_PAIRS;
    a->gate = K_GATE_SILU;
    return 0;
}

/* Gemma 3: embeddings times sqrt(width), norms before and after, norms on q and k, five layers
 * of sliding window with their own theta to one of full attention.  The pattern, the local theta
 * and the 27B model's attention scale are not in the file; they are those of the published
 * configurations. */
static int read_gemma3(const struct reader *rd, struct arch *a, struct err *err)
{
    int r = get_u32(rd, "attention.sliding_window", CONTEXT_MAX, &a->groups[1].window, err);

    if (r < 0)
        return r;
    a->rope = K_ROPE_HALVES;
    a->gate = K_GATE_GELU_TANH;
    a->embed_scale = (float)sqrt((double)a->width);
    a->qk_norm = true;
    a->post_norm = true;
    a->full_every = GEMMA3_FULL_EVERY;
    a->n_groups = 2;
    a->groups[1].rope_theta = gemma3_local_theta;
    a->groups[1].rope_factor = 1;
    if (a->n_layers == GEMMA3_27B_LAYERS)
        a->attn_scale = (float)(1 / sqrt((double)a->width / a->n_heads));
    return 0;
}

static const struct {
    const char *name;
    int (*read)(const struct reader *rd, struct arch *a, struct err *err);
} families[] = {{"llama", read_llama}, {"gemma3", read_gemma3}};

int arch_from_gguf(const struct gguf *g, struct arch *ret, struct err *err)
{
    struct arch a = {
            .embed_scale = 1,
            .n_groups = 1,
            .full_every = 1,
            .groups[0] = {.rope_theta = 10000, .rope_factor = 1},
    };
    struct reader rd = {.g = g};
    struct gguf_str name;
    size_t f = 0;
    int r = gguf_string(g, "general.architecture", &name, err);

    if (r < 0)
        return r;
    for (; f < sizeof(families) / sizeof(families[0]); f++)
        if (strlen(families[f].name) == name.len &&
            memcmp(families[f].name, name.data, name.len) == 0)
            break;
    if (f == sizeof(families) / sizeof(families[0]))
        return err_set(err, ERR_INVALID,
                       "gguf: architecture '%.*s' is not supported: llama, gemma3",
                       (int)(name.len < 64 ? name.len : 64), name.data);
    rd.arch = families[f].name;
    (void)snprintf(a.name, sizeof(a.name), "%s", rd.arch);
    r = refuse_keys(&rd, err);
    if (r == 0)
        r = read_sizes(&rd, &a, err);
    if (r == 0)
        r = read_rope(&rd, &a, err);
    if (r == 0)
        r = families[f].read(&rd, &a, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < a.n_layers; i++)
        a.groups[arch_group_of(&a, i)].n_layers++;
    *ret = a;
    return 0;
}

uint32_t arch_group_of(const struct arch *a, uint32_t layer)
{
    return (layer + 1) % a->full_every == 0 ? 0 : 1;
}

uint32_t arch_index_in_group(const struct arch *a, uint32_t layer)
{
    uint32_t n_full = (layer + 1) / a->full_every;

    return arch_group_of(a, layer) == 0 ? n_full - 1 : layer - n_full;
}
