/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_kernels.c - what the CUDA kernels reach of the GPU's memory bandwidth.
 *
 *   gpu_kernels [--small]
 *
 * For each case a line: bytes that must move, time of one launch (the median of ROUNDS timings of
 * a row of launches between two events), the rate, its share of the bandwidth that a copy on the
 * device reaches in the same process, and the share of the roofline: the time that the data sheet's
 * bandwidth, or the flops of the units that the kernel uses, would allow, over the time it took.
 * Shares mean more than rates: they hold across clocks and coolers.  Weights rotate through more
 * copies than the cache holds, and are random.  --small is for the virtual GPU: it shows that the
 * program works, its times mean nothing.
 *
 * Sizes are Llama-3.1-8B's (docs/gpu.md has the rooflines that belong to them, and
 * scripts/roofline.py the same data sheets).
 */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/cuda_ops.h"

enum { ROUNDS = 7, COPIES_MAX = 16, ROWS_MAX = 256, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128 };
enum { GEMV_ROWS = 8 }; /* up to so many rows products are made by float32 units (gemv.cu) */

struct sizes {
    uint32_t width;
    uint32_t ff;
    uint32_t context;
    uint32_t sequences;
    uint32_t launches;   /* a timing */
    size_t rotate_bytes; /* more than any cache */
    size_t copy_bytes;
};

static const struct sizes LARGE = {4096, 14336, 2048, 64, 50, (size_t)512 << 20, (size_t)1 << 30};
static const struct sizes SMALL = {256, 512, 64, 2, 2, 1 << 20, 1 << 20};

enum unit { FP32, TF32, FP16, UNIT_COUNT };

/* Of the data sheets, dense; by the name that CUDA gives the GPU. */
struct sheet {
    const char *gpu;
    double bandwidth; /* bytes/s */
    double flops[UNIT_COUNT];
};

static const struct sheet SHEETS[] = {
        {"NVIDIA A100-SXM4-80GB", 2.039e12, {19.5e12, 156e12, 312e12}},
        {"NVIDIA H100 80GB HBM3", 3.35e12, {67e12, 494.7e12, 989.4e12}},
        {"NVIDIA H200", 4.8e12, {67e12, 494.7e12, 989.4e12}},
};

struct bench {
    const struct sizes *s;
    struct k_cuda k;
    cudaEvent_t start, stop;
    double copy_rate;          /* bytes/s, read and written */
    const struct sheet *sheet; /* NULL: none of this GPU */
};

/* A benchmark has no way on from an error. */
static void must(int code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "gpu_kernels: %s: %s\n", what, cudaGetErrorString((cudaError_t)code));
    exit(1);
}

static void *device_memory(size_t bytes)
{
    void *p = NULL;

    must(cudaMalloc(&p, bytes), "memory");
    return p;
}

static void fill_random(const struct bench *b, void *to, size_t bytes)
{
    uint32_t *host = mem_calloc(bytes / 4 + 1, 4);
    uint64_t x = 88172645463325252u;

    if (!host)
        exit(1);
    /* 0x3c..: halves and floats that are neither huge nor no number */
    for (size_t i = 0; i < bytes / 4; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        host[i] = ((uint32_t)x & 0x83ff83ffu) | 0x2c002c00u;
    }
    must(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, b->k.stream), "copy");
    must(cudaStreamSynchronize(b->k.stream), "copy");
    mem_free(host);
}

