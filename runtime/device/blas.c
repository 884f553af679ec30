/* SPDX-License-Identifier: Apache-2.0
 *
 * blas.c - cuBLASLt by dlopen.
 *
 * The library thinks in columns: a row-major matrix is its transpose.  So y = x w^T is asked for as
 * y^T = w x^T, with w transposed once more: m = n_out, n = n_rows, k = n_in.
 *
 * Which of its kernels to use is the library's guess, asked once for a size and kept; a size that
 * maps to a taken place of the small table is asked for again.
 *
 * The declarations are the documented ABI (NVIDIA cuBLAS documentation, "Using the cuBLASLt API",
 * version 13); the library itself is 500 MB and comes with the images for GPUs only.
 */
#include "runtime/device/blas.h"

#include <dlfcn.h>
#include <string.h>

#include "base/mem.h"

enum {
    SUCCESS = 0,
    NOT_SUPPORTED = 15,
    REAL_32F = 0,
    REAL_16BF = 14,
    COMPUTE_32F = 68,
    OP_TRANSPOSE = 1,
    DESC_TRANSA = 3,
    PREF_MAX_WORKSPACE_BYTES = 1,
    KEPT = 256, /* sizes remembered; a power of two */
};

struct algorithm {
    uint64_t data[8];
};

struct heuristic {
    struct algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

struct api {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t size);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t size);
    int (*preference_destroy)(void *preference);
    int (*heuristics)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                      void *preference, int n_max, struct heuristic *ret, int *ret_n);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const struct algorithm *algorithm, void *workspace,
                  size_t workspace_bytes, void *stream);
    const char *(*status_string)(int status);
};

struct kept {
    uint32_t n_rows, n_in, n_out;
    bool any; /* there is a kernel */
    struct algorithm algorithm;
};

struct blas {
    void *library;
    struct api api;
    void *handle;
    struct kept kept[KEPT];
};

/* What describes one product to the library. */
struct shape {
    void *desc;
    void *w;
    void *x;
    void *y;
};

static int failed(const struct blas *b, int status, const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE, "cuBLASLt: %s: %s", what, b->api.status_string(status));
}

static int open_library(struct blas *b, struct err *err)
{
    const struct {
        const char *name;
        void *to;
    } table[] = {
            {"cublasLtCreate", &b->api.create},
            {"cublasLtDestroy", &b->api.destroy},
            {"cublasLtMatmulDescCreate", &b->api.desc_create},
            {"cublasLtMatmulDescSetAttribute", &b->api.desc_set},
            {"cublasLtMatmulDescDestroy", &b->api.desc_destroy},
            {"cublasLtMatrixLayoutCreate", &b->api.layout_create},
            {"cublasLtMatrixLayoutDestroy", &b->api.layout_destroy},
            {"cublasLtMatmulPreferenceCreate", &b->api.preference_create},
            {"cublasLtMatmulPreferenceSetAttribute", &b->api.preference_set},
            {"cublasLtMatmulPreferenceDestroy", &b->api.preference_destroy},
            {"cublasLtMatmulAlgoGetHeuristic", &b->api.heuristics},
            {"cublasLtMatmul", &b->api.matmul},
            {"cublasLtGetStatusString", &b->api.status_string},
    };

    b->library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!b->library)
        return err_set(err, ERR_UNAVAILABLE, "libcublasLt.so.13 does not open");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        void *symbol = dlsym(b->library, table[i].name);

        if (!symbol)
            return err_set(err, ERR_UNAVAILABLE, "libcublasLt.so.13 has no %s", table[i].name);
        memcpy(table[i].to, &symbol, sizeof(symbol)); /* POSIX: a function's address fits */
    }
    return 0;
}

