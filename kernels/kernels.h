/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The C ABI of all numeric code.  One plain args struct per op; an op is called as
 * op(args, first, end) and computes the items first .. end - 1 of the k_*_items() there are, so
 * that any number of threads can share one op.  Items never depend on each other, and no item's
 * result depends on how items were dealt out, on n_rows, or on which other rows are there: this
 * is what makes answers independent of the batch (DESIGN section 6).
 *
 * Arrays are row-major; [a][b] has b contiguous.  Ops allocate nothing, keep no state, never fail:
 * the caller has checked every size.  kernels/ref is the specification (float32, plain loops);
 * kernels/cpu computes the same within the tolerances of tests/kernels.
 *
 * No op may write outside its items, so the caller needs a barrier between ops only. */

/* How weights are stored; the numbers are GGUF's.  Block formats, all little-endian, d and m are
 * float16 (https://github.com/ggml-org/ggml, file formats; x[i] are the 32 or 256 values):
 *   Q4_0 18 B  d, 16 B: low nibbles x[0..15], high nibbles x[16..31]; x = (q - 8) d
 *   Q4_1 20 B  d, m, the same nibbles; x = q d + m
 *   Q5_0 22 B  d, u32 of fifth bits (bit i belongs to x[i]), nibbles; x = (q - 16) d
 *   Q5_1 24 B  d, m, u32, nibbles; x = q d + m
 *   Q8_0 34 B  d, 32 signed bytes; x = q d
 *   Q4_K 144 B d, dmin, 12 B of 6-bit scales and mins of 8 groups, 128 B of nibbles
 *   Q5_K 176 B d, dmin, 12 B, 32 B of fifth bits, 128 B of nibbles
 *   Q6_K 210 B 128 B of low nibbles, 64 B of high bit pairs, 16 signed scales, d */
enum k_type {
    K_F32 = 0,
    K_F16 = 1,
    K_Q4_0 = 2,
    K_Q4_1 = 3,
    K_Q5_0 = 6,
    K_Q5_1 = 7,
    K_Q8_0 = 8,
    K_Q4_K = 12,
    K_Q5_K = 13,
    K_Q6_K = 14,
    K_BF16 = 30,
};

enum {
    K_BLOCK = 32,     /* positions a KV block */
    K_GROUP = 32,     /* activations that share a scale */
    K_MATMUL_MAX = 3, /* matrices one matmul multiplies the same rows with */
    K_SPAN_ROWS = 16, /* most rows an attention span has */
    K_HEAD_DIM_MAX = 512,
};

/* A matrix of n_out rows of n_in values.  'data' is what the backend's pack op made (k_ops), or
 * the stored rows themselves for a backend that does not pack. */
struct k_matrix {
    enum k_type type;
    uint32_t n_in;
    uint32_t n_out;
    const void *data;
};

/* Rows that a matmul reads.  A backend fills and reads the forms that are not NULL:
 *   f32    [rows][n]
 *   q      [rows][n], round(x / scale), -127 .. 127
 *   scale  [rows][n / K_GROUP], max|x| of the group / 127
 *   total  [rows][n / K_GROUP], the sum of q of the group
 *   sum    [rows][n / K_GROUP], scale x total
 * Groups are whole: the last one of a row is filled up with zeros. */
struct k_act {
    uint32_t n;
    float *f32;
    int8_t *q;
    float *scale;
    int32_t *total;
    float *sum;
};

/* out[r] = scale x row (id - first) of the table, zeros where the table has no such row: it may be
 * a shard of the vocabulary.  id is tokens[r], or where that is negative what the row's slot drew
 * last (0 when that was no token).  Items: rows. */
struct k_embed {
    const struct k_matrix *table;
    uint32_t first;        /* vocabulary id of the table's first row */
    const int32_t *tokens; /* [n_rows] */
    const uint32_t *slots; /* [n_rows]; not read for rows with a token */
    const int32_t *last;   /* by slot */
    float scale;
    float *out; /* [n_rows][n_in] */
    uint32_t n_rows;
};