static int by_value(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Median seconds of one launch; launch(userdata, i) queues the i-th. */
static double seconds(struct bench *b, int (*launch)(struct bench *b, void *userdata, uint32_t i),
                      void *userdata)
{
    float ms[ROUNDS];

    must(launch(b, userdata, 0), "launch");
    for (int round = 0; round < ROUNDS; round++) {
        must(cudaEventRecord(b->start, b->k.stream), "event");
        for (uint32_t i = 0; i < b->s->launches; i++)
            must(launch(b, userdata, i), "launch");
        must(cudaEventRecord(b->stop, b->k.stream), "event");
        must(cudaEventSynchronize(b->stop), "kernel");
        must(cudaEventElapsedTime(&ms[round], b->start, b->stop), "event");
    }
    qsort(ms, ROUNDS, sizeof(ms[0]), by_value);
    return (double)ms[ROUNDS / 2] / 1e3 / b->s->launches;
}

/* Of the time that it took, how much the data sheet asks for; 0 without one. */
static double roofline_share(const struct bench *b, double bytes, double flops, enum unit unit,
                             double s)
{
    double memory, compute;

    if (!b->sheet || s <= 0)
        return 0;
    memory = bytes / b->sheet->bandwidth;
    compute = flops / b->sheet->flops[unit];
    return (memory > compute ? memory : compute) / s;
}

static void report(const struct bench *b, const char *name, double bytes, double flops,
                   enum unit unit, double s)
{
    double rate = s > 0 ? bytes / s : 0;

    printf("%-28s %9.2f MB %10.2f us %8.1f GB/s %6.1f %% of copy %8.2f Tflop/s", name, bytes / 1e6,
           s * 1e6, rate / 1e9, 100 * rate / b->copy_rate, s > 0 ? flops / s / 1e12 : 0);
    if (b->sheet)
        printf(" %6.1f %% of roofline", 100 * roofline_share(b, bytes, flops, unit, s));
    printf("\n");
}

static int launch_copy(struct bench *b, void *userdata, uint32_t i)
{
    char *p = userdata;

    (void)i;
    return (int)cudaMemcpyAsync(p + b->s->copy_bytes, p, b->s->copy_bytes, cudaMemcpyDeviceToDevice,
                                b->k.stream);
}

static void measure_copy(struct bench *b)
{
    void *p = device_memory(2 * b->s->copy_bytes);
    double s = seconds(b, launch_copy, p);

    b->copy_rate = s > 0 ? 2 * (double)b->s->copy_bytes / s : 1;
    report(b, "copy on the device", 2 * (double)b->s->copy_bytes, 0, FP32, s);
    must(cudaFree(p), "memory");
}

struct product {
    struct k_matmul a[COPIES_MAX];
    struct k_matrix w[COPIES_MAX];
    uint32_t n_copies;
};

static int launch_product(struct bench *b, void *userdata, uint32_t i)
{
    struct product *p = userdata;

    return k_cuda_matmul(&b->k, &p->a[i % p->n_copies]);
}

static void measure_product(struct bench *b, enum k_type type, const char *type_name)
{
    static const uint32_t rows[] = {1, 8, 32, 256};
    uint32_t n_in = b->s->width, n_out = b->s->ff;
    size_t stored_bytes = (size_t)n_out * (n_in / k_block_len(type)) * k_block_bytes(type);
    size_t packed_bytes = k_cuda_packed_bytes(type, n_in, n_out);
    void *stored = device_memory(stored_bytes), *packed[COPIES_MAX];
    float *in = device_memory((size_t)ROWS_MAX * n_in * sizeof(float));
    float *out = device_memory((size_t)ROWS_MAX * n_out * sizeof(float));
    struct product p = {.n_copies = (uint32_t)(b->s->rotate_bytes / packed_bytes) + 1};

    if (p.n_copies > COPIES_MAX)
        p.n_copies = COPIES_MAX;
    fill_random(b, stored, stored_bytes);
    fill_random(b, in, (size_t)ROWS_MAX * n_in * sizeof(float));
    for (uint32_t i = 0; i < p.n_copies; i++) {
        struct k_pack pack = {.type = type, .n_in = n_in, .n_out = n_out, .stored = stored};

        pack.packed = packed[i] = device_memory(packed_bytes);
        must(k_cuda_pack(&b->k, &pack), "pack");
        p.w[i] = (struct k_matrix){type, n_in, n_out, packed[i]};
    }
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        char name[64];
        double bytes = (double)packed_bytes + 4.0 * rows[r] * ((double)n_in + n_out);

        for (uint32_t i = 0; i < p.n_copies; i++)
            p.a[i] = (struct k_matmul){.in = {.n = n_in, .f32 = in},
                                       .n_rows = rows[r],
                                       .n_mats = 1,
                                       .w = {&p.w[i]},
                                       .out = {out}};
        (void)snprintf(name, sizeof(name), "product %s, %u rows", type_name, rows[r]);
        report(b, name, bytes, 2.0 * rows[r] * n_in * n_out, rows[r] <= GEMV_ROWS ? FP32 : TF32,
               seconds(b, launch_product, &p));
    }
    for (uint32_t i = 0; i < p.n_copies; i++)
        must(cudaFree(packed[i]), "memory");
    must(cudaFree(stored), "memory");
    must(cudaFree(in), "memory");
    must(cudaFree(out), "memory");
}

static int launch_attend(struct bench *b, void *userdata, uint32_t i)
{
    (void)i;
    return k_cuda_attend(&b->k, userdata);
}

static void *upload(const struct bench *b, const void *host, size_t bytes)
{
    void *p = device_memory(bytes);

    must(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, b->k.stream), "copy");
    must(cudaStreamSynchronize(b->k.stream), "copy");
    return p;
}

