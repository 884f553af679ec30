/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder.c - one forward for all families.
 *
 *   x = embed(tokens)
 *   each layer:  x += [post norm] attention(norm(x));  x += [post norm] feed-forward(norm(x))
 *   logits = head(norm(x)) of the rows that are wanted
 *
 * What differs between families is data in struct arch.  The code lists ops on the device; what
 * they read of a plan (tokens, positions, spans, block tables, sampling) lies in mirrors that go to
 * the device ahead of them, and what was drawn comes back by another.  A token that the plan does
 * not know yet is what its slot drew last, which never leaves the device: so the next step can be
 * started before this one's tokens are known.
 *
 * A plan of any size is cut into slices of DECODER_ROWS_MAX rows, so activations stay in the
 * cache and the buffers small.  Rows never see each other except through the KV cache, where a
 * slice finds what the ones before it wrote: cutting changes no bit.  Wanted rows go through the
 * head some at a time, since one row of logits may be a megabyte.
 *
 * A rank of several computes its shard (shard.h); the lists are the same on all of them, so their
 * collective ops meet.
 *
 * Threading: the rank's thread.
 */
#include "runtime/model/decoder.h"

#include <math.h>
#include <string.h>

#include "base/assertion.h"
#include "base/mem.h"

/* What the ops of one slice read, in memory that the device sees.  Arrays of DECODER_ROWS_MAX. */
struct slice {
    struct device_mirror mirror;
    const struct slice_rows *on_device;
    struct slice_rows *rows;
    uint32_t n_rows;
    uint32_t n_spans;
    uint32_t n_wanted;
    uint32_t wanted_to[DECODER_ROWS_MAX]; /* row of the plan, or index of the sample */
};

struct slice_rows {
    int32_t tokens[DECODER_ROWS_MAX];
    uint32_t slots[DECODER_ROWS_MAX];
    uint32_t positions[DECODER_ROWS_MAX];
    uint32_t seq_of[DECODER_ROWS_MAX];
    struct k_span spans[DECODER_ROWS_MAX];
    uint32_t wanted[DECODER_ROWS_MAX];       /* rows of the slice */
    uint32_t wanted_slots[DECODER_ROWS_MAX]; /* who draws from them */
    struct k_sampling params[DECODER_ROWS_MAX];
};

/* A plan under way. */
struct step {
    struct device_mirror tables; /* [groups][slots_max] struct k_seq, then the block ids */
    struct device_mirror drawn;  /* [slots_max], and padding; in the order rows are wanted */
    uint32_t n_drawn;
    uint32_t *drawn_to; /* [slots_max]: index of the sample */
};

/* What differs between computing samples and computing logits. */
struct run {
    const struct step_plan *plan;
    struct step *step;
    bool decode; /* every sequence has one row */
    bool all_rows;
    float *ret_logits; /* all_rows; NULL: nobody wants them */
};

struct decoder {
    struct device *device;
    const struct arch *arch;
    const struct shard *shard;
    const struct weights *weights;
    uint32_t seqs_max;
    size_t ids_max;
    struct k_kv kv[ARCH_GROUPS_MAX];
    const float *freqs[ARCH_GROUPS_MAX]; /* [n_rot / 2] */
    float *angles[ARCH_GROUPS_MAX];      /* [rows][2][n_rot / 2] */
    float *x;                            /* [rows][width]: the residual stream */
    float *y;                            /* [rows][width] */
    float *q;
    float *k;
    float *v;
    float *o;
    float *gate;
    float *up;
    uint32_t logit_rows;
    struct device_mirror logits; /* [logit_rows][n_vocab] */
    float *part;                 /* [logit_rows][n_vocab_part]: this rank's columns */
    float *parts;                /* of all ranks */
    struct k_act act_width;      /* what matmuls read, by row length */
    struct k_act act_heads;
    struct k_act act_ff;
    struct k_candidate *scratch;
    int32_t *last; /* [slots_max] what each slot drew last */
    unsigned slice_at;
    struct slice slices[2];               /* one is filled while the other's copy is on its way */
    struct step steps[DECODER_STEPS + 1]; /* the last one is decoder_logits()' */
};

