/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache and attention over it on a GPU, against the reference with a float16 cache.
 *
 * Tolerance of attention: queries and weights are rounded to float16 (2^-12 relative each); with
 * values within 1 and scores within some 30 the outputs differ by at most 1e-3.
 */
#include "tests/support.h"

#include <math.h>

#include "kernels/half.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/kernel_data.h"
#include "tests/kernels/shapes.h"

static const float tolerance = 1e-3F;

enum { SEQS_MAX = 4 };

/* Up to four sequences in one cache, each with rows of its own; all rows are stored, and the last
 * n_rows of each sequence attend. */
struct bench {
    struct gpu g;
    struct attention_shape s; /* start and n_rows: of sequence 0 */
    float soft_cap;
    uint32_t n_seqs;
    uint32_t starts[SEQS_MAX];
    uint32_t rows[SEQS_MAX];
    uint32_t first_row[SEQS_MAX]; /* of the sequence's position 0 */
    uint32_t n;                   /* rows of all */
    uint32_t unstored;            /* the first ones, whose positions nobody writes */
    uint32_t n_blocks;            /* of the cache; block 0 is in no table */
    struct k_seq seqs[SEQS_MAX];
    uint32_t *blocks;
    float *q;
    float *k;
    float *v;
    float *angles;
    uint32_t *positions;
    uint32_t *seq_of;
    struct k_kv kv;        /* the reference's cache */
    struct k_kv device_kv; /* the device's */
    float *device_q;       /* rotated */
    struct k_seq *device_seqs;
};

static uint32_t blocks_of(uint32_t n_positions)
{
    return (n_positions + K_BLOCK - 1) / K_BLOCK;
}

static void add_seq(struct bench *b, uint32_t start, uint32_t n_rows)
{
    assert_true(b->n_seqs < SEQS_MAX);
    b->starts[b->n_seqs] = start;
    b->rows[b->n_seqs] = n_rows;
    b->first_row[b->n_seqs] = b->n;
    b->n += start + n_rows;
    b->n_blocks += blocks_of(start + n_rows);
    b->n_seqs++;
}

static void make_data(struct bench *b)
{
    struct random r = {b->s.head_dim + b->s.start};
    uint32_t dim = b->s.head_dim;
    uint32_t block = b->n_blocks;

    b->n_blocks++;
    b->q = random_floats(&r, (size_t)b->n * b->s.n_heads * dim, -1, 1);
    b->k = random_floats(&r, (size_t)b->n * b->s.n_kv_heads * dim, -1, 1);
    b->v = random_floats(&r, (size_t)b->n * b->s.n_kv_heads * dim, -1, 1);
    b->angles = random_floats(&r, (size_t)b->n * dim, -1, 1);
    b->positions = test_alloc(b->n, sizeof(uint32_t));
    b->seq_of = test_alloc(b->n, sizeof(uint32_t));
    b->blocks = test_alloc(b->n_blocks - 1, sizeof(uint32_t));
    for (uint32_t i = 0; i + 1 < b->n_blocks; i++)
        b->blocks[i] = block--; /* backwards */
    for (uint32_t s = 0, at = 0; s < b->n_seqs; s++) {
        uint32_t n = b->starts[s] + b->rows[s];

        b->seqs[s].blocks = b->blocks + at;
        at += blocks_of(n);
        for (uint32_t i = 0; i < n; i++) {
            b->positions[b->first_row[s] + i] = i;
            b->seq_of[b->first_row[s] + i] = s;
        }
    }
}