int blas_new(struct blas **ret, struct err *err)
{
    CLEANUP(blas_freep) struct blas *b = mem_calloc(1, sizeof(*b));
    int r, status;

    if (!b)
        return err_set(err, ERR_NO_MEMORY, "blas");
    r = open_library(b, err);
    if (r < 0)
        return r;
    status = b->api.create(&b->handle);
    if (status != SUCCESS)
        return failed(b, status, "start", err);
    *ret = TAKE_PTR(b);
    return 0;
}

void blas_free(struct blas *b)
{
    if (!b)
        return;
    if (b->handle)
        (void)b->api.destroy(b->handle);
    if (b->library)
        (void)dlclose(b->library);
    mem_free(b);
}

static int describe(const struct blas *b, const struct blas_product *p, struct shape *s)
{
    int transpose = OP_TRANSPOSE;
    int status = b->api.desc_create(&s->desc, COMPUTE_32F, REAL_32F);

    if (status == SUCCESS)
        status = b->api.desc_set(s->desc, DESC_TRANSA, &transpose, sizeof(transpose));
    if (status == SUCCESS)
        status = b->api.layout_create(&s->w, REAL_16BF, p->n_in, p->n_out, p->w_stride);
    if (status == SUCCESS)
        status = b->api.layout_create(&s->x, REAL_16BF, p->n_in, p->n_rows, p->x_stride);
    if (status == SUCCESS)
        status = b->api.layout_create(&s->y, REAL_32F, p->n_out, p->n_rows, p->n_out);
    return status;
}

static void forget(const struct blas *b, const struct shape *s)
{
    if (s->y)
        (void)b->api.layout_destroy(s->y);
    if (s->x)
        (void)b->api.layout_destroy(s->x);
    if (s->w)
        (void)b->api.layout_destroy(s->w);
    if (s->desc)
        (void)b->api.desc_destroy(s->desc);
}

/* The library's guess for this size into *k. */
static int ask(const struct blas *b, const struct blas_product *p, const struct shape *s,
               struct kept *k)
{
    void *preference = NULL;
    struct heuristic found;
    int n = 0;
    int status = b->api.preference_create(&preference);

    if (status == SUCCESS)
        status = b->api.preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &p->workspace_bytes,
                                       sizeof(p->workspace_bytes));
    if (status == SUCCESS)
        status = b->api.heuristics(b->handle, s->desc, s->w, s->x, s->y, s->y, preference, 1,
                                   &found, &n);
    if (preference)
        (void)b->api.preference_destroy(preference);
    if (status != SUCCESS && status != NOT_SUPPORTED)
        return status;
    *k = (struct kept){.n_rows = p->n_rows, .n_in = p->n_in, .n_out = p->n_out};
    k->any = status == SUCCESS && n > 0 && found.state == SUCCESS;
    if (k->any)
        k->algorithm = found.algorithm;
    return SUCCESS;
}

static struct kept *place_of(struct blas *b, const struct blas_product *p)
{
    uint32_t hash = p->n_rows * 2654435761u ^ p->n_in * 40503u ^ p->n_out * 97u;

    return &b->kept[(hash ^ hash >> 16) % KEPT];
}

int blas_multiply(struct blas *b, const struct blas_product *p, struct err *err)
{
    const float one = 1, beta = p->add ? 1 : 0;
    struct kept *k = place_of(b, p);
    struct shape s = {0};
    int status = describe(b, p, &s);

    if (status == SUCCESS && (k->n_rows != p->n_rows || k->n_in != p->n_in || k->n_out != p->n_out))
        status = ask(b, p, &s, k);
    if (status == SUCCESS && k->any)
        status =
                b->api.matmul(b->handle, s.desc, &one, p->w, s.w, p->x, s.x, &beta, p->y, s.y, p->y,
                              s.y, &k->algorithm, p->workspace, p->workspace_bytes, p->stream);
    forget(b, &s);
    if (status != SUCCESS)
        return failed(b, status, "product", err);
    return k->any ? 0 : err_set(err, ERR_NOT_FOUND, "cuBLASLt has no kernel for these sizes");
}