static int alloc_rows(struct decoder *dec, uint32_t n, float **ret, struct err *err)
{
    void *p = NULL;
    int r = device_alloc(dec->device, DECODER_ROWS_MAX, n * sizeof(float), &p, err);

    *ret = p;
    return r;
}

static int alloc_logits(struct decoder *dec, struct err *err)
{
    const struct shard *s = dec->shard;
    size_t rows = dec->logit_rows = device_logit_rows(dec->device);
    void *p = NULL;
    int r = device_mirror_new(dec->device, rows * dec->arch->n_vocab * sizeof(float), &dec->logits,
                              err);

    if (r == 0)
        r = device_alloc(dec->device, rows, dec->arch->n_vocab * sizeof(*dec->scratch), &p, err);
    dec->scratch = p;
    if (r < 0 || s->size == 1)
        return r;
    r = device_alloc(dec->device, rows, s->n_vocab_part * sizeof(float), &p, err);
    dec->part = p;
    if (r == 0)
        r = device_alloc(dec->device, rows * s->size, s->n_vocab_part * sizeof(float), &p, err);
    dec->parts = p;
    return r;
}

static int alloc_buffers(struct decoder *dec, struct err *err)
{
    const struct arch *a = dec->arch;
    const struct shard *s = dec->shard;
    uint32_t n_q = s->n_heads * a->head_dim;
    uint32_t n_kv = s->n_kv_heads * a->head_dim;
    const struct {
        float **to;
        uint32_t n;
    } table[] = {
            {&dec->x, a->width}, {&dec->y, a->width}, {&dec->q, n_q},        {&dec->k, n_kv},
            {&dec->v, n_kv},     {&dec->o, n_q},      {&dec->gate, s->n_ff}, {&dec->up, s->n_ff},
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
        r = device_act(dec->device, DECODER_ROWS_MAX, s->n_ff, &dec->act_ff, err);
    if (r == 0)
        r = device_alloc(dec->device, dec->seqs_max, sizeof(*dec->last), &p, err);
    dec->last = p;
    return r == 0 ? alloc_logits(dec, err) : r;
}

static int alloc_inputs(struct decoder *dec, struct err *err)
{
    size_t bytes = (size_t)dec->arch->n_groups * dec->seqs_max * sizeof(struct k_seq) +
                   dec->ids_max * sizeof(uint32_t);
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        struct slice *s = &dec->slices[i];

        r = device_mirror_new(dec->device, sizeof(*s->rows), &s->mirror, err);
        s->rows = s->mirror.host;
        s->on_device = s->mirror.device;
    }
    for (int i = 0; i < DECODER_STEPS + 1 && r == 0; i++) {
        struct step *s = &dec->steps[i];

        r = device_mirror_new(dec->device, bytes, &s->tables, err);
        if (r == 0)
            r = device_mirror_new(dec->device, (dec->seqs_max + DECODER_ROWS_MAX) * sizeof(int32_t),
                                  &s->drawn, err);
        s->drawn_to = mem_calloc(dec->seqs_max, sizeof(*s->drawn_to));
        if (r == 0 && !s->drawn_to)
            r = err_set(err, ERR_NO_MEMORY, "decoder");
    }
    return r;
}

/* Rotary frequencies of a group; rounded to float32 first, like the models' own code does. */
static int make_freqs(struct decoder *dec, uint32_t group, struct err *err)
{
    const struct arch *a = dec->arch;
    const struct arch_group *g = &a->groups[group];
    uint32_t n = a->n_rot / 2;
    float freqs[K_HEAD_DIM_MAX / 2];
    int r = alloc_rows(dec, 2 * n, &dec->angles[group], err);

    for (uint32_t i = 0; i < n; i++) {
        double f = pow(g->rope_theta, -2.0 * i / a->n_rot) / g->rope_factor;

        if (dec->weights->has_rope_factors)
            f /= (double)dec->weights->rope_factors[i];
        freqs[i] = (float)f;
    }
    return r == 0 ? device_vector(dec->device, K_F32, n, freqs, &dec->freqs[group], err) : r;
}

