/* SPDX-License-Identifier: Apache-2.0
 *
 * device_cuda.c - one GPU: a stream, an arena, kept lists as CUDA graphs.
 *
 * Memory.  One allocation when the device opens, a fraction of what is free; everything after is
 * cut from it and nothing is given back, so that serving can run out of KV blocks but not of
 * memory.  While weights load, the arena's free end holds the stored form of the matrix at hand,
 * from where a kernel packs it.  Host memory for copies is pinned.
 *
 * Weights come through two pinned buffers: one is filled by several readers (page faults of a
 * mapped file are latency) while the other is on its way.
 *
 * Ops are queued at once, in order, on the one stream; between device_replay() and
 * device_record_end() they are captured into a graph instead, which later runs as one launch.
 * Copies of a step's inputs are made before the replay, outside of the graph, from pinned memory
 * that is not touched again before its event.
 *
 * Products of bfloat16 matrices with many rows go to cuBLASLt when it is there; they are
 * compute-bound, and its kernels use the tensor cores better than ours (kernels/cuda/gemm.cu).
 *
 * Errors of the GPU are for good: the first one is kept, whatever is asked for later gets it, and
 * waiting ends.  Waiting polls, so that a kernel that never ends and a rank that is lost are seen:
 * after the timeout the group of ranks is aborted and the device is lost.
 *
 * Threading: one caller at a time.  CUDA's current device is the thread's, so every entry that a
 * new thread may come through first sets it (queueing an op needs none: a step starts with a wait
 * for its mirrors).
 */
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_ops.h"
#include "runtime/device/blas.h"
#include "runtime/device/cpu_count.h"
#include "runtime/device/device_kind.h"
#include "runtime/device/pool.h"

enum {
    ALIGN = 256,
    STAGE_BYTES = 16 << 20,
    STAGE_CHUNK = 256 << 10, /* what one reader copies at a time */
    SPIN_NS = 2000000,       /* a decode step is shorter; sleeping would show in it */
    SLEEP_NS = 100000,
    SM_MIN = 80, /* A100; the oldest that kernels are compiled for */
    LOGIT_ROWS = 64,
    READERS_MAX = 8,
    VOCAB_MAX = 1 << 20,
    BLAS_ROWS_MIN = 64, /* products of fewer rows wait for memory: our own kernels' case */
    BLAS_WORKSPACE = 32 << 20,
};

/* A pinned buffer and the last copy from or to it. */
struct pinned {
    struct pinned *next;
    void *host;
    cudaEvent_t copied;
    bool in_use; /* a copy was queued */
};

struct cuda {
    struct device base;
    int index;
    uint64_t timeout_ms;
    cudaStream_t stream;
    struct k_cuda k;
    struct blas *blas; /* NULL: the library is not there, our kernels do it all */
    void *blas_workspace;
    void *rounded; /* [rows_max][row_max] bfloat16: what its products read */
    char *arena;
    size_t arena_bytes;
    size_t arena_used;
    struct pinned *pinned;
    struct pinned *stages[2];
    unsigned stage_at;
    struct pool *readers;
    bool is_recording;
    bool is_hung; /* a kernel does not end: whatever waits for the GPU would not, either */
    cudaGraphExec_t lists[DEVICE_REPLAYS_MAX];
    struct err failed; /* code 0: nothing did */
};

static struct cuda *cuda_of(struct device *d)
{
    return (struct cuda *)d;
}

/* Keep the first error. */
static void check(struct cuda *c, int code, const char *what)
{
    if (code == cudaSuccess || c->failed.code != ERR_NONE)
        return;
    (void)err_set(&c->failed, ERR_DEVICE, "GPU %d: %s: %s (%s)", c->index, what,
                  cudaGetErrorString((cudaError_t)code), cudaGetErrorName((cudaError_t)code));
    if (c->base.comm)
        communicator_abort(c->base.comm);
}

static bool works(const struct cuda *c)
{
    return c->failed.code == ERR_NONE;
}

static int result(const struct cuda *c, struct err *err)
{
    if (!works(c))
        *err = c->failed;
    return -(int)c->failed.code;
}

static void make_current(struct cuda *c)
{
    check(c, cudaSetDevice(c->index), "select");
}

/* waiting */