static void measure_decode_attention(struct bench *b, uint32_t n_seqs)
{
    uint32_t n_blocks = b->s->context / K_BLOCK, n_ids = n_seqs * n_blocks;
    uint64_t layer_bytes = (uint64_t)2 * KV_HEADS * HEAD_DIM * K_BLOCK * 2;
    uint32_t *ids = mem_calloc(n_ids, sizeof(*ids)), *ids_there;
    struct k_seq *seqs = mem_calloc(n_seqs, sizeof(*seqs));
    struct k_span *spans = mem_calloc(n_seqs, sizeof(*spans));
    float *q = device_memory((size_t)n_seqs * HEADS * HEAD_DIM * sizeof(float));
    float *out = device_memory((size_t)n_seqs * HEADS * HEAD_DIM * sizeof(float));
    void *cache = device_memory(n_ids * layer_bytes), *seqs_there, *spans_there;
    struct k_attend a = {.q = q,
                         .out = out,
                         .n_spans = n_seqs,
                         .decode = true,
                         .n_heads = HEADS,
                         .scale = 0.088F};
    char name[64];

    if (!ids || !seqs || !spans)
        exit(1);
    fill_random(b, cache, n_ids * layer_bytes);
    fill_random(b, q, (size_t)n_seqs * HEADS * HEAD_DIM * sizeof(float));
    for (uint32_t i = 0; i < n_ids; i++)
        ids[i] = (i * 7919u) % n_ids; /* scattered; 7919 is prime */
    ids_there = upload(b, ids, n_ids * sizeof(*ids));
    for (uint32_t i = 0; i < n_seqs; i++) {
        seqs[i].blocks = ids_there + (size_t)i * n_blocks;
        spans[i] = (struct k_span){
                .seq = i, .first_row = i, .n_rows = 1, .position = b->s->context - 1};
    }
    a.seqs = seqs_there = upload(b, seqs, n_seqs * sizeof(*seqs));
    a.spans = spans_there = upload(b, spans, n_seqs * sizeof(*spans));
    a.kv = (struct k_kv){.base = cache,
                         .block_bytes = layer_bytes,
                         .v_offset = layer_bytes / 2,
                         .n_kv_heads = KV_HEADS,
                         .head_dim = HEAD_DIM};
    (void)snprintf(name, sizeof(name), "attention, %u sequences of %u", n_seqs, b->s->context);
    report(b, name, (double)n_ids * (double)layer_bytes,
           4.0 * n_seqs * HEADS * HEAD_DIM * b->s->context, FP16, seconds(b, launch_attend, &a));
    must(cudaFree(q), "memory");
    must(cudaFree(out), "memory");
    must(cudaFree(cache), "memory");
    must(cudaFree(ids_there), "memory");
    must(cudaFree(seqs_there), "memory");
    must(cudaFree(spans_there), "memory");
    mem_free(ids);
    mem_free(seqs);
    mem_free(spans);
}

static int launch_norm(struct bench *b, void *userdata, uint32_t i)
{
    (void)i;
    return k_cuda_norm(&b->k, userdata);
}

static void measure_norm(struct bench *b)
{
    uint32_t n = b->s->width;
    size_t bytes = (size_t)ROWS_MAX * n * sizeof(float);
    float *x = device_memory(bytes), *weight = device_memory(n * sizeof(float));
    float *out = device_memory(bytes);
    struct k_norm a = {.x = x,
                       .weight = weight,
                       .eps = 1e-5F,
                       .n = n,
                       .n_rows = ROWS_MAX,
                       .out = {.n = n, .f32 = out}};

    fill_random(b, x, bytes);
    fill_random(b, weight, n * sizeof(float));
    report(b, "norm, 256 rows", 2 * (double)bytes, 0, FP32, seconds(b, launch_norm, &a));
    must(cudaFree(x), "memory");
    must(cudaFree(weight), "memory");
    must(cudaFree(out), "memory");
}

static void open_gpu(struct bench *b)
{
    struct cudaDeviceProp prop;
    struct k_cuda_shape shape = {
            .rows_max = ROWS_MAX, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM};
    cudaStream_t stream;

    must(cudaSetDevice(0), "device");
    must(cudaGetDeviceProperties(&prop, 0), "device");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaEventCreateWithFlags(&b->start, cudaEventDefault), "event");
    must(cudaEventCreateWithFlags(&b->stop, cudaEventDefault), "event");
    must(k_cuda_init(), "kernels");
    for (size_t i = 0; i < sizeof(SHEETS) / sizeof(SHEETS[0]); i++)
        if (strcmp(prop.name, SHEETS[i].gpu) == 0)
            b->sheet = &SHEETS[i];
    shape.n_sms = b->k.n_sms = (uint32_t)prop.multiProcessorCount;
    b->k.stream = stream;
    b->k.scratch_bytes = k_cuda_scratch_bytes(&shape);
    b->k.scratch = device_memory(b->k.scratch_bytes);
    printf("%s, %u multiprocessors, compute capability %d.%d\n", prop.name, b->k.n_sms, prop.major,
           prop.minor);
}

int main(int argc, char **argv)
{
    static const struct {
        enum k_type type;
        const char *name;
    } types[] = {{K_BF16, "bf16"}, {K_Q8_0, "q8_0"}, {K_Q4_K, "q4_k"}};
    struct bench b = {.s = argc == 2 && strcmp(argv[1], "--small") == 0 ? &SMALL : &LARGE};

    if (argc > 2 || (argc == 2 && b.s == &LARGE)) {
        fprintf(stderr, "usage: gpu_kernels [--small]\n");
        return 2;
    }
    open_gpu(&b);
    measure_copy(&b);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        measure_product(&b, types[i].type, types[i].name);
    measure_decode_attention(&b, 1);
    measure_decode_attention(&b, b.s->sequences);
    measure_norm(&b);
    must(cudaFree(b.k.scratch), "memory");
    must(cudaEventDestroy(b.start), "event");
    must(cudaEventDestroy(b.stop), "event");
    must(cudaStreamDestroy(b.k.stream), "stream");
    return 0;
}