/* Everything again, where the device sees it. */
static void upload(struct bench *b, struct k_store *a)
{
    struct gpu *g = &b->g;
    size_t row = (size_t)b->n * b->s.head_dim * sizeof(float);
    uint32_t *blocks = gpu_upload(g, b->blocks, (b->n_blocks - 1) * sizeof(*blocks));
    struct k_seq seqs[SEQS_MAX];

    for (uint32_t s = 0; s < b->n_seqs; s++)
        seqs[s].blocks = blocks + (b->seqs[s].blocks - b->blocks);
    b->device_seqs = gpu_upload(g, seqs, b->n_seqs * sizeof(*seqs));
    b->device_q = gpu_upload(g, b->q, row * b->s.n_heads);
    b->device_kv = b->kv;
    b->device_kv.base = gpu_alloc(g, b->n_blocks * b->kv.block_bytes);
    a->q = b->device_q;
    a->k = gpu_upload(g, b->k, row * b->s.n_kv_heads);
    a->v = gpu_upload(g, b->v, row * b->s.n_kv_heads);
    a->angles = gpu_upload(g, b->angles, row);
    a->positions = gpu_upload(g, b->positions, b->n * sizeof(uint32_t));
    a->seq_of = gpu_upload(g, b->seq_of, b->n * sizeof(uint32_t));
    a->seqs = b->device_seqs;
    a->kv = b->device_kv;
}

static struct bench bench_new(struct attention_shape s, uint32_t n_sms)
{
    struct bench b = {.s = s};
    struct k_cuda_shape shape = {.rows_max = 64,
                                 .n_heads = s.n_heads,
                                 .n_kv_heads = s.n_kv_heads,
                                 .head_dim = s.head_dim,
                                 .n_sms = n_sms};

    b.g = gpu_new(&shape);
    add_seq(&b, s.start, s.n_rows);
    return b;
}

/* Store all rows on both sides. q_weight and k_weight may be NULL. */
static void store(struct bench *b, enum k_rope rope, uint32_t n_freqs, const float *weight)
{
    size_t cache = (size_t)2 * b->s.n_kv_heads * b->s.head_dim * K_BLOCK * sizeof(uint16_t);
    struct k_store a = {.q = b->q,
                        .k = b->k,
                        .v = b->v,
                        .q_weight = weight,
                        .k_weight = weight,
                        .eps = 1e-6F,
                        .rope = rope,
                        .angles = b->angles,
                        .n_freqs = n_freqs,
                        .n_heads = b->s.n_heads,
                        .n_rows = b->n,
                        .positions = b->positions,
                        .seq_of = b->seq_of,
                        .seqs = b->seqs};
    struct k_store device = a;

    /* a layer's cache is a part of the block */
    b->kv = (struct k_kv){.block_bytes = cache + 64,
                          .k_offset = 32,
                          .v_offset = 48 + cache / 2,
                          .n_kv_heads = b->s.n_kv_heads,
                          .head_dim = b->s.head_dim};
    b->kv.base = test_alloc(b->n_blocks, b->kv.block_bytes);
    memset(b->kv.base, 0xff, b->n_blocks * b->kv.block_bytes);
    a.kv = b->kv;
    for (uint32_t i = 0; i < b->unstored; i++)
        b->seq_of[i] = UINT32_MAX;
    upload(b, &device);
    if (weight)
        device.q_weight = device.k_weight =
                gpu_upload(&b->g, weight, b->s.head_dim * sizeof(float));
    assert_int_equal(k_cuda_store(&b->g.k, &device), 0);
    k_ref_ops()->store(&a, b->unstored, b->n);
}

static void bench_free(struct bench *b)
{
    gpu_free(&b->g);
    mem_free(b->q);
    mem_free(b->k);
    mem_free(b->v);
    mem_free(b->angles);
    mem_free(b->positions);
    mem_free(b->seq_of);
    mem_free(b->blocks);
    mem_free(b->kv.base);
}

/* Element of a cache: the reference has keys transposed. */
static float key(const uint8_t *block, const struct k_kv *kv, bool transposed, uint32_t head,
                 uint32_t slot, uint32_t dim)
{
    size_t at = transposed ? ((size_t)head * kv->head_dim + dim) * K_BLOCK + slot
                           : ((size_t)head * K_BLOCK + slot) * kv->head_dim + dim;

    return k_load_half(block + kv->k_offset + at * sizeof(uint16_t));
}

