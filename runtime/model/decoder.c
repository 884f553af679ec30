/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder.c - one forward for all families.
 *
 *   x = embed(tokens)
 *   each layer:  x += [post norm] attention(norm(x));  x += [post norm] feed-forward(norm(x))
 *   logits = head(norm(x)) of the rows that are wanted
 *
 * What differs between families is data in struct arch.  The code appends ops to the device's
 * list; nothing is computed before device_run() at the end of a slice, and by then all that the
 * ops point to (the index arrays of struct slice, the buffers) must still be there: they belong
 * to the decoder and are taken once.
 *
 * A plan of any size is cut into slices of DECODER_ROWS_MAX rows, so activations stay in the
 * cache and the buffers small.  Rows never see each other except through the KV cache, where a
 * slice finds what the ones before it wrote: cutting changes no bit.  Wanted rows go through the
 * head a few at a time, since one row of logits may be a megabyte.
 *
 * Threading: the engine's thread; the device has its own.
 */
#include "runtime/model/decoder.h"

#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

struct slice {
    uint32_t n_rows;
    uint32_t n_spans;
    uint32_t n_wanted;
    int32_t tokens[DECODER_ROWS_MAX];
    uint32_t positions[DECODER_ROWS_MAX];
    uint32_t seq_of[DECODER_ROWS_MAX];
    struct k_span spans[DECODER_ROWS_MAX];
    uint32_t wanted[DECODER_ROWS_MAX];    /* rows of the slice */
    uint32_t wanted_to[DECODER_ROWS_MAX]; /* row of the plan, or index of the sample */
    struct k_seq *seqs[ARCH_GROUPS_MAX];  /* [slots_max] of the plan's sequences */
};

struct decoder {
    struct device *device;
    const struct arch *arch;
    const struct weights *weights;
    uint32_t seqs_max;
    struct k_kv kv[ARCH_GROUPS_MAX];
    float *freqs[ARCH_GROUPS_MAX];  /* [n_rot / 2] */
    float *angles[ARCH_GROUPS_MAX]; /* [rows][2][n_rot / 2] */
    float *x;                       /* [rows][width]: the residual stream */
    float *y;                       /* [rows][width] */
    float *q;
    float *k;
    float *v;
    float *o;
    float *gate;
    float *up;
    float *logits;          /* [DECODER_LOGIT_ROWS][n_vocab] */
    struct k_act act_width; /* what matmuls read, by row length */
    struct k_act act_heads;
    struct k_act act_ff;
    struct k_sampling params[DECODER_LOGIT_ROWS];
    struct k_candidate *scratch;
    int32_t drawn[DECODER_LOGIT_ROWS];
    struct slice slice;
};

static int alloc_rows(struct decoder *dec, uint32_t n, float **ret, struct err *err)
{
    void *p = NULL;
    int r = device_alloc(dec->device, DECODER_ROWS_MAX, n * sizeof(float), &p, err);

    *ret = p;
    return r;
}

static int alloc_buffers(struct decoder *dec, struct err *err)
{
    const struct arch *a = dec->arch;
    uint32_t n_q = a->n_heads * a->head_dim;
    uint32_t n_kv = a->n_kv_heads * a->head_dim;
    const struct {
        float **to;
        uint32_t n;
    } table[] = {
            {&dec->x, a->width}, {&dec->y, a->width}, {&dec->q, n_q},        {&dec->k, n_kv},
            {&dec->v, n_kv},     {&dec->o, n_q},      {&dec->gate, a->n_ff}, {&dec->up, a->n_ff},
    };
    void *p = NULL;
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(table) / sizeof(table[0]); i++)
        r = alloc_rows(dec, table[i].n, table[i].to, err);
    if (r == 0)
        r = device_act(dec->device, DECODER_ROWS_MAX, a->width, &dec->act_width, err);
    if (r == 0)
        r = device_act(dec->device, DECODER_ROWS_MAX, n_q, &dec->act_heads, err);
    if (r == 0)
        r = device_act(dec->device, DECODER_ROWS_MAX, a->n_ff, &dec->act_ff, err);
    if (r == 0)
        r = device_alloc(dec->device, DECODER_LOGIT_ROWS, a->n_vocab * sizeof(float), &p, err);
    dec->logits = p;
    if (r == 0)
        r = device_alloc(dec->device, DECODER_LOGIT_ROWS, a->n_vocab * sizeof(*dec->scratch), &p,
                         err);
    dec->scratch = p;
    return r;
}

