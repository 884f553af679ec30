/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over a paged cache: against the reference, the backends bit for bit against each
 * other, and a row alone against the same row in a longer span.
 */
#include "tests/support.h"

#include <math.h>

#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

struct bench {
    struct attention_shape s;
    float soft_cap;
    struct k_kv kv;
    uint32_t *blocks;
    struct k_seq seq;
    float *q;
    float *k;
    float *v;
    uint32_t *positions;
    uint32_t *seq_of;
    float *angles;
};

/* Write all positions into a cache through the op store; q gets the rows' rotated queries. */
static void fill(struct bench *b, bool f32)
{
    struct attention_shape s = b->s;
    uint32_t n = s.start + s.n_rows;
    uint32_t n_blocks = (n + K_BLOCK - 1) / K_BLOCK;
    size_t bytes = (size_t)2 * s.n_kv_heads * s.head_dim * K_BLOCK * (f32 ? 4 : 2);
    struct k_store a = {.q = b->q,
                        .k = b->k,
                        .v = b->v,
                        .rope = K_ROPE_HALVES,
                        .angles = b->angles,
                        .n_freqs = s.head_dim / 2,
                        .n_heads = s.n_heads,
                        .n_rows = n,
                        .positions = b->positions,
                        .seq_of = b->seq_of,
                        .seqs = &b->seq};

    b->kv = (struct k_kv){.block_bytes = bytes,
                          .v_offset = bytes / 2,
                          .n_kv_heads = s.n_kv_heads,
                          .head_dim = s.head_dim,
                          .f32 = f32};
    b->kv.base = test_alloc(n_blocks + 1, bytes);
    memset(b->kv.base, 0xff, (n_blocks + 1) * bytes); /* what nobody wrote is not a number */
    a.kv = b->kv;
    k_ref_ops()->store(&a, 0, n);
}

static struct bench bench_new(struct attention_shape s)
{
    struct random r = {s.head_dim + s.start};
    uint32_t n = s.start + s.n_rows;
    uint32_t n_blocks = (n + K_BLOCK - 1) / K_BLOCK;
    struct bench b = {.s = s};

    b.q = random_floats(&r, (size_t)n * s.n_heads * s.head_dim, -1, 1);
    b.k = random_floats(&r, (size_t)n * s.n_kv_heads * s.head_dim, -1, 1);
    b.v = random_floats(&r, (size_t)n * s.n_kv_heads * s.head_dim, -1, 1);
    b.angles = random_floats(&r, (size_t)n * s.head_dim, -1, 1);
    b.positions = test_alloc(n, sizeof(uint32_t));
    b.seq_of = test_alloc(n, sizeof(uint32_t));
    b.blocks = test_alloc(n_blocks, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        b.positions[i] = i;
    for (uint32_t i = 0; i < n_blocks; i++)
        b.blocks[i] = n_blocks - i; /* backwards, and block 0 unused */
    b.seq.blocks = b.blocks;
    return b;
}

static void bench_free(struct bench *b)
{
    mem_free(b->q);
    mem_free(b->k);
    mem_free(b->v);
    mem_free(b->angles);
    mem_free(b->positions);
    mem_free(b->seq_of);
    mem_free(b->blocks);
    mem_free(b->kv.base);
}

/* The op over spans of at most span_rows rows. */
static float *attend(const struct k_ops *ops, const struct bench *b, uint32_t span_rows)
{
    struct attention_shape s = b->s;
    size_t row = (size_t)s.n_heads * s.head_dim;
    float *out = test_alloc(s.n_rows * row, sizeof(*out));
    CLEANUP(mem_freep) struct k_span *spans = test_alloc(s.n_rows, sizeof(*spans));
    struct k_attend a = {.q = b->q + s.start * row,
                         .out = out,
                         .spans = spans,
                         .seqs = &b->seq,
                         .n_heads = s.n_heads,
                         .window = s.window,
                         .scale = 0.3F,
                         .soft_cap = b->soft_cap,
                         .kv = b->kv};

    for (uint32_t r = 0; r < s.n_rows; r += span_rows)
        spans[a.n_spans++] =
                (struct k_span){.first_row = r,
                                .n_rows = s.n_rows - r < span_rows ? s.n_rows - r : span_rows,
                                .position = s.start + r};
    for (uint32_t i = a.n_spans * s.n_kv_heads; i-- > 0;)
        ops->attend(&a, i, i + 1);
    return out;
}

static void check_shape(size_t i, float soft_cap)
{
    struct bench b = bench_new(attention_shapes[i]);
    size_t n = (size_t)b.s.n_rows * b.s.n_heads * b.s.head_dim;
    CLEANUP(mem_freep) float *want = NULL;
    CLEANUP(mem_freep) float *first = NULL;

    b.soft_cap = soft_cap;
    fill(&b, false);
    want = attend(k_ref_ops(), &b, K_SPAN_ROWS);
    first = attend(k_cpu_ops(0), &b, K_SPAN_ROWS);
    for (size_t j = 0; j < n; j++)
        if (!(fabsf(first[j] - want[j]) <= 2e-6F))
            fail_msg("shape %zu, cap %g, %zu: %g, want %g", i, (double)soft_cap, j,
                     (double)first[j], (double)want[j]);
    for (unsigned k = 0; k_cpu_ops(k); k++)
        for (uint32_t rows = 1; rows <= K_SPAN_ROWS; rows += 5) {
            float *other = attend(k_cpu_ops(k), &b, rows);

            assert_memory_equal(first, other, n * sizeof(*first));
            mem_free(other);
        }
    bench_free(&b);
}

static void equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_attention_shapes; i++) {
        check_shape(i, 0);
        check_shape(i, 50);
        check_shape(i, 0.5F); /* most scores are beyond it */
    }
}