static void assert_same_block(const uint8_t *got, const uint8_t *want, const struct k_kv *kv)
{
    for (uint32_t h = 0; h < kv->n_kv_heads; h++)
        for (uint32_t slot = 0; slot < K_BLOCK; slot++)
            for (uint32_t dim = 0; dim < kv->head_dim; dim++) {
                size_t v = kv->v_offset +
                           (((size_t)h * K_BLOCK + slot) * kv->head_dim + dim) * sizeof(uint16_t);
                float k_want = key(want, kv, true, h, slot, dim);
                float k_got = key(got, kv, false, h, slot, dim);

                assert_int_equal(k_load16(got + v), k_load16(want + v));
                /* the norm's sum may round otherwise: a unit of the last place */
                assert_true(isnan(k_want)
                                    ? isnan(k_got)
                                    : fabsf(k_got - k_want) <= 0x1p-10F * fabsf(k_want) + 0x1p-24F);
            }
}

static void check_store(enum k_rope rope, uint32_t n_freqs, bool normed)
{
    struct bench b = bench_new((struct attention_shape){4, 2, 72, 0, 70, 0}, 4);
    struct random r = {9};
    CLEANUP(mem_freep) float *weight = random_floats(&r, 72, 0.5F, 1.5F);
    CLEANUP(mem_freep) uint8_t *cache = NULL;
    CLEANUP(mem_freep) float *q = NULL;

    make_data(&b);
    store(&b, rope, n_freqs, normed ? weight : NULL);
    cache = gpu_download(&b.g, b.device_kv.base, b.n_blocks * b.kv.block_bytes);
    q = gpu_download(&b.g, b.device_q, (size_t)b.n * 4 * 72 * sizeof(float));
    gpu_worst(q, b.q, (size_t)b.n * 4 * 72, NULL, 2e-6F);
    for (uint32_t i = 0; i < b.n_blocks; i++)
        assert_same_block(cache + i * b.kv.block_bytes, (uint8_t *)b.kv.base + i * b.kv.block_bytes,
                          &b.kv);
    /* nothing beside the layer's part */
    for (uint32_t i = 0; i < b.kv.k_offset; i++)
        assert_int_equal(cache[i], 0xff);
    bench_free(&b);
}

static void stores(void **state)
{
    (void)state;
    for (int rope = 0; rope < 2; rope++)
        for (int normed = 0; normed < 2; normed++) {
            check_store((enum k_rope)rope, 36, normed);
            check_store((enum k_rope)rope, 20, normed); /* the rest of the head is not turned */
        }
}

/* Rows of no sequence are left out, wherever their tables point. */
static void padding_is_not_stored(void **state)
{
    struct bench b = bench_new((struct attention_shape){2, 1, 64, 0, 5, 0}, 4);
    CLEANUP(mem_freep) uint8_t *cache = NULL;
    CLEANUP(mem_freep) float *q = NULL;

    (void)state;
    make_data(&b);
    b.seq_of[1] = b.seq_of[3] = UINT32_MAX;
    b.positions[1] = UINT32_MAX;
    b.kv = (struct k_kv){.block_bytes = 8192, .v_offset = 4096, .n_kv_heads = 1, .head_dim = 64};
    {
        struct k_store a = {.rope = K_ROPE_PAIRS, .n_freqs = 32, .n_heads = 2, .n_rows = 5};

        upload(&b, &a);
        assert_int_equal(k_cuda_store(&b.g.k, &a), 0);
    }
    cache = gpu_download(&b.g, b.device_kv.base, b.n_blocks * b.kv.block_bytes);
    q = gpu_download(&b.g, b.device_q, (size_t)5 * 128 * sizeof(float));
    for (uint32_t i = 0; i < 5; i++) {
        bool stored = k_load16(cache + 8192 + 4096 + i * 128) != 0xffff;
        bool turned = memcmp(q + (size_t)i * 128, b.q + (size_t)i * 128, 128 * sizeof(float)) != 0;

        assert_int_equal(stored, i != 1 && i != 3);
        assert_int_equal(turned, i != 1 && i != 3);
    }
    bench_free(&b);
}

/* Spans of at most span_rows rows over all sequences' rows; after each an empty one. */
static uint32_t make_spans(const struct bench *b, uint32_t span_rows, struct k_span *spans)
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < b->n_seqs; s++)
        for (uint32_t r = 0; r < b->rows[s]; r += span_rows) {
            uint32_t left = b->rows[s] - r;

            spans[n++] = (struct k_span){.seq = s,
                                         .first_row = b->first_row[s] + b->starts[s] + r,
                                         .n_rows = left < span_rows ? left : span_rows,
                                         .position = b->starts[s] + r};
            spans[n++] = (struct k_span){.seq = UINT32_MAX, .first_row = UINT32_MAX};
        }
    return n;
}