int decoder_new(struct device *d, const struct arch *a, const struct shard *s,
                const struct weights *w, const struct model_options *o, struct decoder **ret,
                struct err *err)
{
    CLEANUP(decoder_freep) struct decoder *dec = mem_calloc(1, sizeof(*dec));
    uint32_t context = o->context_max && o->context_max < a->context ? o->context_max : a->context;
    int r;

    if (!dec)
        return err_set(err, ERR_NO_MEMORY, "decoder");
    dec->device = d;
    dec->arch = a;
    dec->shard = s;
    dec->weights = w;
    dec->seqs_max = o->slots_max;
    dec->ids_max = model_block_ids_max(a->n_groups, o->slots_max, context);
    r = alloc_buffers(dec, err);
    if (r == 0)
        r = alloc_inputs(dec, err);
    for (uint32_t g = 0; r == 0 && g < a->n_groups; g++)
        r = make_freqs(dec, g, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(dec);
    return 0;
}

void decoder_free(struct decoder *dec)
{
    if (!dec)
        return;
    for (int i = 0; i < DECODER_STEPS + 1; i++)
        mem_free(dec->steps[i].drawn_to);
    mem_free(dec);
}

static uint64_t layer_bytes(const struct decoder *dec)
{
    return (uint64_t)2 * dec->shard->n_kv_heads * dec->arch->head_dim * K_BLOCK *
           (device_kv_f32(dec->device) ? 4 : 2);
}

uint64_t decoder_group_bytes(const struct decoder *dec, uint32_t group)
{
    return layer_bytes(dec) * dec->arch->groups[group].n_layers;
}

int decoder_kv_init(struct decoder *dec, uint32_t group, uint32_t n_blocks, struct err *err)
{
    uint64_t bytes = decoder_group_bytes(dec, group);
    void *base = NULL;
    int r = device_alloc(dec->device, n_blocks, (size_t)bytes, &base, err);

    dec->kv[group] = (struct k_kv){
            .base = base,
            .block_bytes = bytes,
            .n_kv_heads = dec->shard->n_kv_heads,
            .head_dim = dec->arch->head_dim,
            .f32 = device_kv_f32(dec->device),
    };
    return r;
}

static struct k_kv layer_kv(const struct decoder *dec, uint32_t layer)
{
    struct k_kv kv = dec->kv[arch_group_of(dec->arch, layer)];
    uint64_t bytes = layer_bytes(dec);

    kv.k_offset = arch_index_in_group(dec->arch, layer) * bytes;
    kv.v_offset = kv.k_offset + bytes / 2;
    return kv;
}

/* The slice whose ops are listed. */
static const struct slice *slice_of(const struct decoder *dec)
{
    return &dec->slices[dec->slice_at];
}

static const struct k_seq *seqs_of(const struct decoder *dec, const struct run *run, uint32_t group)
{
    return (const struct k_seq *)run->step->tables.device + (size_t)group * dec->seqs_max;
}

static void norm(const struct decoder *dec, const float *weight, const struct k_act *out)
{
    struct k_norm a = {
            .x = dec->x,
            .weight = weight,
            .eps = dec->arch->norm_eps,
            .n = dec->arch->width,
            .n_rows = slice_of(dec)->n_rows,
            .out = *out,
    };

    device_norm(dec->device, &a);
}

/* x += w . in, through the post norm if there is one; w may be a rank's share of the columns. */
static void project_add(const struct decoder *dec, const struct k_act *in, const struct k_matrix *w,
                        const float *post_norm)
{
    uint32_t n_rows = slice_of(dec)->n_rows;
    bool direct = !post_norm && dec->shard->size == 1;
    struct k_matmul m = {
            .in = *in,
            .n_rows = n_rows,
            .n_mats = 1,
            .w = {w},
            .out = {direct ? dec->x : dec->y},
            .add = direct,
    };
    struct k_norm_add n = {
            .x = dec->x,
            .y = dec->y,
            .weight = post_norm,
            .eps = dec->arch->norm_eps,
            .n = dec->arch->width,
            .n_rows = n_rows,
    };

    device_matmul(dec->device, &m);
    if (direct)
        return;
    device_all_reduce(dec->device, dec->y, (size_t)n_rows * dec->arch->width);
    device_norm_add(dec->device, &n);
}

static void store(const struct decoder *dec, const struct run *run, uint32_t layer)
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
            .n_heads = dec->shard->n_heads,
            .n_rows = slice_of(dec)->n_rows,
            .positions = slice_of(dec)->on_device->positions,
            .seq_of = slice_of(dec)->on_device->seq_of,
            .seqs = seqs_of(dec, run, group),
            .kv = layer_kv(dec, layer),
    };

    device_store(dec->device, &s);
}

