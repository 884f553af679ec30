/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt.cc - a twin of libcublasLt.so.13 for the virtual GPU: the product as defined.
 *
 * What runtime/device/blas.c asks for: C (+)= alpha op(A) B, column-major, bfloat16 in, float32
 * out. Layouts, types, sizes, strides and memory are checked when the product is queued, as the
 * real library checks them, and more strictly: memory must be an allocation of the stream's device,
 * 16-byte aligned, and A, B and D must not overlap.  The sum runs over k in order, in float32.
 *
 * Declarations follow NVIDIA's cuBLAS documentation.  The program is called back by vgpu.h's names.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/vgpu/vgpu.h"

namespace
{
enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { REAL_32F = 0, REAL_16BF = 14, COMPUTE_32F = 68 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREF_MAX_WORKSPACE_BYTES = 1 };
constexpr uint64_t MAGIC = 0x70656e73746f636bU; /* an algorithm that heuristics gave */

struct desc {
    int transa = 0, transb = 0;
};

struct layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;

    size_t bytes() const
    {
        size_t size = type == REAL_32F ? 4 : 2;
        return (size_t(stride) * (columns - 1) + rows) * size;
    }
};

struct preference {
    uint64_t workspace_bytes = 0;
};

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

struct product {
    int device;
    layout a, b, d;
    const void *pa, *pb;
    void *pd;
    float alpha, beta;
};

float real(uint16_t h)
{
    uint32_t bits = uint32_t(h) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

void *view(int device, const void *p, size_t size)
{
    void *host = vgpu_host_view(device, p, size);
    if (!host) {
        fprintf(stderr, "vgpu: a product's turn comes when its memory %p is given back\n", p);
        abort();
    }
    return host;
}

/* d[i][j] = alpha sum over k of a[k][i] b[k][j] + beta d[i][j], first index along columns */
void run(const product &p)
{
    auto a = static_cast<const uint16_t *>(view(p.device, p.pa, p.a.bytes()));
    auto b = static_cast<const uint16_t *>(view(p.device, p.pb, p.b.bytes()));
    auto d = static_cast<float *>(view(p.device, p.pd, p.d.bytes()));
    for (uint64_t j = 0; j < p.d.columns; j++)
        for (uint64_t i = 0; i < p.d.rows; i++) {
            float sum = 0, *to = &d[uint64_t(p.d.stride) * j + i];
            for (uint64_t k = 0; k < p.a.rows; k++)
                sum += real(a[uint64_t(p.a.stride) * i + k]) *
                       real(b[uint64_t(p.b.stride) * j + k]);
            *to = p.alpha * sum + (p.beta > 0 || p.beta < 0 ? p.beta * *to : 0);
        }
}

bool fits(const desc &what, const layout &a, const layout &b, const layout &c, const layout &d)
{
    return what.transa == 1 && what.transb == 0 && a.type == REAL_16BF && b.type == REAL_16BF &&
           c.type == REAL_32F && d.type == REAL_32F && a.rows == b.rows && a.columns == d.rows &&
           b.columns == d.columns && c.rows == d.rows && c.columns == d.columns;
}

bool is_good(int device, const layout &l, const void *p)
{
    return vgpu_host_view(device, p, l.bytes()) && uintptr_t(p) % 16 == 0;
}

bool overlap(const layout &a, const void *pa, const layout &b, const void *pb)
{
    uintptr_t x = uintptr_t(pa), y = uintptr_t(pb);
    return x < y + b.bytes() && y < x + a.bytes();
}
} // namespace

extern "C" {
int cublasLtCreate(void **handle);
int cublasLtDestroy(void *handle);
int cublasLtMatmulDescCreate(void **ret, int compute, int scale_type);
int cublasLtMatmulDescSetAttribute(void *d, int attribute, const void *value, size_t size);
int cublasLtMatmulDescDestroy(void *d);
int cublasLtMatrixLayoutCreate(void **ret, int type, uint64_t rows, uint64_t columns,
                               int64_t stride);
int cublasLtMatrixLayoutDestroy(void *l);
int cublasLtMatmulPreferenceCreate(void **ret);
int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t size);
int cublasLtMatmulPreferenceDestroy(void *p);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *d, void *a, void *b, void *c, void *dd,
                                   void *p, int n_max, void *ret, int *ret_n);