/* Rotary frequencies of a group; rounded to float32 first, like the models' own code does. */
static int make_freqs(struct decoder *dec, uint32_t group, struct err *err)
{
    const struct arch *a = dec->arch;
    const struct arch_group *g = &a->groups[group];
    uint32_t n = a->n_rot / 2;
    void *p = NULL;
    int r = device_alloc(dec->device, n, sizeof(float), &p, err);

    if (r == 0)
        r = alloc_rows(dec, 2 * n, &dec->angles[group], err);
    if (r < 0)
        return r;
    dec->freqs[group] = p;
    for (uint32_t i = 0; i < n; i++) {
        double f = pow(g->rope_theta, -2.0 * i / a->n_rot) / g->rope_factor;

        if (dec->weights->rope_factors)
            f /= (double)dec->weights->rope_factors[i];
        dec->freqs[group][i] = (float)f;
    }
    return 0;
}

int decoder_new(struct device *d, const struct arch *a, const struct weights *w,
                const struct model_options *o, struct decoder **ret, struct err *err)
{
    CLEANUP(decoder_freep) struct decoder *dec = mem_calloc(1, sizeof(*dec));
    int r;

    if (!dec)
        return err_set(err, ERR_NO_MEMORY, "decoder");
    dec->device = d;
    dec->arch = a;
    dec->weights = w;
    dec->seqs_max = o->slots_max;
    r = alloc_buffers(dec, err);
    for (uint32_t g = 0; r == 0 && g < a->n_groups; g++) {
        r = make_freqs(dec, g, err);
        if (r < 0)
            break;
        dec->slice.seqs[g] = mem_calloc(o->slots_max, sizeof(*dec->slice.seqs[g]));
        if (!dec->slice.seqs[g])
            r = err_set(err, ERR_NO_MEMORY, "decoder");
    }
    if (r < 0)
        return r;
    *ret = TAKE_PTR(dec);
    return 0;
}

void decoder_free(struct decoder *dec)
{
    if (!dec)
        return;
    for (uint32_t g = 0; g < ARCH_GROUPS_MAX; g++)
        mem_free(dec->slice.seqs[g]);
    mem_free(dec);
}

static uint64_t layer_bytes(const struct arch *a, bool f32)
{
    return (uint64_t)2 * a->n_kv_heads * a->head_dim * K_BLOCK * (f32 ? 4 : 2);
}

uint64_t decoder_block_bytes(const struct arch *a, uint32_t group, bool f32)
{
    return layer_bytes(a, f32) * a->groups[group].n_layers;
}

void decoder_set_kv(struct decoder *dec, uint32_t group, void *base, uint64_t block_bytes)
{
    dec->kv[group] = (struct k_kv){
            .base = base,
            .block_bytes = block_bytes,
            .n_kv_heads = dec->arch->n_kv_heads,
            .head_dim = dec->arch->head_dim,
            .f32 = device_kv_f32(dec->device),
    };
}

static struct k_kv layer_kv(const struct decoder *dec, uint32_t layer)
{
    struct k_kv kv = dec->kv[arch_group_of(dec->arch, layer)];
    uint64_t bytes = layer_bytes(dec->arch, kv.f32);

    kv.k_offset = arch_index_in_group(dec->arch, layer) * bytes;
    kv.v_offset = kv.k_offset + bytes / 2;
    return kv;
}

static void norm(const struct decoder *dec, const float *weight, const struct k_act *out)
{
    struct k_norm a = {
            .x = dec->x,
            .weight = weight,
            .eps = dec->arch->norm_eps,
            .n = dec->arch->width,
            .n_rows = dec->slice.n_rows,
            .out = *out,
    };

    device_norm(dec->device, &a);
}

/* x += w . in, through the post norm if there is one. */
static void project_add(const struct decoder *dec, const struct k_act *in, const struct k_matrix *w,
                        const float *post_norm)
{
    struct k_matmul m = {
            .in = *in,
            .n_rows = dec->slice.n_rows,
            .n_mats = 1,
            .w = {w},
            .out = {post_norm ? dec->y : dec->x},
            .add = !post_norm,
    };
    struct k_norm_add n = {
            .x = dec->x,
            .y = dec->y,
            .weight = post_norm,
            .eps = dec->arch->norm_eps,
            .n = dec->arch->width,
            .n_rows = dec->slice.n_rows,
    };

    device_matmul(dec->device, &m);
    if (post_norm)
        device_norm_add(dec->device, &n);
}