static void pause_a_little(uint64_t since_ns)
{
    const struct timespec nap = {.tv_nsec = SLEEP_NS};

    if (clock_ns(clock_system()) - since_ns < SPIN_NS)
        (void)sched_yield();
    else
        (void)nanosleep(&nap, NULL);
}

static void look_after_ranks(struct cuda *c)
{
    struct err err = {0};

    if (works(c) && c->base.comm && communicator_check(c->base.comm, &err) < 0)
        c->failed = err;
}

/* Until the event, an error, or the timeout. */
static void await(struct cuda *c, cudaEvent_t event)
{
    uint64_t start = clock_ns(clock_system());

    while (works(c)) {
        cudaError_t code = cudaEventQuery(event);

        if (code == cudaSuccess)
            return;
        if (code != cudaErrorNotReady) {
            check(c, code, "computing");
            return;
        }
        look_after_ranks(c);
        if (clock_ns(clock_system()) - start > c->timeout_ms * 1000000) {
            c->is_hung = true;
            (void)err_set(&c->failed, ERR_DEVICE,
                          "GPU %d: not done after %llu ms; a kernel hangs, or another GPU is lost",
                          c->index, (unsigned long long)c->timeout_ms);
            if (c->base.comm)
                communicator_abort(c->base.comm);
            return;
        }
        pause_a_little(start);
    }
}

/* memory */

static int cuda_alloc(struct device *d, size_t bytes, void **ret, struct err *err)
{
    struct cuda *c = cuda_of(d);
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *p = c->arena + c->arena_used;

    if (whole < bytes || whole > c->arena_bytes - c->arena_used)
        return err_set(err, ERR_NO_MEMORY,
                       "GPU %d: %zu MiB more than the %zu MiB it gives (of which %zu are taken); "
                       "use a smaller model or more GPUs (--tensor-parallel-size)",
                       c->index, bytes >> 20, c->arena_bytes >> 20, c->arena_used >> 20);
    make_current(c);
    c->arena_used += whole;
    check(c, cudaMemsetAsync(p, 0, whole, c->stream), "clear memory");
    *ret = p;
    return result(c, err);
}

static uint64_t cuda_memory_left(const struct device *d)
{
    const struct cuda *c = (const struct cuda *)d;

    return c->arena_bytes - c->arena_used;
}

static int pinned_new(struct cuda *c, size_t bytes, struct pinned **ret, struct err *err)
{
    struct pinned *p = mem_calloc(1, sizeof(*p));

    if (!p)
        return err_set(err, ERR_NO_MEMORY, "pinned memory");
    p->next = c->pinned;
    c->pinned = p;
    check(c, cudaMallocHost(&p->host, bytes), "pinned memory");
    if (works(c))
        check(c, cudaEventCreateWithFlags(&p->copied, cudaEventDisableTiming), "event");
    if (works(c))
        memset(p->host, 0, bytes);
    *ret = p;
    return result(c, err);
}

static void pinned_wait(struct cuda *c, struct pinned *p)
{
    if (p->in_use)
        await(c, p->copied);
    p->in_use = false;
}

static void pinned_mark(struct cuda *c, struct pinned *p)
{
    check(c, cudaEventRecord(p->copied, c->stream), "event");
    p->in_use = true;
}

static int cuda_mirror_new(struct device *d, size_t bytes, struct device_mirror *ret,
                           struct err *err)
{
    struct cuda *c = cuda_of(d);
    struct pinned *p = NULL;
    int r;

    make_current(c);
    r = pinned_new(c, bytes, &p, err);
    if (r == 0)
        r = cuda_alloc(d, bytes, &ret->device, err);
    if (r < 0)
        return r;
    ret->host = p->host;
    ret->pending = p;
    return 0;
}

static int cuda_mirror_wait(struct device *d, const struct device_mirror *m, struct err *err)
{
    struct cuda *c = cuda_of(d);

    make_current(c);
    pinned_wait(c, m->pending);
    return result(c, err);
}

static void cuda_mirror_put(struct device *d, const struct device_mirror *m, size_t bytes)
{
    struct cuda *c = cuda_of(d);

    ASSERT(!c->is_recording);
    if (!works(c) || bytes == 0)
        return;
    check(c, cudaMemcpyAsync(m->device, m->host, bytes, cudaMemcpyHostToDevice, c->stream),
          "copy to the GPU");
    pinned_mark(c, m->pending);
}

