/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on the virtual GPU: what is right gives the right result in every order of threads, what
 * is wrong is found.
 */
#include "kernels/cuda/ptx.cuh"
#include "tests/vgpu/sample_kernels.h"
#include "tests/vgpu/vgpu_test.h"

static const char *const ORDERS[] = {"forward", "reverse", "shuffled"};

static void test_indices(void **)
{
    cudaStream_t s = new_stream();
    std::vector<unsigned> none(24 * 60);
    for (const char *order : ORDERS) {
        vgpu_order(order);
        unsigned *out = on_device(none, s);
        OK(launch_on(s, dim3(2, 3, 4), dim3(5, 6, 2), 0, k_where, out));
        auto got = on_host(out, none.size(), s);
        for (unsigned i = 0; i < got.size(); i++)
            assert_int_equal(got[i], i / 60 * 1000 + i % 60);
        OK(cudaFree(out));
    }
    OK(cudaStreamDestroy(s));
}

/* Does the kernel with the bug give the right result in every order? */
template <class Run> static bool right_in_all_orders(Run run)
{
    bool right = true;
    for (const char *order : ORDERS) {
        vgpu_order(order);
        right &= run();
    }
    return right;
}

static bool sum_is_right(int bug)
{
    cudaStream_t s = new_stream();
    std::vector<float> x(1000), none(256);
    float want = 0;
    for (unsigned i = 0; i < x.size(); i++)
        want += x[i] = float(i % 7);
    float *in = on_device(x, s), *out = on_device(none, s);
    OK(launch_on(s, 1, 256, 8 * sizeof(float), k_sum, in, out, 1000u, bug));
    bool right = true;
    for (float got : on_host(out, 256, s))
        right &= got == want;
    OK(cudaFree(in));
    OK(cudaFree(out));
    OK(cudaStreamDestroy(s));
    return right;
}

static void test_sum(void **)
{
    assert_true(right_in_all_orders([] { return sum_is_right(0); }));
    assert_false(right_in_all_orders([] { return sum_is_right(1); })); /* no barrier */
}

static bool reverse_is_right(int bug)
{
    cudaStream_t s = new_stream();
    std::vector<float> x(1024);
    for (unsigned i = 0; i < 1024; i++)
        x[i] = float(i);
    float *in = on_device(x, s), *out = on_device(x, s);
    OK(launch_on(s, 4, 256, 1024, k_reverse, in, out, bug));
    auto got = on_host(out, 1024, s);
    bool right = true;
    for (unsigned i = 0; i < 1024; i++)
        right &= got[i] == float(i / 256 * 256 + 255 - i % 256);
    OK(cudaFree(in));
    OK(cudaFree(out));
    OK(cudaStreamDestroy(s));
    return right;
}

static void test_copy_async(void **)
{
    assert_true(right_in_all_orders([] { return reverse_is_right(0); }));
    for (int bug = 1; bug <= 3; bug++)
        assert_false(right_in_all_orders([=] { return reverse_is_right(bug); }));
}

static void test_syncwarp(void **)
{
    for (int bug = 0; bug < 2; bug++) {
        bool right = right_in_all_orders([=] {
            cudaStream_t s = new_stream();
            unsigned *out = on_device(std::vector<unsigned>(32), s);
            OK(launch_on(s, 1, 32, 128, k_neighbours, out, bug));
            auto got = on_host(out, 32, s);
            bool all = true;
            for (unsigned i = 0; i < 32; i++)
                all &= got[i] == 7 * ((i + 1) % 32 + (i + 31) % 32);
            OK(cudaFree(out));
            OK(cudaStreamDestroy(s));
            return all;
        });
        assert_int_equal(right, !bug);
    }
}