/* Spans of one row get the same bits when the launch does not say that all are. */
static void check_mixed(struct bench *b, struct k_attend a, const float *want, size_t n)
{
    CLEANUP(mem_freep) float *got = NULL;

    a.decode = false;
    a.out = gpu_alloc(&b->g, n * sizeof(float));
    assert_int_equal(k_cuda_attend(&b->g.k, &a), 0);
    got = gpu_download(&b->g, a.out, n * sizeof(float));
    assert_memory_equal(got, want, n * sizeof(float));
}

static void check_spans(struct bench *b, uint32_t span_rows)
{
    size_t n = (size_t)b->n * b->s.n_heads * b->s.head_dim;
    CLEANUP(mem_freep) struct k_span *spans = test_alloc(2 * b->n, sizeof(*spans));
    CLEANUP(mem_freep) float *want = test_alloc(n, sizeof(float));
    CLEANUP(mem_freep) float *got = NULL;
    struct k_attend a = {.q = b->q,
                         .out = want,
                         .spans = spans,
                         .n_spans = make_spans(b, span_rows, spans),
                         .decode = span_rows == 1,
                         .seqs = b->seqs,
                         .n_heads = b->s.n_heads,
                         .window = b->s.window,
                         .scale = 0.3F,
                         .soft_cap = b->soft_cap,
                         .kv = b->kv};

    memset(want, 0xff, n * sizeof(float));
    k_ref_ops()->attend(&a, 0, a.n_spans * b->s.n_kv_heads);
    a.q = b->device_q;
    a.out = gpu_alloc(&b->g, n * sizeof(float));
    a.spans = gpu_upload(&b->g, spans, a.n_spans * sizeof(*spans));
    a.seqs = b->device_seqs;
    a.kv = b->device_kv;
    assert_int_equal(k_cuda_attend(&b->g.k, &a), 0);
    got = gpu_download(&b->g, a.out, n * sizeof(float));
    if (a.decode)
        check_mixed(b, a, got, n);
    for (size_t i = 0; i < n; i++) {
        if (isnan(want[i])) { /* no row of any span */
            assert_true(isnan(got[i]));
            got[i] = want[i] = 0;
        }
    }
    gpu_worst(got, want, n, NULL, tolerance);
}

static void equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_attention_shapes; i++) {
        struct attention_shape s = attention_shapes[i];
        struct bench b;

        if (s.head_dim > K_CUDA_HEAD_MAX)
            continue;
        b = bench_new(s, 4);
        make_data(&b);
        store(&b, K_ROPE_HALVES, s.head_dim / 2, NULL);
        check_spans(&b, K_SPAN_ROWS);
        if (s.n_rows < 10)
            check_spans(&b, 1);
        bench_free(&b);
    }
}

/* Scores far below the cap, about it, and beyond it; blocks half seen, which hold no numbers. */
static void soft_caps(void **state)
{
    static const float caps[] = {50, 2, 0.5F, 1e-3F};
    static const uint32_t dims[] = {64, 128, 256, 72};

    (void)state;
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        struct bench b = bench_new((struct attention_shape){4, 2, dims[i], 40, 5, 33}, 4);

        b.soft_cap = caps[i];
        make_data(&b);
        for (size_t j = 0; j < (size_t)b.n * 4 * dims[i]; j++)
            b.q[j] *= 4;
        store(&b, K_ROPE_HALVES, dims[i] / 2, NULL);
        check_spans(&b, K_SPAN_ROWS);
        check_spans(&b, 1);
        bench_free(&b);
    }
}

/* All group sizes; head sizes at and between those that kernels are made for. */
static void groups_and_heads(void **state)
{
    static const uint32_t dims[] = {64, 72, 96, 128, 136, 192, 256};

    (void)state;
    for (uint32_t group = 1; group <= 16; group++) {
        struct attention_shape s = {2 * group, 2, dims[group % 7], 40, 5, group % 3 == 0 ? 33 : 0};
        struct bench b = bench_new(s, 4);

        make_data(&b);
        store(&b, K_ROPE_HALVES, s.head_dim / 2, NULL);
        check_spans(&b, 4); /* spans of four rows and of one */
        check_spans(&b, 1);
        bench_free(&b);
    }
}