static void cuda_mirror_get(struct device *d, const struct device_mirror *m, size_t bytes)
{
    struct cuda *c = cuda_of(d);

    ASSERT(!c->is_recording);
    if (!works(c) || bytes == 0)
        return;
    check(c, cudaMemcpyAsync(m->host, m->device, bytes, cudaMemcpyDeviceToHost, c->stream),
          "copy from the GPU");
    pinned_mark(c, m->pending);
}

/* weights */

struct reading {
    char *to;
    const char *from;
    size_t bytes;
};

static void read_chunks(void *userdata, uint32_t first, uint32_t end)
{
    const struct reading *r = userdata;
    size_t from = (size_t)first * STAGE_CHUNK, to = (size_t)end * STAGE_CHUNK;

    memcpy(r->to + from, r->from + from, (to < r->bytes ? to : r->bytes) - from);
}

static void upload(struct cuda *c, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes && works(c);) {
        struct pinned *stage = c->stages[c->stage_at ^= 1];
        size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        struct reading r = {stage->host, (const char *)from + at, n};

        pinned_wait(c, stage);
        pool_do(c->readers, read_chunks, &r, (uint32_t)((n + STAGE_CHUNK - 1) / STAGE_CHUNK));
        check(c,
              cudaMemcpyAsync((char *)to + at, stage->host, n, cudaMemcpyHostToDevice, c->stream),
              "upload of weights");
        pinned_mark(c, stage);
        at += n;
    }
}

static int cuda_matrix(struct device *d, const struct device_weight_desc *desc, const void *rows,
                       const void **ret, struct err *err)
{
    struct cuda *c = cuda_of(d);
    size_t row_bytes = (size_t)(desc->n_in / k_block_len(desc->type)) * k_block_bytes(desc->type);
    size_t bytes = desc->n_out * row_bytes, left;
    struct k_pack pack = {.type = desc->type, .n_in = desc->n_in, .n_out = desc->n_out};
    char *stored;
    int r = cuda_alloc(d, k_cuda_packed_bytes(desc->type, desc->n_in, desc->n_out), &pack.packed,
                       err);

    if (r < 0)
        return r;
    left = c->arena_bytes - c->arena_used;
    if (bytes > left)
        return err_set(err, ERR_NO_MEMORY,
                       "GPU %d: no room to load a matrix of %zu MiB; use a smaller model or more "
                       "GPUs (--tensor-parallel-size)",
                       c->index, bytes >> 20);
    stored = c->arena + c->arena_used + (left - bytes) / ALIGN * ALIGN;
    upload(c, stored, rows, bytes);
    pack.stored = stored;
    if (works(c))
        check(c, k_cuda_pack(&c->k, &pack), "pack weights");
    *ret = pack.packed;
    return result(c, err);
}

static int cuda_vector(struct device *d, enum k_type type, uint32_t n, const void *bytes,
                       float **ret, struct err *err)
{
    struct cuda *c = cuda_of(d);
    CLEANUP(mem_freep) float *values = mem_calloc(n, sizeof(*values));
    void *p = NULL;
    int r;

    if (!values)
        return err_set(err, ERR_NO_MEMORY, "vector of %u values", n);
    k_dequantise(type, bytes, n, values);
    r = cuda_alloc(d, n * sizeof(*values), &p, err);
    if (r < 0)
        return r;
    upload(c, p, values, n * sizeof(*values));
    *ret = p;
    return result(c, err);
}

/* ops */

static void collective(struct cuda *c, enum device_op op, const void *args)
{
    struct err err = {0};
    const struct device_reduce *reduce = args;
    const struct device_collect *collect = args;
    int r = op == OP_ALL_REDUCE ? communicator_all_reduce(c->base.comm, reduce->data, reduce->n,
                                                          c->stream, &err)
                                : communicator_all_gather(c->base.comm, collect->part, collect->n,
                                                          collect->all, c->stream, &err);

    if (r < 0 && works(c))
        c->failed = err;
}