static void attend(const struct decoder *dec, const struct run *run, uint32_t layer)
{
    const struct arch *a = dec->arch;
    uint32_t group = arch_group_of(a, layer);
    struct k_attend at = {
            .q = dec->q,
            .out = dec->o,
            .spans = slice_of(dec)->on_device->spans,
            .n_spans = slice_of(dec)->n_spans,
            .decode = run->decode,
            .seqs = seqs_of(dec, run, group),
            .n_heads = dec->shard->n_heads,
            .window = a->groups[group].window,
            .scale = a->attn_scale,
            .kv = layer_kv(dec, layer),
    };
    struct k_norm pack = {
            .x = dec->o,
            .n = dec->shard->n_heads * a->head_dim,
            .n_rows = slice_of(dec)->n_rows,
            .out = dec->act_heads,
    };

    device_attend(dec->device, &at);
    device_norm(dec->device, &pack);
}

static void layer(const struct decoder *dec, const struct run *run, uint32_t i)
{
    const struct layer_weights *w = &dec->weights->layers[i];
    uint32_t n_rows = slice_of(dec)->n_rows;
    struct k_matmul qkv = {
            .in = dec->act_width,
            .n_rows = n_rows,
            .n_mats = 3,
            .w = {w->q, w->k, w->v},
            .out = {dec->q, dec->k, dec->v},
    };
    struct k_matmul gate_up = {
            .in = dec->act_width,
            .n_rows = n_rows,
            .n_mats = 2,
            .w = {w->gate, w->up},
            .out = {dec->gate, dec->up},
    };
    struct k_gate gate = {
            .kind = dec->arch->gate,
            .gate = dec->gate,
            .up = dec->up,
            .n = dec->shard->n_ff,
            .n_rows = n_rows,
            .out = dec->act_ff,
    };

    norm(dec, w->attn_norm, &dec->act_width);
    device_matmul(dec->device, &qkv);
    store(dec, run, i);
    attend(dec, run, i);
    project_add(dec, &dec->act_heads, w->o, w->post_attn_norm);
    norm(dec, w->ffn_norm, &dec->act_width);
    device_matmul(dec->device, &gate_up);
    device_gate(dec->device, &gate);
    project_add(dec, &dec->act_ff, w->down, w->post_ffn_norm);
}

static void forward(const struct decoder *dec, const struct run *run)
{
    const struct arch *a = dec->arch;
    const struct slice *s = slice_of(dec);
    struct k_embed e = {
            .table = dec->weights->embed,
            .first = dec->shard->first_vocab,
            .tokens = s->on_device->tokens,
            .slots = s->on_device->slots,
            .last = dec->last,
            .scale = a->embed_scale,
            .out = dec->x,
            .n_rows = s->n_rows,
    };

    device_embed(dec->device, &e);
    device_all_reduce(dec->device, dec->x, (size_t)s->n_rows * a->width);
    for (uint32_t g = 0; g < a->n_groups; g++) {
        struct k_angles angles = {
                .positions = s->on_device->positions,
                .freqs = dec->freqs[g],
                .n_freqs = a->n_rot / 2,
                .n_rows = s->n_rows,
                .out = dec->angles[g],
        };

        device_angles(dec->device, &angles);
    }
    for (uint32_t i = 0; i < a->n_layers; i++)
        layer(dec, run, i);
}