/* Long sequences on devices that cut them into few parts or many, with a window and without;
 * the sequences of a step are of any length. */
static void splits(void **state)
{
    static const uint32_t n_sms[] = {1, 4, 132};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t window = 0; window <= 300; window += 300) {
            struct bench b =
                    bench_new((struct attention_shape){6, 2, 64, 700, 1, window}, n_sms[i]);

            add_seq(&b, 0, 1);
            add_seq(&b, 31, 18);
            add_seq(&b, 128, 2);
            make_data(&b);
            store(&b, K_ROPE_PAIRS, 32, NULL);
            check_spans(&b, 1);
            check_spans(&b, K_SPAN_ROWS);
            bench_free(&b);
        }
}

/* Scratch for some splits only: no more are made, and nothing is written beyond. */
static void scratch_is_kept(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 3; n++) {
        struct bench b = bench_new((struct attention_shape){6, 2, 64, 700, 1, 0}, 132);
        size_t split = (size_t)2 * 6 * (64 * sizeof(float) + 2 * sizeof(float)); /* of two spans */

        b.g.k.scratch_bytes = n * split + split / 2;
        b.g.k.scratch = gpu_alloc(&b.g, b.g.k.scratch_bytes);
        make_data(&b);
        store(&b, K_ROPE_HALVES, 32, NULL);
        check_spans(&b, 1);
        bench_free(&b);
    }
}

/* What lies behind the window is somebody else's by now, or nobody's, whole blocks and the part of
 * one: here no numbers. */
static void window_reads_nothing_behind(void **state)
{
    struct bench b = bench_new((struct attention_shape){2, 1, 64, 200, 2, 40}, 4);

    (void)state;
    b.unstored = 161; /* the first that position 200 sees */
    make_data(&b);
    store(&b, K_ROPE_HALVES, 32, NULL);
    check_spans(&b, 1);
    check_spans(&b, 2);
    bench_free(&b);
}

/* Scores far apart: the greatest is in one block of many, and all others vanish; those of every
 * other head are small against its neighbours'. */
static void one_position_wins(void **state)
{
    enum { HEADS = 4, DIM = 64 };
    struct bench b = bench_new((struct attention_shape){HEADS, 1, DIM, 300, 1, 0}, 132);

    (void)state;
    make_data(&b);
    for (size_t i = 0; i < (size_t)b.n * HEADS * DIM; i++)
        b.q[i] *= i / DIM % 2 == 0 ? 1 : 64;
    store(&b, K_ROPE_HALVES, 0, NULL);
    check_spans(&b, 1);
    bench_free(&b);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct k_cuda k = {.n_sms = 1};
    struct k_attend a = {.n_heads = 1, .kv = {.n_kv_heads = 1, .head_dim = 264}};

    (void)state;
    assert_int_not_equal(k_cuda_attend(&k, &a), 0);
    a.kv.head_dim = 60;
    assert_int_not_equal(k_cuda_attend(&k, &a), 0);
    a.kv.head_dim = 64;
    a.n_heads = 17;
    assert_int_not_equal(k_cuda_attend(&k, &a), 0);
    a.n_heads = 16;
    a.kv.f32 = true;
    assert_int_not_equal(k_cuda_attend(&k, &a), 0);
    a.kv.f32 = false;
    assert_int_equal(k_cuda_attend(&k, &a), 0); /* no spans: nothing to do */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(stores),
            cmocka_unit_test(padding_is_not_stored),
            cmocka_unit_test(equals_the_reference),
            cmocka_unit_test(soft_caps),
            cmocka_unit_test(groups_and_heads),
            cmocka_unit_test(splits),
            cmocka_unit_test(scratch_is_kept),
            cmocka_unit_test(window_reads_nothing_behind),
            cmocka_unit_test(one_position_wins),
            cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return gpu_run_tests(tests);
}