static void store(const struct decoder *dec, uint32_t layer)
{
    const struct arch *a = dec->arch;
    const struct layer_weights *w = &dec->weights->layers[layer];
    uint32_t group = arch_group_of(a, layer);
    struct k_store s = {
            .q = dec->q,
            .k = dec->k,
            .v = dec->v,
            .q_weight = w->q_norm,
            .k_weight = w->k_norm,
            .eps = a->norm_eps,
            .rope = a->rope,
            .angles = dec->angles[group],
            .n_freqs = a->n_rot / 2,
            .n_heads = a->n_heads,
            .n_rows = dec->slice.n_rows,
            .positions = dec->slice.positions,
            .seq_of = dec->slice.seq_of,
            .seqs = dec->slice.seqs[group],
            .kv = layer_kv(dec, layer),
    };

    device_store(dec->device, &s);
}

static void attend(const struct decoder *dec, uint32_t layer)
{
    const struct arch *a = dec->arch;
    uint32_t group = arch_group_of(a, layer);
    struct k_attend at = {
            .q = dec->q,
            .out = dec->o,
            .spans = dec->slice.spans,
            .n_spans = dec->slice.n_spans,
            .seqs = dec->slice.seqs[group],
            .n_heads = a->n_heads,
            .window = a->groups[group].window,
            .scale = a->attn_scale,
            .kv = layer_kv(dec, layer),
    };
    struct k_norm pack = {
            .x = dec->o,
            .n = a->n_heads * a->head_dim,
            .n_rows = dec->slice.n_rows,
            .out = dec->act_heads,
    };

    device_attend(dec->device, &at);
    device_norm(dec->device, &pack);
}

static void layer(const struct decoder *dec, uint32_t i)
{
    const struct arch *a = dec->arch;
    const struct layer_weights *w = &dec->weights->layers[i];
    struct k_matmul qkv = {
            .in = dec->act_width,
            .n_rows = dec->slice.n_rows,
            .n_mats = 3,
            .w = {w->q, w->k, w->v},
            .out = {dec->q, dec->k, dec->v},
    };
    struct k_matmul gate_up = {
            .in = dec->act_width,
            .n_rows = dec->slice.n_rows,
            .n_mats = 2,
            .w = {w->gate, w->up},
            .out = {dec->gate, dec->up},
    };
    struct k_gate gate = {
            .kind = a->gate,
            .gate = dec->gate,
            .up = dec->up,
            .n = a->n_ff,
            .n_rows = dec->slice.n_rows,
            .out = dec->act_ff,
    };

    norm(dec, w->attn_norm, &dec->act_width);
    device_matmul(dec->device, &qkv);
    store(dec, i);
    attend(dec, i);
    project_add(dec, &dec->act_heads, w->o, w->post_attn_norm);
    norm(dec, w->ffn_norm, &dec->act_width);
    device_matmul(dec->device, &gate_up);
    device_gate(dec->device, &gate);
    project_add(dec, &dec->act_ff, w->down, w->post_ffn_norm);
}

static void forward(const struct decoder *dec)
{
    const struct arch *a = dec->arch;
    struct k_embed e = {
            .table = dec->weights->embed,
            .tokens = dec->slice.tokens,
            .scale = a->embed_scale,
            .out = dec->x,
            .n_rows = dec->slice.n_rows,
    };

    device_embed(dec->device, &e);
    for (uint32_t g = 0; g < a->n_groups; g++) {
        struct k_angles angles = {
                .positions = dec->slice.positions,
                .freqs = dec->freqs[g],
                .n_freqs = a->n_rot / 2,
                .n_rows = dec->slice.n_rows,
                .out = dec->angles[g],
        };

        device_angles(dec->device, &angles);
    }
    for (uint32_t i = 0; i < a->n_layers; i++)
        layer(dec, i);
}

/* Logits of the wanted rows first .. first + n - 1 into dec->logits. */
static void head(const struct decoder *dec, uint32_t first, uint32_t n)
{
    struct k_norm norm_rows = {
            .x = dec->x,
            .row_ids = dec->slice.wanted + first,
            .weight = dec->weights->out_norm,
            .eps = dec->arch->norm_eps,
            .n = dec->arch->width,
            .n_rows = n,
            .out = dec->act_width,
    };
    struct k_matmul m = {
            .in = dec->act_width,
            .n_rows = n,
            .n_mats = 1,
            .w = {dec->weights->head},
            .out = {dec->logits},
    };

    device_norm(dec->device, &norm_rows);
    device_matmul(dec->device, &m);
}