template <class T, class From, class To>
static void check_mma(void (*kernel)(const T *, const T *, float *), unsigned k, From from, To to,
                      float tolerance)
{
    cudaStream_t s = new_stream();
    std::vector<T> a(16 * k), b(8 * k);
    std::vector<float> none(128);
    for (unsigned i = 0; i < a.size(); i++)
        a[i] = from(float(int(i * 37 % 101) - 50) / 16);
    for (unsigned i = 0; i < b.size(); i++)
        b[i] = from(float(int(i * 53 % 97) - 48) / 16);
    T *da = on_device(a, s), *db = on_device(b, s);
    float *dc = on_device(none, s);
    OK(launch_on(s, 1, 32, 1024, kernel, (const T *)da, (const T *)db, dc));
    auto c = on_host(dc, 128, s);
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 8; j++) {
            double want = 0;
            for (unsigned l = 0; l < k; l++)
                want += double(to(a[i * k + l])) * double(to(b[j * k + l]));
            assert_float_equal(c[8 * i + j], float(want), tolerance);
        }
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(dc));
    OK(cudaStreamDestroy(s));
}

static void test_mma(void **)
{
    check_mma(
            k_mma_tf32, 8, [](float f) { return f; }, [](float f) { return f; }, 1e-4f);
    check_mma(k_mma_f16, 16, __float2half_rn, __half2float, 1e-4f);
    check_mma(k_mma_bf16, 16, __float2bfloat16_rn, __bfloat162float, 1e-4f);
}

static void test_transpose(void **)
{
    cudaStream_t s = new_stream();
    std::vector<unsigned short> in(256);
    for (unsigned i = 0; i < 256; i++)
        in[i] = (unsigned short)i;
    unsigned short *from = on_device(in, s), *to = on_device(in, s);
    OK(launch_on(s, 1, 32, 512, k_transpose, (const unsigned short *)from, to));
    auto got = on_host(to, 256, s);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(got[i], i / 64 * 64 + i % 8 * 8 + i % 64 / 8);
    OK(cudaFree(from));
    OK(cudaFree(to));
    OK(cudaStreamDestroy(s));
}

static void test_tf32_rounding(void **)
{
    struct {
        uint32_t in, want;
    } cases[] = {{0x3f800fff, 0x3f800000}, {0x3f801000, 0x3f802000}, {0xbf801000, 0xbf802000},
                 {0x3fffffff, 0x40000000}, {0x7f800000, 0x7f800000}, {0, 0}};
    for (auto c : cases)
        assert_int_equal(ptx_to_tf32(vgpu::bits<float>(c.in)), c.want);
}

static void test_warp_operations(void **)
{
    cudaStream_t s = new_stream();
    unsigned *votes = on_device(std::vector<unsigned>(96), s);
    int *shuffles = on_device(std::vector<int>(128), s);
    for (const char *order : ORDERS) {
        vgpu_order(order);
        OK(launch_on(s, 1, 32, 0, k_votes, votes));
        OK(launch_on(s, 1, 32, 0, k_shuffles, shuffles));
        auto v = on_host(votes, 96, s);
        auto f = on_host(shuffles, 128, s);
        for (unsigned i = 0; i < 32; i++) {
            int lane = int(i);
            assert_int_equal(v[i], 0xaaaaaaaau);
            assert_int_equal(v[32 + i], 2);
            assert_int_equal(v[64 + i], i < 16 ? 0x9249u : 0x49240000u);
            assert_int_equal(f[i], 100 + lane / 8 * 8 + (lane + 3) % 8);
            assert_int_equal(f[32 + i], 100 + (lane < 2 ? lane : lane - 2));
            assert_int_equal(f[64 + i], 100 + (lane > 26 ? lane : lane + 5));
            assert_int_equal(f[96 + i], 100 + (lane ^ 6));
        }
    }
    OK(cudaFree(votes));
    OK(cudaFree(shuffles));
    OK(cudaStreamDestroy(s));
}

static void test_atomics(void **)
{
    cudaStream_t s = new_stream();
    for (const char *order : ORDERS) {
        vgpu_order(order);
        unsigned *u = on_device(std::vector<unsigned>(2), s);
        int *least = on_device(std::vector<int>(1), s);
        float *total = on_device(std::vector<float>(1), s);
        OK(launch_on(s, 8, 128, 0, k_atomics, u, u + 1, least, total));
        auto got = on_host(u, 2, s);
        assert_int_equal(got[0], 1023 * 1024 / 2);
        assert_int_equal(got[1], 1023);
        assert_int_equal(on_host(least, 1, s)[0], -1023);
        assert_float_equal(on_host(total, 1, s)[0], 512.0f, 0);
        OK(cudaFree(u));
        OK(cudaFree(least));
        OK(cudaFree(total));
    }
    OK(cudaStreamDestroy(s));
}