/* One matrix by the library; false: it has no kernel for it. */
static bool multiply(struct cuda *c, const struct k_matmul *a, uint32_t m)
{
    struct blas_product p = {.x = c->rounded,
                             .w = a->w[m]->data,
                             .y = a->out[m],
                             .n_rows = a->n_rows,
                             .n_in = a->in.n,
                             .n_out = a->w[m]->n_out,
                             .x_stride = k_cuda_row_stride(a->in.n),
                             .w_stride = k_cuda_row_stride(a->in.n),
                             .add = a->add,
                             .stream = c->stream,
                             .workspace = c->blas_workspace,
                             .workspace_bytes = BLAS_WORKSPACE};
    struct err err = {0};
    int r = blas_multiply(c->blas, &p, &err);

    if (r < 0 && r != -ERR_NOT_FOUND && works(c))
        c->failed = err;
    return r != -ERR_NOT_FOUND;
}

/* bfloat16 matrices with many rows go to the library, all else to our kernels. */
static int product(struct cuda *c, const struct k_matmul *a)
{
    struct k_matmul rest = *a;
    bool is_rounded = false;
    int code = cudaSuccess;

    if (!c->blas || a->n_rows < BLAS_ROWS_MIN)
        return k_cuda_matmul(&c->k, a);
    rest.n_mats = 0;
    for (uint32_t m = 0; m < a->n_mats && code == cudaSuccess; m++) {
        bool is_theirs = a->w[m]->type == K_BF16;

        if (is_theirs && !is_rounded)
            code = k_cuda_round(&c->k, a->in.f32, a->in.n, a->n_rows, c->rounded,
                                k_cuda_row_stride(a->in.n));
        is_rounded = is_rounded || is_theirs;
        if (code == cudaSuccess && is_theirs && multiply(c, a, m))
            continue;
        rest.w[rest.n_mats] = a->w[m];
        rest.out[rest.n_mats++] = a->out[m];
    }
    return code == cudaSuccess && rest.n_mats > 0 ? k_cuda_matmul(&c->k, &rest) : code;
}

static int launch(struct cuda *c, enum device_op op, const void *args)
{
    switch (op) {
    case OP_EMBED:
        return k_cuda_embed(&c->k, args);
    case OP_NORM:
        return k_cuda_norm(&c->k, args);
    case OP_NORM_ADD:
        return k_cuda_norm_add(&c->k, args);
    case OP_MATMUL:
        return product(c, args);
    case OP_ANGLES:
        return k_cuda_angles(&c->k, args);
    case OP_STORE:
        return k_cuda_store(&c->k, args);
    case OP_ATTEND:
        return k_cuda_attend(&c->k, args);
    case OP_GATE:
        return k_cuda_gate(&c->k, args);
    case OP_ADJUST:
        return k_cuda_adjust(&c->k, args);
    case OP_SAMPLE:
        return k_cuda_sample(&c->k, args);
    case OP_GATHER:
        return k_cuda_gather(&c->k, args);
    case OP_PACK:
        return k_cuda_pack(&c->k, args);
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
        break;
    }
    return cudaSuccess;
}

static void cuda_append(struct device *d, enum device_op op, const void *args, size_t size,
                        uint32_t n_items)
{
    struct cuda *c = cuda_of(d);

    (void)size;
    (void)n_items;
    if (!works(c))
        return;
    if (op == OP_ALL_REDUCE || op == OP_ALL_GATHER)
        collective(c, op, args);
    else
        check(c, launch(c, op, args), "start of a kernel");
}

static int cuda_submit(struct device *d, struct err *err)
{
    return result(cuda_of(d), err);
}

static int cuda_replay(struct device *d, unsigned key, enum device_replay *ret, struct err *err)
{
    struct cuda *c = cuda_of(d);

    if (works(c) && c->lists[key]) {
        *ret = DEVICE_REPLAYED;
        check(c, cudaGraphLaunch(c->lists[key], c->stream), "start of a graph");
    } else if (works(c)) {
        *ret = DEVICE_RECORDING;
        check(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
              "record a graph");
        c->is_recording = works(c);
    }
    return result(c, err);
}

static int cuda_record_end(struct device *d, unsigned key, struct err *err)
{
    struct cuda *c = cuda_of(d);
    cudaGraph_t graph = NULL;
    int code;

    if (!c->is_recording)
        return result(c, err);
    c->is_recording = false;
    code = cudaStreamEndCapture(c->stream, &graph);
    check(c, code, "record a graph");
    if (works(c))
        check(c, cudaGraphInstantiate(&c->lists[key], graph, 0), "make a graph");
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (works(c))
        check(c, cudaGraphLaunch(c->lists[key], c->stream), "start of a graph");
    return result(c, err);
}

/* opening and closing */