static struct k_sampling sampling_of(const struct plan_sample *s)
{
    return (struct k_sampling){
            .temperature = s->temperature,
            .top_p = s->top_p,
            .min_p = s->min_p,
            .top_k = s->top_k,
            .seed = s->seed,
            .position = s->position,
            .choice = s->choice,
    };
}

static void heads(struct decoder *dec, const struct step_plan *plan,
                  const struct decoder_sink *sink)
{
    const struct slice *s = &dec->slice;
    uint32_t n_vocab = dec->arch->n_vocab;

    for (uint32_t first = 0; first < s->n_wanted; first += DECODER_LOGIT_ROWS) {
        uint32_t left = s->n_wanted - first;
        uint32_t n = left < DECODER_LOGIT_ROWS ? left : DECODER_LOGIT_ROWS;
        struct k_sample sample = {
                .logits = dec->logits,
                .params = dec->params,
                .scratch = dec->scratch,
                .n_vocab = n_vocab,
                .n_rows = n,
                .out = dec->drawn,
        };

        head(dec, first, n);
        for (uint32_t i = 0; i < n && !sink->all_rows; i++)
            dec->params[i] = sampling_of(&plan->samples[s->wanted_to[first + i]]);
        if (!sink->all_rows)
            device_sample(dec->device, &sample);
        device_run(dec->device);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t to = s->wanted_to[first + i];

            if (sink->all_rows)
                memcpy(sink->ret_logits + (size_t)to * n_vocab, dec->logits + (size_t)i * n_vocab,
                       n_vocab * sizeof(float));
            else
                sink->ret_tokens[to] = dec->drawn[i];
        }
    }
    device_run(dec->device); /* a slice that wants nothing still fills the cache */
}

/* Rows of one sequence that fall into the slice [first, first + DECODER_ROWS_MAX) of the plan. */
static void slice_add(struct slice *s, const struct plan_seq *seq, uint32_t seq_index,
                      const int32_t *tokens, uint32_t first, bool all_rows)
{
    uint32_t end = first + DECODER_ROWS_MAX;
    uint32_t from = seq->first_token > first ? seq->first_token : first;
    uint32_t to = seq->first_token + seq->n_tokens < end ? seq->first_token + seq->n_tokens : end;

    for (uint32_t t = from; t < to; t++) {
        uint32_t row = t - first;
        uint32_t position = seq->start_pos + (t - seq->first_token);
        struct k_span *span = s->n_spans > 0 ? &s->spans[s->n_spans - 1] : NULL;

        s->tokens[row] = tokens[t];
        s->positions[row] = position;
        s->seq_of[row] = seq_index;
        if (!span || span->seq != seq_index || span->n_rows == K_SPAN_ROWS)
            s->spans[s->n_spans++] = (struct k_span){
                    .seq = seq_index, .first_row = row, .n_rows = 1, .position = position};
        else
            span->n_rows++;
        if (all_rows ||
            (seq->sample != PLAN_NO_SAMPLE && t + 1 == seq->first_token + seq->n_tokens)) {
            s->wanted[s->n_wanted] = row;
            s->wanted_to[s->n_wanted++] = all_rows ? t : seq->sample;
        }
    }
}

void decoder_run(struct decoder *dec, const struct step_plan *plan, const int32_t *tokens,
                 const struct decoder_sink *sink)
{
    struct slice *s = &dec->slice;

    ASSERT(plan->n_seqs <= dec->seqs_max);
    for (uint32_t i = 0; i < plan->n_seqs; i++)
        for (uint32_t g = 0; g < dec->arch->n_groups; g++)
            s->seqs[g][i].blocks = plan->block_ids + plan->seqs[i].table_first[g];
    for (uint32_t first = 0; first < plan->n_tokens; first += DECODER_ROWS_MAX) {
        uint32_t left = plan->n_tokens - first;

        s->n_rows = left < DECODER_ROWS_MAX ? left : DECODER_ROWS_MAX;
        s->n_spans = 0;
        s->n_wanted = 0;
        for (uint32_t i = 0; i < plan->n_seqs; i++)
            slice_add(s, &plan->seqs[i], i, tokens, first, sink->all_rows);
        forward(dec);
        heads(dec, plan, sink);
    }
}