/* Two positions, by the formula, in doubles. */
static void cap_is_a_tanh(void **state)
{
    static const float caps[] = {0, 50, 2, 1e-3F};

    (void)state;
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        struct bench b = bench_new((struct attention_shape){1, 1, 8, 1, 1, 0});
        double s[2] = {0, 0};
        CLEANUP(mem_freep) float *out = NULL;

        b.soft_cap = caps[i];
        for (size_t j = 0; j < 16; j++) {
            b.angles[j] = j % 8 < 4; /* no turn: cosines 1, sines 0 */
            b.q[j] *= 10;
        }
        fill(&b, true);
        for (size_t j = 0; j < 16; j++)
            s[j / 8] += (double)0.3F * (double)b.q[8 + j % 8] * (double)b.k[j];
        for (size_t j = 0; j < 2 && caps[i] != 0; j++)
            s[j] = (double)caps[i] * tanh(s[j] / (double)caps[i]);
        out = attend(k_ref_ops(), &b, 1);
        for (size_t j = 0; j < 8; j++) {
            double second = 1 / (1 + exp(s[0] - s[1]));
            double want = (1 - second) * (double)b.v[j] + second * (double)b.v[8 + j];

            assert_true(fabs((double)out[j] - want) < 2e-6);
        }
        bench_free(&b);
    }
}

/* Each backend's own store writes what the reference writes. */
static void stores_are_equal(void **state)
{
    struct bench b = bench_new((struct attention_shape){4, 2, 64, 0, 70, 0});
    struct random r = {9};
    size_t n_q = (size_t)70 * 4 * 64;
    CLEANUP(mem_freep) float *q_weight = random_floats(&r, 64, 0.5F, 1.5F);
    CLEANUP(mem_freep) float *q_start = test_alloc(n_q, sizeof(float));
    CLEANUP(mem_freep) float *q_want = test_alloc(n_q, sizeof(float));
    CLEANUP(mem_freep) void *want = NULL;
    size_t cache_bytes;

    (void)state;
    memcpy(q_start, b.q, n_q * sizeof(float));
    for (int rope = 0; rope < 2; rope++)
        for (int normed = 0; normed < 2; normed++)
            for (unsigned k = 0; k <= 8; k++) {
                const struct k_ops *ops = k == 0 ? k_ref_ops() : k_cpu_ops(k - 1);
                struct k_store a = {.q = b.q,
                                    .k = b.k,
                                    .v = b.v,
                                    .q_weight = normed ? q_weight : NULL,
                                    .k_weight = normed ? q_weight : NULL,
                                    .eps = 1e-6F,
                                    .rope = (enum k_rope)rope,
                                    .angles = b.angles,
                                    .n_freqs = 32,
                                    .n_heads = 4,
                                    .n_rows = 70,
                                    .positions = b.positions,
                                    .seq_of = b.seq_of,
                                    .seqs = &b.seq};

                if (!ops)
                    break;
                mem_free(b.kv.base);
                memcpy(b.q, q_start, n_q * sizeof(float));
                fill(&b, false); /* for its memory and layout */
                cache_bytes = 4 * b.kv.block_bytes;
                memset(b.kv.base, 0, cache_bytes);
                memcpy(b.q, q_start, n_q * sizeof(float));
                a.kv = b.kv;
                for (uint32_t i = 70; i-- > 0;)
                    ops->store(&a, i, i + 1);
                if (k == 0) {
                    mem_free(want);
                    want = test_alloc(1, cache_bytes);
                    memcpy(want, b.kv.base, cache_bytes);
                    memcpy(q_want, b.q, n_q * sizeof(float));
                } else {
                    assert_memory_equal(want, b.kv.base, cache_bytes);
                    assert_memory_equal(q_want, b.q, n_q * sizeof(float));
                }
            }
    bench_free(&b);
}

/* The float32 cache of the reference keeps what it is given. */
static void reference_keeps_float32(void **state)
{
    struct bench b = bench_new((struct attention_shape){1, 1, 8, 0, 1, 0});
    CLEANUP(mem_freep) float *out = NULL;

    (void)state;
    fill(&b, true);
    out = attend(k_ref_ops(), &b, 1);
    assert_memory_equal(out, b.v, 8 * sizeof(float)); /* one position: its value */
    bench_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(equals_the_reference),
            cmocka_unit_test(cap_is_a_tanh),
            cmocka_unit_test(stores_are_equal),
            cmocka_unit_test(reference_keeps_float32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