/* norm(x) = (x - m) / sqrt(mean((x - m)^2) + eps) x weight + bias, m being 0 or mean(x). */
enum k_norm_kind {
    K_NORM_RMS,  /* m = 0: root mean square norm, arXiv:1910.07467 */
    K_NORM_LAYER /* m = mean(x): layer norm, arXiv:1607.06450 */
};

/* out = norm(x).  Items: rows.  row_ids picks the rows of x; NULL: row r is row r. */
struct k_norm {
    const float *x; /* [..][n] */
    const uint32_t *row_ids;
    enum k_norm_kind kind;
    const float *weight; /* [n]; NULL: no norm, only pack the rows into out */
    const float *bias;   /* [n]; NULL: none.  Not read without a weight */
    float eps;
    uint32_t n;
    uint32_t n_rows;
    struct k_act out;
};

/* x += norm(y) (weight NULL: x += y).  Items: rows. */
struct k_norm_add {
    float *x;       /* [n_rows][n] */
    const float *y; /* [n_rows][n] */
    enum k_norm_kind kind;
    const float *weight;
    const float *bias; /* as in k_norm */
    float eps;
    uint32_t n;
    uint32_t n_rows;
};

/* out[m][r][o] (+)= sum over i of in[r][i] x w[m][o][i].  Items: tiles of K_TILE outputs, all
 * matrices one after the other (k_matmul_items). */
enum { K_TILE = 16 };
struct k_matmul {
    struct k_act in;
    uint32_t n_rows;
    uint32_t n_mats;
    const struct k_matrix *w[K_MATMUL_MAX]; /* n_in == in.n */
    float *out[K_MATMUL_MAX];               /* [n_rows][n_out] */
    bool add;                               /* to what out holds */
};
uint32_t k_matmul_items(const struct k_matmul *a);

/* cos and sin of position x frequency.  Items: rows. */
struct k_angles {
    const uint32_t *positions; /* [n_rows] */
    const float *freqs;        /* [n_freqs] */
    uint32_t n_freqs;
    uint32_t n_rows;
    float *out; /* [n_rows][2][n_freqs]: cosines, then sines */
};

/* Rotary position embedding (arXiv:2104.09864) turns pairs of a head's first 2 x n_freqs values. */
enum k_rope {
    K_ROPE_PAIRS, /* (x0,x1), (x2,x3) ...: how GGUF stores architecture llama ("norm") */
    K_ROPE_HALVES /* (x0,x[n/2]), (x1,x[n/2+1]) ...: most others ("neox") */
};

/* One layer of a KV group.  A block is at base + id x block_bytes; in it this layer's keys are at
 * k_offset as [n_kv_heads][head_dim][K_BLOCK] (transposed: scores of a block need no sums across
 * lanes) and its values at v_offset as [n_kv_heads][K_BLOCK][head_dim].  Elements are float16, or
 * float32 when f32 is set. */
struct k_kv {
    void *base;
    uint64_t block_bytes;
    uint64_t k_offset;
    uint64_t v_offset;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    bool f32;
};

/* What attention knows of a sequence: its blocks, by position / K_BLOCK. */
struct k_seq {
    const uint32_t *blocks;
};

/* Rotate q in place, rotate k, store k and v.  Items: rows. */
struct k_store {
    float *q;       /* [n_rows][n_heads x head_dim] */
    const float *k; /* [n_rows][n_kv_heads x head_dim] */
    const float *v;
    const float *q_weight; /* [head_dim]: norm each head first; NULL: do not */
    const float *k_weight;
    float eps;
    enum k_rope rope;
    const float *angles; /* [n_rows][2][n_freqs] */
    uint32_t n_freqs;
    uint32_t n_heads;
    uint32_t n_rows;
    const uint32_t *positions; /* [n_rows] */
    const uint32_t *seq_of;    /* [n_rows]: index into seqs */
    const struct k_seq *seqs;
    struct k_kv kv;
};