/* Which GPU there is, and whether it will do.  No driver and no GPU are ERR_UNAVAILABLE. */
static int examine(unsigned index, struct cudaDeviceProp *ret, struct err *err)
{
    int n = 0, driver = 0, wants = 0;
    cudaError_t code = cudaGetDeviceCount(&n);

    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&wants);
    if (driver == 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "no NVIDIA driver here; in a pod, ask for nvidia.com/gpu");
    if (code == cudaErrorInsufficientDriver)
        return err_set(err, ERR_DEVICE,
                       "the NVIDIA driver supports CUDA %d.%d, this build needs %d.%d or later; "
                       "update the driver",
                       driver / 1000, driver % 1000 / 10, wants / 1000, wants % 1000 / 10);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && n == 0))
        return err_set(err, ERR_UNAVAILABLE, "no GPU is visible here");
    if (code == cudaSuccess && index >= (unsigned)n)
        return err_set(err, ERR_INVALID, "GPU %u is needed, %d are visible here", index, n);
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(ret, (int)index);
    if (code != cudaSuccess)
        return err_set(err, ERR_DEVICE, "GPU %u: %s (%s)", index, cudaGetErrorString(code),
                       cudaGetErrorName(code));
    if (ret->major * 10 + ret->minor < SM_MIN)
        return err_set(err, ERR_DEVICE,
                       "GPU %u: %s has compute capability %d.%d, 8.0 or later is needed (A100)",
                       index, ret->name, ret->major, ret->minor);
    return 0;
}

/* What the kernels are written for (cuda_ops.h). */
static int check_shape(const struct device_shape *s, struct err *err)
{
    if (s->head_dim > K_CUDA_HEAD_MAX || s->head_dim % 8 != 0)
        return err_set(err, ERR_INVALID,
                       "heads of %u values are not supported on a GPU, only multiples of 8 up to "
                       "%d; use --device=cpu",
                       s->head_dim, K_CUDA_HEAD_MAX);
    if (s->n_heads > K_CUDA_GROUP_MAX * s->n_kv_heads)
        return err_set(err, ERR_INVALID,
                       "%u heads on %u KV heads are not supported on a GPU, only up to %d on one; "
                       "use --device=cpu",
                       s->n_heads, s->n_kv_heads, K_CUDA_GROUP_MAX);
    if (s->n_vocab >= VOCAB_MAX)
        return err_set(err, ERR_INVALID,
                       "a vocabulary of %u is not supported on a GPU, only below %d; use "
                       "--device=cpu",
                       s->n_vocab, VOCAB_MAX);
    return 0;
}

static void take_arena(struct cuda *c, double fraction)
{
    size_t free_bytes = 0, total = 0;
    void *p = NULL;
    cudaError_t code;

    check(c, cudaMemGetInfo(&free_bytes, &total), "ask for its memory");
    c->arena_bytes = (size_t)((double)free_bytes * fraction) / ALIGN * ALIGN;
    if (!works(c))
        return;
    code = cudaMalloc(&p, c->arena_bytes);
    if (code == cudaErrorMemoryAllocation)
        (void)err_set(&c->failed, ERR_NO_MEMORY,
                      "GPU %d: %zu of %zu MiB are free, and %zu MiB were not to be had; another "
                      "process may use it, or lower --gpu-memory-fraction",
                      c->index, free_bytes >> 20, total >> 20, c->arena_bytes >> 20);
    else
        check(c, code, "take memory");
    c->arena = p;
}

/* Until the stream has nothing left to do, whatever happened: memory that copies use must not go
 * before them. */
static void settle(struct cuda *c)
{
    uint64_t start = clock_ns(clock_system());

    while (c->stream && !c->is_hung && cudaStreamQuery(c->stream) == cudaErrorNotReady) {
        c->is_hung = clock_ns(clock_system()) - start > c->timeout_ms * 1000000;
        pause_a_little(start);
    }
}

/* Freeing memory of the GPU waits for its kernels.  When one hangs, the process is about to end,
 * and the driver takes back what is left. */
static void forget(struct cuda *c)
{
    while (c->pinned) {
        struct pinned *next = c->pinned->next;

        mem_free(c->pinned);
        c->pinned = next;
    }
    pool_free(c->readers);
    mem_free(c); /* the library, too, may wait for the GPU: left alone */
}