/* Logits of the wanted rows first .. first + n - 1. */
static void head(const struct decoder *dec, uint32_t first, uint32_t n)
{
    const struct shard *s = dec->shard;
    struct k_norm norm_rows = {
            .x = dec->x,
            .row_ids = slice_of(dec)->on_device->wanted + first,
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
            .out = {s->size == 1 ? dec->logits.device : dec->part},
    };
    struct k_gather gather = {
            .parts = dec->parts,
            .out = dec->logits.device,
            .n_part = s->n_vocab_part,
            .n = dec->arch->n_vocab,
            .n_rows = n,
    };

    device_norm(dec->device, &norm_rows);
    device_matmul(dec->device, &m);
    if (s->size == 1)
        return;
    device_all_gather(dec->device, dec->part, (size_t)n * s->n_vocab_part, dec->parts);
    device_gather(dec->device, &gather);
}

/* The slice's draws, as the ones from 'drawn' on of the step. */
static void draw(const struct decoder *dec, const struct run *run, uint32_t drawn)
{
    const struct slice *s = slice_of(dec);

    for (uint32_t first = 0; first < s->n_wanted; first += dec->logit_rows) {
        uint32_t left = s->n_wanted - first;
        uint32_t n = left < dec->logit_rows ? left : dec->logit_rows;
        struct k_sample sample = {
                .logits = dec->logits.device,
                .params = s->on_device->params + first,
                .scratch = dec->scratch,
                .n_vocab = dec->arch->n_vocab,
                .n_rows = n,
                .out = (int32_t *)run->step->drawn.device + drawn + first,
                .slots = s->on_device->wanted_slots + first,
                .last = dec->last,
        };

        head(dec, first, n);
        device_sample(dec->device, &sample);
    }
}