/* Neighbouring rows of one sequence; at most K_SPAN_ROWS. */
struct k_span {
    uint32_t seq;
    uint32_t first_row;
    uint32_t n_rows;
    uint32_t position; /* of the first row; the next row's is one more */
};

/* out[r][h] = softmax(cap(scale x q . k)) v over the positions that row r sees: its own and before,
 * at most 'window' of them (0: all).  Online softmax (arXiv:1805.02867) over KV blocks at absolute
 * positions.  cap(s) = soft_cap x tanh(s / soft_cap) keeps scores within +-soft_cap (Gemma 2,
 * arXiv:2408.00118).  Items: spans x n_kv_heads. */
struct k_attend {
    const float *q; /* [n_rows][n_heads x head_dim] */
    float *out;     /* the same shape */
    const struct k_span *spans;
    uint32_t n_spans;
    bool decode; /* every span has one row (or none: it is left out) */
    const struct k_seq *seqs;
    uint32_t n_heads; /* a multiple of kv.n_kv_heads: heads h x G .. share KV head h */
    uint32_t window;
    float scale;
    float soft_cap; /* 0: none */
    struct k_kv kv;
};

/* out = f(gate) x up.  Items: rows. */
enum k_gate_kind {
    K_GATE_SILU,     /* g / (1 + exp(-g)) */
    K_GATE_GELU_TANH /* 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))), arXiv:1606.08415 */
};
struct k_gate {
    enum k_gate_kind kind;
    const float *gate; /* [n_rows][n] */
    const float *up;   /* [n_rows][n] */
    uint32_t n;
    uint32_t n_rows;
    struct k_act out;
};

/* Change rows of logits in place, before a token is drawn.  Items: rows.  Steps, in this order:
 *   1  repetition penalty (CTRL, arXiv:1909.05858): of tokens seen in the prompt or the output,
 *      positive logits are divided by 'repetition', others multiplied by it
 *   2  presence and frequency penalties (OpenAI's API reference): tokens with n_output > 0 lose
 *      presence + frequency x n_output
 *   3  biases are added
 *   4  tokens that the mask does not allow become -INFINITY, which k_sample never draws
 * An adjustment of zeros changes nothing and costs a look at it.  Lists may lie anywhere in the
 * flat arrays: those of a sequence can stay where they are from step to step, so that the host
 * sends only entries that changed.  Within a list ids differ.  (The decoder does not call it yet.)
 */
struct k_seen {
    uint32_t id; /* < n_vocab */
    uint32_t n_prompt;
    uint32_t n_output;
};
struct k_bias {
    uint32_t id; /* < n_vocab */
    float value;
};
struct k_adjustment {
    float repetition; /* > 0 where tokens are seen; 1: none */
    float presence;
    float frequency;
    uint32_t first_seen;
    uint32_t n_seen;
    uint32_t first_bias;
    uint32_t n_biases;
    uint32_t mask; /* row of masks */
    bool masked;   /* else all tokens are allowed */
};
struct k_adjust {
    float *logits;                   /* [n_rows][n_vocab] */
    const struct k_adjustment *rows; /* [n_rows] */
    const struct k_seen *seen;       /* of all rows */
    const struct k_bias *biases;     /* of all rows */
    const uint32_t *masks; /* [..][k_mask_words(n_vocab)]: bit id % 32 of word id / 32: allowed */
    uint32_t n_vocab;
    uint32_t n_rows;
};
static inline uint32_t k_mask_words(uint32_t n_vocab)
{
    return (n_vocab + 31) / 32;
}

/* Draw a token from each row of logits.  Items: rows.  Order: divide by temperature, softmax;
 * keep the top_k most likely (0: all); of those the fewest whose renormalised sum reaches top_p;
 * of those the ones of at least min_p x the best.  Of equals the lower id goes first.  The draw
 * walks the kept ids upward until their sum passes u x total, u from k_uniform().  A temperature
 * below 1e-6 takes the best.  -INFINITY is never drawn; a row with nothing else, or with a value
 * that is +INFINITY or no number, gives -1. */