static void cuda_free(struct device *d)
{
    struct cuda *c = cuda_of(d);

    (void)cudaSetDevice(c->index);
    settle(c);
    if (c->is_hung) {
        forget(c);
        return;
    }
    for (unsigned i = 0; i < DEVICE_REPLAYS_MAX; i++)
        if (c->lists[i])
            (void)cudaGraphExecDestroy(c->lists[i]);
    while (c->pinned) {
        struct pinned *next = c->pinned->next;

        if (c->pinned->copied)
            (void)cudaEventDestroy(c->pinned->copied);
        if (c->pinned->host)
            (void)cudaFreeHost(c->pinned->host);
        mem_free(c->pinned);
        c->pinned = next;
    }
    blas_free(c->blas);
    if (c->arena)
        (void)cudaFree(c->arena);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    pool_free(c->readers);
    mem_free(c);
}

/* Without the library all is computed, too; the device's name says so. */
static int open_blas(struct cuda *c, const struct device_shape *s, struct err *err)
{
    size_t row_bytes = k_cuda_row_stride(s->row_max) * sizeof(uint16_t);
    size_t n = strlen(c->base.name);
    int r = blas_new(&c->blas, err);

    if (r == -ERR_UNAVAILABLE) {
        (void)snprintf(c->base.name + n, sizeof(c->base.name) - n, ", no cuBLASLt");
        return 0;
    }
    if (r == 0)
        r = cuda_alloc(&c->base, BLAS_WORKSPACE, &c->blas_workspace, err);
    return r == 0 ? cuda_alloc(&c->base, s->rows_max * row_bytes, &c->rounded, err) : r;
}

static int open_gpu(struct cuda *c, const struct device_options *o, struct err *err)
{
    unsigned n_readers = cpu_count();
    struct k_cuda_shape shape = {.rows_max = o->shape.rows_max,
                                 .n_heads = o->shape.n_heads,
                                 .n_kv_heads = o->shape.n_kv_heads,
                                 .head_dim = o->shape.head_dim,
                                 .n_sms = c->k.n_sms};
    int r = pool_new(n_readers < READERS_MAX ? n_readers : READERS_MAX, &c->readers, err);

    if (r < 0)
        return r;
    make_current(c);
    check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream");
    if (works(c))
        check(c, k_cuda_init(), "prepare kernels");
    c->k.stream = c->stream;
    if (works(c))
        take_arena(c, o->memory_fraction);
    r = result(c, err);
    for (int i = 0; i < 2 && r == 0; i++)
        r = pinned_new(c, STAGE_BYTES, &c->stages[i], err);
    c->k.scratch_bytes = k_cuda_scratch_bytes(&shape);
    if (r == 0)
        r = cuda_alloc(&c->base, c->k.scratch_bytes, &c->k.scratch, err);
    return r == 0 ? open_blas(c, &o->shape, err) : r;
}

int device_cuda_new(const struct device_options *o, struct device **ret, struct err *err)
{
    static const struct device_kind kind = {
            .free = cuda_free,
            .alloc = cuda_alloc,
            .memory_left = cuda_memory_left,
            .mirror_new = cuda_mirror_new,
            .mirror_wait = cuda_mirror_wait,
            .mirror_put = cuda_mirror_put,
            .mirror_get = cuda_mirror_get,
            .matrix = cuda_matrix,
            .vector = cuda_vector,
            .append = cuda_append,
            .submit = cuda_submit,
            .replay = cuda_replay,
            .record_end = cuda_record_end,
    };
    struct cudaDeviceProp prop;
    struct cuda *c;
    int r = examine(o->index, &prop, err);

    if (r == 0)
        r = check_shape(&o->shape, err);
    if (r < 0)
        return r;
    c = mem_calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ERR_NO_MEMORY, "device");
    c->base.kind = &kind;
    c->base.keeps_lists = !o->no_lists;
    c->base.logit_rows = LOGIT_ROWS;
    c->index = (int)o->index;
    c->timeout_ms = o->timeout_ms;
    c->k.n_sms = (uint32_t)prop.multiProcessorCount;
    (void)snprintf(c->base.name, sizeof(c->base.name), "cuda (%.60s)", prop.name);
    r = open_gpu(c, o, err);
    if (r < 0) {
        cuda_free(&c->base);
        return r;
    }
    *ret = &c->base;
    return 0;
}