/* Every binary16 there and back; floats between two neighbours go to the nearer, a tie to the
 * even one. */
static void test_half(void **)
{
    for (unsigned u = 0; u < 0x7c00; u++) {
        float here = __half2float(__ushort_as_half((unsigned short)u));
        assert_int_equal(__float2half_rn(here).__x, u);
        assert_int_equal(__float2half_rn(-here).__x, u | 0x8000);
        double next = u == 0x7bff ? 65536.0
                                  : double(__half2float(__ushort_as_half((unsigned short)(u + 1))));
        float middle = float((double(here) + next) / 2); /* exact */
        assert_int_equal(__float2half_rn(middle).__x, (u + 1) & ~1u);
        assert_int_equal(__float2half_rn(nextafterf(middle, 0)).__x, u);
        assert_int_equal(__float2half_rn(nextafterf(middle, INFINITY)).__x, u + 1);
    }
    assert_int_equal(__float2half_rn(INFINITY).__x, 0x7c00);
    assert_int_equal(__float2half_rn(1e10f).__x, 0x7c00);
    assert_int_equal(__float2half_rn(NAN).__x, 0x7fff);
    assert_true(isnan(__half2float(__ushort_as_half(0x7e00))));
    assert_true(isinf(__half2float(__ushort_as_half(0xfc00))));
    assert_int_equal(__float2bfloat16_rn(1.0f + 0x1p-8f).__x, 0x3f80);     /* tie, to even */
    assert_int_equal(__float2bfloat16_rn(1.0f + 3 * 0x1p-8f).__x, 0x3f82); /* tie, to even */
    assert_int_equal(__float2bfloat16_rn(1.0f + 0x1.02p-8f).__x, 0x3f81);
    assert_int_equal(__float2bfloat16_rn(0x1.ffffp127f).__x, 0x7f80);
    assert_int_equal(__float2bfloat16_rn(NAN).__x, 0x7fff);
}

/* --- programs that must end with a report --- */

template <class... P, class... A>
static void run_bad(size_t shared, void (*kernel)(P...), A... args)
{
    cudaStream_t s = new_stream();
    OK(launch_on(s, 1, 64, shared, kernel, args...));
    OK(cudaStreamSynchronize(s));
}

static float *device_floats(size_t n)
{
    float *p;
    OK(cudaMalloc(&p, n * sizeof(float)));
    return p;
}

static void bad_store_past()
{
    run_bad(0, k_bad_store, device_floats(100), size_t(100));
}

static void bad_store_before()
{
    run_bad(0, k_bad_store, device_floats(100), size_t(-1));
}

static void bad_store_far()
{
    run_bad(0, k_bad_store, device_floats(100), size_t(1) << 20);
}

static void bad_freed()
{
    float *p = device_floats(100);
    OK(cudaFree(p));
    run_bad(0, k_bad_store, p, size_t(0));
}

static void bad_host_memory()
{
    float *p = static_cast<float *>(malloc(64 << 20)); /* made after the start */
    run_bad(0, k_bad_load, (const float *)p, device_floats(1));
}

static void bad_device()
{
    float *p = device_floats(1);
    OK(cudaSetDevice(1));
    run_bad(0, k_bad_load, (const float *)p, device_floats(1));
}

static void bad_host_access()
{
    *device_floats(1) = 1;
}

static void bad_shared_past()
{
    run_bad(100, k_bad_shared, 100u);
}

static void bad_shared_far()
{
    run_bad(100, k_bad_shared, 128u);
}

static void bad_lane_left()
{
    run_bad(64, k_sum, (const float *)device_floats(64), device_floats(64), 64u, 2);
}

static void bad_shuffle()
{
    run_bad(64, k_sum, (const float *)device_floats(64), device_floats(64), 64u, 3);
}

static void bad_two_barriers()
{
    run_bad(0, k_bad_barrier, 0);
}

static void bad_deadlock()
{
    run_bad(0, k_bad_barrier, 1);
}

static void bad_own_lane()
{
    run_bad(0, k_bad_mask, 0);
}

static void bad_ended_lane()
{
    run_bad(0, k_bad_mask, 1);
}

static void bad_source_lane()
{
    run_bad(0, k_bad_mask, 2);
}