struct k_sampling {
    float temperature; /* >= 0 */
    float top_p;       /* (0, 1] */
    float min_p;       /* [0, 1] */
    uint32_t top_k;
    uint64_t seed;
    uint32_t position;
    uint32_t choice;
};
/* Room for putting tokens in order. */
struct k_candidate {
    float logit;
    uint32_t id;
};
struct k_sample {
    const float *logits;             /* [n_rows][n_vocab] */
    const struct k_sampling *params; /* [n_rows] */
    struct k_candidate *scratch;     /* [n_rows][n_vocab]; not touched by greedy rows */
    uint32_t n_vocab;
    uint32_t n_rows;
    int32_t *out;          /* [n_rows] */
    const uint32_t *slots; /* [n_rows], different ones */
    int32_t *last;         /* last[slots[r]] = out[r], too; NULL: not wanted */
};

/* Columns that several ranks computed, put together: part k has the columns k x n_part .. of all n,
 * w = min(n_part, n - k x n_part) of them, as [n_rows][w] at parts + k x n_rows x n_part.
 * out[r][c] = the value of column c.  Items: rows. */
struct k_gather {
    const float *parts;
    float *out; /* [n_rows][n] */
    uint32_t n_part;
    uint32_t n;
    uint32_t n_rows;
};

/* The id that a row embeds. */
static inline uint32_t k_embed_id(const struct k_embed *a, uint32_t row)
{
    int32_t id = a->tokens[row] >= 0 ? a->tokens[row] : a->last[a->slots[row]];

    return id >= 0 ? (uint32_t)id : 0;
}

/* Uniform in [0, 1), 53 bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011) of counter (position, choice, 0, 0) and key seed. */
double k_uniform(uint64_t seed, uint32_t position, uint32_t choice);
/* The generator itself, for its known answers. */
void k_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Stored rows into the backend's own order.  Items: tiles of K_TILE rows. */
struct k_pack {
    enum k_type type;
    uint32_t n_in;
    uint32_t n_out;
    const void *stored;
    void *packed; /* k_ops.packed_bytes(), 64-byte aligned, zeroed */
};

/* Values n (a multiple of the block length) of a stored row, as float32. */
void k_dequantise(enum k_type type, const void *stored, uint32_t n, float *out);
/* Values and bytes a block of a stored type. */
uint32_t k_block_len(enum k_type type);
uint32_t k_block_bytes(enum k_type type);

/* A backend. */
struct k_ops {
    const char *name;
    bool kv_f32; /* its KV cache */
    /* Does a matrix of this type multiply k_act's q form (else its f32 form)?  NULL: none does. */
    bool (*wants_q)(enum k_type type);
    /* NULL: matrices are used as stored */
    size_t (*packed_bytes)(enum k_type type, uint32_t n_in, uint32_t n_out);
    void (*pack)(const struct k_pack *a, uint32_t first, uint32_t end);
    void (*embed)(const struct k_embed *a, uint32_t first, uint32_t end);
    void (*norm)(const struct k_norm *a, uint32_t first, uint32_t end);
    void (*norm_add)(const struct k_norm_add *a, uint32_t first, uint32_t end);
    void (*matmul)(const struct k_matmul *a, uint32_t first, uint32_t end);
    void (*angles)(const struct k_angles *a, uint32_t first, uint32_t end);
    void (*store)(const struct k_store *a, uint32_t first, uint32_t end);
    void (*attend)(const struct k_attend *a, uint32_t first, uint32_t end);
    void (*gate)(const struct k_gate *a, uint32_t first, uint32_t end);
    void (*adjust)(const struct k_adjust *a, uint32_t first, uint32_t end);
    void (*sample)(const struct k_sample *a, uint32_t first, uint32_t end);
    void (*gather)(const struct k_gather *a, uint32_t first, uint32_t end);
};

const struct k_ops *k_ref_ops(void);
/* Backend i of those that this processor can run, the best first; NULL beyond the last. */
const struct k_ops *k_cpu_ops(unsigned i);