int cublasLtMatmul(void *handle, void *what, const void *alpha, const void *pa, void *a,
                   const void *pb, void *b, const void *beta, const void *pc, void *c, void *pd,
                   void *d, const void *algorithm, void *workspace, size_t workspace_bytes,
                   void *stream);
const char *cublasLtGetStatusString(int status);

int cublasLtCreate(void **handle)
{
    *handle = new int(0);
    return SUCCESS;
}

int cublasLtDestroy(void *handle)
{
    delete static_cast<int *>(handle);
    return SUCCESS;
}

int cublasLtMatmulDescCreate(void **ret, int compute, int scale_type)
{
    if (compute != COMPUTE_32F || scale_type != REAL_32F)
        return NOT_SUPPORTED;
    *ret = new desc();
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(void *d, int attribute, const void *value, size_t size)
{
    auto to = static_cast<desc *>(d);
    if (size != sizeof(int) || (attribute != DESC_TRANSA && attribute != DESC_TRANSB))
        return INVALID_VALUE;
    memcpy(attribute == DESC_TRANSA ? &to->transa : &to->transb, value, size);
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(void *d)
{
    delete static_cast<desc *>(d);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **ret, int type, uint64_t rows, uint64_t columns,
                               int64_t stride)
{
    if (!rows || !columns || stride < int64_t(rows))
        return INVALID_VALUE;
    *ret = new layout{type, rows, columns, stride};
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(void *l)
{
    delete static_cast<layout *>(l);
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(void **ret)
{
    *ret = new preference();
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t size)
{
    if (attribute != PREF_MAX_WORKSPACE_BYTES || size != sizeof(uint64_t))
        return INVALID_VALUE;
    memcpy(&static_cast<preference *>(p)->workspace_bytes, value, size);
    return SUCCESS;
}

int cublasLtMatmulPreferenceDestroy(void *p)
{
    delete static_cast<preference *>(p);
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *d, void *a, void *b, void *c, void *dd,
                                   void *p, int n_max, void *ret, int *ret_n)
{
    *ret_n = 0;
    if (!handle || !p || n_max < 1)
        return INVALID_VALUE;
    if (!fits(*static_cast<desc *>(d), *static_cast<layout *>(a), *static_cast<layout *>(b),
              *static_cast<layout *>(c), *static_cast<layout *>(dd)))
        return NOT_SUPPORTED;
    heuristic h = {};
    h.algorithm[0] = MAGIC;
    memcpy(ret, &h, sizeof(h));
    *ret_n = 1;
    return SUCCESS;
}

int cublasLtMatmul(void *handle, void *what, const void *alpha, const void *pa, void *a,
                   const void *pb, void *b, const void *beta, const void *pc, void *c, void *pd,
                   void *d, const void *algorithm, void *workspace, size_t workspace_bytes,
                   void *stream)
{
    auto p = new product{vgpu_stream_device(stream),
                         *static_cast<layout *>(a),
                         *static_cast<layout *>(b),
                         *static_cast<layout *>(d),
                         pa,
                         pb,
                         pd,
                         0,
                         0};
    uint64_t magic;
    memcpy(&p->alpha, alpha, 4);
    memcpy(&p->beta, beta, 4);
    memcpy(&magic, algorithm, sizeof(magic));
    if (!handle || magic != MAGIC || pc != pd ||
        !fits(*static_cast<desc *>(what), p->a, p->b, *static_cast<layout *>(c), p->d) ||
        !is_good(p->device, p->a, pa) || !is_good(p->device, p->b, pb) ||
        !is_good(p->device, p->d, pd) || overlap(p->a, pa, p->d, pd) ||
        overlap(p->b, pb, p->d, pd) ||
        (workspace_bytes && !vgpu_host_view(p->device, workspace, workspace_bytes))) {
        delete p;
        return INVALID_VALUE;
    }
    int error = vgpu_enqueue(
            stream, [](void *arg) { run(*static_cast<product *>(arg)); }, p,
            [](void *arg) { delete static_cast<product *>(arg); });
    return error ? EXECUTION_FAILED : SUCCESS;
}

const char *cublasLtGetStatusString(int status)
{
    switch (status) {
    case SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}
}
