/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <math.h>

#include "tests/kernels/kernel_data.h"
#include "tests/support.h"

#define assert_cuda(call) assert_int_equal((int)(call), 0)

/* What cudaMalloc() aligns to, and what kernels ask for. */
enum { DEVICE_ALIGN = 256, KERNEL_ALIGN = 16, UNUSED = 0xff };

struct gpu gpu_new(const struct k_cuda_shape *shape)
{
    struct gpu g = {.k = {.n_sms = shape->n_sms, .scratch_bytes = k_cuda_scratch_bytes(shape)}};
    cudaStream_t stream;

    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(k_cuda_init());
    g.k.stream = stream;
    g.k.scratch = gpu_alloc(&g, g.k.scratch_bytes);
    return g;
}

static void assert_untouched(struct gpu *g, const void *p, size_t n)
{
    CLEANUP(mem_freep) uint8_t *bytes = n > 0 ? gpu_download(g, p, n) : NULL;

    for (size_t i = 0; i < n; i++)
        assert_int_equal(bytes[i], UNUSED);
}

void gpu_free(struct gpu *g)
{
    assert_cuda(cudaStreamSynchronize(g->k.stream));
    for (size_t i = 0; i < g->n_memory; i++) {
        assert_untouched(g, g->memory[i].start, g->memory[i].before);
        assert_cuda(cudaFree(g->memory[i].start));
    }
    assert_cuda(cudaStreamDestroy(g->k.stream));
}

void *gpu_alloc(struct gpu *g, size_t bytes)
{
    size_t aligned = (bytes + KERNEL_ALIGN - 1) / KERNEL_ALIGN * KERNEL_ALIGN;
    size_t whole = (bytes + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
    struct gpu_memory m = {.before = whole - aligned};

    assert_true(g->n_memory < sizeof(g->memory) / sizeof(g->memory[0]));
    assert_cuda(cudaMalloc(&m.start, m.before + bytes));
    g->memory[g->n_memory++] = m;
    assert_cuda(cudaMemsetAsync(m.start, UNUSED, m.before + bytes, g->k.stream));
    return (char *)m.start + m.before;
}

void *gpu_upload(struct gpu *g, const void *host, size_t bytes)
{
    void *p = gpu_alloc(g, bytes);

    assert_cuda(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, g->k.stream));
    return p;
}

void *gpu_download(struct gpu *g, const void *device, size_t bytes)
{
    void *host = test_alloc(1, bytes);

    assert_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, g->k.stream));
    assert_cuda(cudaStreamSynchronize(g->k.stream));
    return host;
}

struct k_matrix gpu_matrix(struct gpu *g, enum k_type type, uint32_t n_in, uint32_t n_out,
                           const void *stored)
{
    size_t row_bytes = (size_t)n_in / k_block_len(type) * k_block_bytes(type);
    struct k_pack pack = {.type = type,
                          .n_in = n_in,
                          .n_out = n_out,
                          .stored = gpu_upload(g, stored, n_out * row_bytes),
                          .packed = gpu_alloc(g, k_cuda_packed_bytes(type, n_in, n_out))};

    assert_cuda(k_cuda_pack(&g->k, &pack));
    return (struct k_matrix){.type = type, .n_in = n_in, .n_out = n_out, .data = pack.packed};
}

double gpu_worst(const float *got, const float *want, size_t n, const float *bound, float tolerance)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++) {
        double allowed = (double)(bound ? bound[i] : tolerance * (1 + fabsf(want[i])));
        double error = fabs((double)got[i] - (double)want[i]);

        if (!(error <= allowed))
            fail_msg("%zu of %zu: %.9g, want %.9g within %g", i, n, (double)got[i], (double)want[i],
                     allowed);
        worst = fmax(worst, error / allowed);
    }
    return worst;
}

int gpu_run(const struct CMUnitTest *tests, size_t n)
{
    int n_devices = 0;
    int failed = 0;

    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0)
        return 77;
    for (unsigned i = 0; i < gpu_n_orders(); i++) {
        gpu_set_order(i);
        failed += _cmocka_run_group_tests("kernels on a GPU", tests, n, NULL, NULL);
    }
    return failed;
}