static int tell_logits(const struct decoder *dec, const struct run *run, struct err *err)
{
    const struct slice *s = slice_of(dec);
    size_t row = dec->arch->n_vocab;
    int r = 0;

    for (uint32_t first = 0; first < s->n_wanted && r == 0; first += dec->logit_rows) {
        uint32_t left = s->n_wanted - first;
        uint32_t n = left < dec->logit_rows ? left : dec->logit_rows;

        head(dec, first, n);
        device_mirror_get(dec->device, &dec->logits, n * row * sizeof(float));
        r = device_submit(dec->device, err);
        if (r == 0)
            r = device_mirror_wait(dec->device, &dec->logits, err);
        for (uint32_t i = 0; i < n && r == 0 && run->ret_logits; i++)
            memcpy(run->ret_logits + s->wanted_to[first + i] * row,
                   (float *)dec->logits.host + i * row, row * sizeof(float));
    }
    return r;
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

static void want_row(struct slice *s, uint32_t row, const struct run *run,
                     const struct plan_seq *seq, uint32_t token)
{
    uint32_t i = s->n_wanted++;

    s->rows->wanted[i] = row;
    s->rows->wanted_slots[i] = seq->slot;
    s->wanted_to[i] = run->all_rows ? token : seq->sample;
    if (!run->all_rows)
        s->rows->params[i] = sampling_of(&run->plan->samples[seq->sample]);
}

/* Rows of one sequence that fall into the slice [first, first + DECODER_ROWS_MAX) of the plan. */
static void slice_add(struct slice *s, const struct run *run, uint32_t seq_index, uint32_t first)
{
    const struct plan_seq *seq = &run->plan->seqs[seq_index];
    uint32_t seq_end = seq->first_token + seq->n_tokens, end = first + DECODER_ROWS_MAX;
    uint32_t from = seq->first_token > first ? seq->first_token : first;
    uint32_t to = seq_end < end ? seq_end : end;

    for (uint32_t t = from; t < to; t++) {
        uint32_t row = t - first;
        uint32_t position = seq->start_pos + (t - seq->first_token);
        struct k_span *span = s->n_spans > 0 ? &s->rows->spans[s->n_spans - 1] : NULL;

        s->rows->tokens[row] = run->plan->tokens[t];
        s->rows->slots[row] = seq->slot;
        s->rows->positions[row] = position;
        s->rows->seq_of[row] = seq_index;
        if (!span || span->seq != seq_index || span->n_rows == K_SPAN_ROWS)
            s->rows->spans[s->n_spans++] = (struct k_span){
                    .seq = seq_index, .first_row = row, .n_rows = 1, .position = position};
        else
            span->n_rows++;
        if (run->all_rows || (seq->sample != PLAN_NO_SAMPLE && t + 1 == seq_end))
            want_row(s, row, run, seq, t);
    }
}

/* A plan where every sequence has one token and draws the next is padded to one of a few sizes, so
 * that a device that keeps lists of ops can submit the same one again. */
static const uint32_t buckets[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
enum { N_BUCKETS = sizeof(buckets) / sizeof(buckets[0]) };
_Static_assert(DECODER_STEPS *N_BUCKETS <= DEVICE_REPLAYS_MAX, "lists to keep");

uint32_t decoder_kept_rows(const struct decoder *dec, unsigned i)
{
    return i < N_BUCKETS && device_keeps_lists(dec->device) ? buckets[i] : 0;
}

static bool is_decode(const struct decoder *dec, const struct step_plan *p)
{
    return device_keeps_lists(dec->device) && p->n_tokens == p->n_seqs &&
           p->n_samples == p->n_seqs && p->n_tokens <= DECODER_ROWS_MAX;
}

static void pad(struct slice *s, uint32_t n)
{
    for (uint32_t i = s->n_rows; i < n; i++) {
        s->rows->tokens[i] = INT32_MIN;
        s->rows->positions[i] = 0;
        s->rows->seq_of[i] = UINT32_MAX;
        s->rows->spans[i] = (struct k_span){0};
        s->rows->wanted[i] = 0;
        s->rows->wanted_slots[i] = UINT32_MAX;
        s->rows->params[i] = (struct k_sampling){.top_p = 1};
    }
    s->n_rows = s->n_spans = s->n_wanted = n;
}

/* Fill the rows from 'first' on into the next slice buffer, as soon as it is free. */
static int fill_slice(struct decoder *dec, const struct run *run, uint32_t first, struct err *err)
{
    uint32_t left = run->plan->n_tokens - first;
    struct slice *s = &dec->slices[dec->slice_at];
    int r = device_mirror_wait(dec->device, &s->mirror, err);

    if (r < 0)
        return r;
    s->n_rows = left < DECODER_ROWS_MAX ? left : DECODER_ROWS_MAX;
    s->n_spans = 0;
    s->n_wanted = 0;
    for (uint32_t i = 0; i < run->plan->n_seqs; i++)
        slice_add(s, run, i, first);
    for (uint32_t i = 0; i < s->n_wanted && !run->all_rows; i++)
        run->step->drawn_to[run->step->n_drawn + i] = s->wanted_to[i];
    return 0;
}

/* The one slice of a decode.  Its buffer goes with the step's: a kept list names both. */
static int run_decode(struct decoder *dec, const struct run *run, unsigned step, struct err *err)
{
    struct slice *s = &dec->slices[step];
    unsigned bucket = 0;
    enum device_replay replay;
    int r;

    dec->slice_at = step;
    r = fill_slice(dec, run, 0, err);
    if (r < 0)
        return r;
    run->step->n_drawn = s->n_wanted;
    while (buckets[bucket] < s->n_rows)
        bucket++;
    pad(s, buckets[bucket]);
    device_mirror_put(dec->device, &s->mirror, sizeof(*s->rows));
    r = device_replay(dec->device, DECODER_STEPS * bucket + step, &replay, err);
    if (r < 0 || replay == DEVICE_REPLAYED)
        return r;
    forward(dec, run);
    draw(dec, run, 0);
    return replay == DEVICE_RECORDING
                   ? device_record_end(dec->device, DECODER_STEPS * bucket + step, err)
                   : device_submit(dec->device, err);
}

static int run_slices(struct decoder *dec, const struct run *run, struct err *err)
{
    int r = 0;

    for (uint32_t first = 0; first < run->plan->n_tokens && r == 0; first += DECODER_ROWS_MAX) {
        struct slice *s;

        dec->slice_at ^= 1;
        s = &dec->slices[dec->slice_at];
        r = fill_slice(dec, run, first, err);
        if (r < 0)
            break;
        device_mirror_put(dec->device, &s->mirror, sizeof(*s->rows));
        forward(dec, run);
        if (run->all_rows) {
            r = tell_logits(dec, run, err);
            continue;
        }
        draw(dec, run, run->step->n_drawn);
        run->step->n_drawn += s->n_wanted;
        r = device_submit(dec->device, err);
    }
    return r;
}

/* The block tables of all sequences, as the device will see them. */
static int put_tables(struct decoder *dec, const struct run *run, struct err *err)
{
    const struct step_plan *plan = run->plan;
    const struct device_mirror *m = &run->step->tables;
    size_t n_seqs = (size_t)dec->arch->n_groups * dec->seqs_max;
    size_t ids_at = n_seqs * sizeof(struct k_seq);
    const uint32_t *ids = (const uint32_t *)(const void *)((const char *)m->device + ids_at);
    struct k_seq *seqs = m->host;
    int r = device_mirror_wait(dec->device, m, err);

    ASSERT(plan->n_seqs <= dec->seqs_max && plan->n_block_ids <= dec->ids_max);
    if (r < 0)
        return r;
    for (uint32_t g = 0; g < dec->arch->n_groups; g++)
        for (uint32_t i = 0; i < plan->n_seqs; i++)
            seqs[(size_t)g * dec->seqs_max + i].blocks = ids + plan->seqs[i].table_first[g];
    memcpy((char *)m->host + ids_at, plan->block_ids, plan->n_block_ids * sizeof(*ids));
    device_mirror_put(dec->device, m, ids_at + plan->n_block_ids * sizeof(*ids));
    return 0;
}

int decoder_submit(struct decoder *dec, unsigned step, const struct step_plan *plan,
                   struct err *err)
{
    struct run run = {.plan = plan, .step = &dec->steps[step]};
    int r;

    ASSERT(step < DECODER_STEPS);
    run.step->n_drawn = 0;
    run.decode = is_decode(dec, plan);
    r = put_tables(dec, &run, err);
    if (r == 0)
        r = run.decode ? run_decode(dec, &run, step, err) : run_slices(dec, &run, err);
    if (r == 0)
        device_mirror_get(dec->device, &run.step->drawn, run.step->n_drawn * sizeof(int32_t));
    return r;
}

int decoder_collect(struct decoder *dec, unsigned step, int32_t *ret_tokens, struct err *err)
{
    const struct step *s = &dec->steps[step];
    const int32_t *drawn = s->drawn.host;
    int r = device_mirror_wait(dec->device, &s->drawn, err);

    for (uint32_t i = 0; r == 0 && ret_tokens && i < s->n_drawn; i++)
        ret_tokens[s->drawn_to[i]] = drawn[i];
    return r;
}

int decoder_logits(struct decoder *dec, const struct step_plan *plan, float *ret_logits,
                   struct err *err)
{
    struct run run = {.plan = plan,
                      .step = &dec->steps[DECODER_STEPS],
                      .all_rows = true,
                      .ret_logits = ret_logits};
    int r = put_tables(dec, &run, err);

    return r == 0 ? run_slices(dec, &run, err) : r;
}