static void bad_copies_left()
{
    run_bad(1024, k_reverse, (const float *)device_floats(256), device_floats(256), 4);
}

static void bad_ldmatrix()
{
    run_bad(4096, k_bad_ldmatrix, (const float *)device_floats(256), 0);
}

static void bad_read_of_copy()
{
    run_bad(4096, k_bad_ldmatrix, (const float *)device_floats(256), 1);
}

static void bad_copy_over_read()
{
    run_bad(4096, k_bad_ldmatrix, (const float *)device_floats(256), 2);
}

/* A copy that waits behind a kernel that hangs, while its memory is given back. */
static void bad_queued_copy(bool pinned_goes)
{
    cudaStream_t s = new_stream();
    float *p = device_floats(100), *other = device_floats(100), *pinned;
    OK(cudaMallocHost(&pinned, 400));
    vgpu_hang_kernel("k_fill");
    OK(launch_on(s, 1, 32, 0, k_fill, other, 0.0f, 1u));
    OK(cudaMemcpyAsync(p, pinned, 400, cudaMemcpyHostToDevice, s));
    OK(pinned_goes ? cudaFreeHost(pinned) : cudaFree(p));
    vgpu_hang_kernel(nullptr);
    OK(cudaStreamSynchronize(s));
}

static void bad_pinned_gone()
{
    bad_queued_copy(true);
}

static void bad_device_gone()
{
    bad_queued_copy(false);
}

static const std::vector<bad_case> BAD = {
        {"store-past", bad_store_past, "wrote byte 400 of the 400", "use-after-poison"},
        {"store-before", bad_store_before, "wrote byte -4 of the 400", "is outside of every"},
        {"store-far", bad_store_far, "kernel k_bad_store, block (0,0,0), thread (5,0,0)", nullptr},
        {"freed", bad_freed, "is outside of every allocation", nullptr},
        {"host-memory", bad_host_memory, "is no device's memory", nullptr},
        {"device", bad_device, "device 1 touches", nullptr},
        {"host-access", bad_host_access, "the host touches", nullptr},
        {"shared-past", bad_shared_past, "byte 100 of shared memory was written",
         "use-after-poison"},
        {"shared-far", bad_shared_far, "kernel k_bad_shared, block (0,0,0), thread (3,0,0)",
         nullptr},
        {"lane-left", bad_lane_left, "ends, while lane 0 waits for it", nullptr},
        {"shuffle", bad_shuffle, "the warp diverged", nullptr},
        {"two-barriers", bad_two_barriers, "diverged", nullptr},
        {"deadlock", bad_deadlock, "deadlock: 64 of 64 threads", nullptr},
        {"own-lane", bad_own_lane, "is not in its own mask", nullptr},
        {"ended-lane", bad_ended_lane, "names lane 0, which has ended", nullptr},
        {"source-lane", bad_source_lane, "which takes no part", nullptr},
        {"pinned-gone", bad_pinned_gone, "its pinned memory", nullptr},
        {"device-gone", bad_device_gone, "its device memory", nullptr},
        {"copies-left", bad_copies_left, "were never waited for", nullptr},
        {"ldmatrix", bad_ldmatrix, "is not 16-byte aligned", nullptr},
        {"read-of-copy", bad_read_of_copy, "after the cp.async of thread", nullptr},
        {"copy-over-read", bad_copy_over_read, "after the ldmatrix that read", nullptr},
};

static void test_bugs_are_found(void **)
{
    setenv("VGPU_DEVICES", "2", 1); /* for the children */
    setenv("VGPU_ORDER", "forward", 1);
    for (const bad_case &c : BAD)
        check_bad(c);
}

int main(int argc, char **argv)
{
    if (ran_bad(argc, argv, BAD))
        return 0;
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_indices),
            cmocka_unit_test(test_sum),
            cmocka_unit_test(test_copy_async),
            cmocka_unit_test(test_syncwarp),
            cmocka_unit_test(test_mma),
            cmocka_unit_test(test_transpose),
            cmocka_unit_test(test_tf32_rounding),
            cmocka_unit_test(test_warp_operations),
            cmocka_unit_test(test_atomics),
            cmocka_unit_test(test_half),
            cmocka_unit_test(test_bugs_are_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
