/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, copies, graphs, limits and injected errors of the virtual GPU.
 */
#include <atomic>
#include <thread>

#include "tests/vgpu/sample_kernels.h"
#include "tests/vgpu/vgpu_test.h"

static const unsigned N = 4096;

static cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming)
{
    cudaEvent_t e;
    OK(cudaEventCreateWithFlags(&e, flags));
    return e;
}

static cudaError_t fill(cudaStream_t s, float *p, float value)
{
    return launch_on(s, N / 256, 256, 0, k_fill, p, value, N);
}

static cudaError_t add_one(cudaStream_t s, float *p)
{
    return launch_on(s, N / 256, 256, 0, k_add_one, p, N);
}

static float *new_floats()
{
    float *p;
    OK(cudaMalloc(&p, N * sizeof(float)));
    return p;
}

static vgpu_counts counts()
{
    vgpu_counts c;
    vgpu_stats(&c);
    return c;
}

/* One stream fills, another adds one: with the event always in this order, without it at least
 * once not. */
static bool in_order(bool with_event, unsigned seed)
{
    vgpu_seed(seed);
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = new_event();
    float *p = new_floats();
    OK(fill(a, p, 1));
    OK(fill(a, p, 2));
    OK(cudaEventRecord(e, a));
    if (with_event)
        OK(cudaStreamWaitEvent(b, e, 0));
    OK(add_one(b, p));
    OK(cudaStreamSynchronize(a));
    OK(cudaStreamSynchronize(b));
    bool right = on_host(p, 1, a)[0] == 3.0f;
    OK(cudaFree(p));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    return right;
}

static void test_order_of_streams(void **)
{
    unsigned n_wrong = 0;
    for (unsigned seed = 1; seed <= 30; seed++) {
        assert_true(in_order(true, seed));
        n_wrong += !in_order(false, seed);
    }
    assert_true(n_wrong > 0);
    vgpu_seed(1);
}

static void test_pinned_memory_is_read_late(void **)
{
    cudaStream_t s = new_stream();
    float *p = new_floats(), *pinned, pageable = 1;
    OK(cudaMallocHost(&pinned, sizeof(float)));
    vgpu_hang_kernel("k_fill"); /* the stream stands still */
    OK(fill(s, p, 0));
    *pinned = 1;
    OK(cudaMemcpyAsync(p, pinned, sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(p + 1, &pageable, sizeof(float), cudaMemcpyHostToDevice, s));
    *pinned = pageable = 2;
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    vgpu_hang_kernel(nullptr);
    auto got = on_host(p, 2, s);
    assert_float_equal(got[0], 2, 0); /* what it is when the copy runs */
    assert_float_equal(got[1], 1, 0); /* what it was at the call */
    OK(cudaStreamQuery(s));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
}

static void test_events(void **)
{
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event(cudaEventDefault), f = new_event(cudaEventDefault), g = new_event();
    float *p = new_floats(), ms = -1;
    OK(cudaEventQuery(e)); /* never recorded: nothing to wait for */
    OK(cudaStreamWaitEvent(s, e, 0));
    OK(cudaEventRecord(e, s));
    vgpu_hang_kernel("k_fill");
    OK(fill(s, p, 0));
    OK(cudaEventRecord(f, s));
    assert_int_equal(cudaEventQuery(f), cudaErrorNotReady);
    assert_int_equal(cudaEventElapsedTime(&ms, e, f), cudaErrorNotReady);
    vgpu_hang_kernel(nullptr);
    OK(cudaEventSynchronize(f));
    OK(cudaEventElapsedTime(&ms, e, f));
    assert_true(ms > 0);
    OK(cudaEventRecord(g, s));
    OK(cudaEventSynchronize(g));
    assert_int_equal(cudaEventElapsedTime(&ms, e, g), cudaErrorInvalidResourceHandle);
    for (cudaEvent_t each : {e, f, g})
        OK(cudaEventDestroy(each));
    assert_int_equal(cudaEventRecord(e, s), cudaErrorInvalidResourceHandle);
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamSynchronize(nullptr), cudaErrorInvalidResourceHandle);
}

/* a: fill 5 -> (event) -> b: += 1, a: other += 1 -> join -> a: += 1.  The argument of the fill is
 * kept by the graph. */
static cudaGraph_t capture_fork(cudaStream_t a, cudaStream_t b, float *p, float *other, bool join)
{
    cudaEvent_t fork = new_event(), done = new_event();
    cudaGraph_t graph = nullptr;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(fill(a, p, 5));
    OK(cudaMemsetAsync(other, 0, N * sizeof(float), a));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(add_one(b, p));
    OK(cudaEventRecord(done, b));
    OK(add_one(a, other));
    if (join)
        OK(cudaStreamWaitEvent(a, done, 0));
    OK(add_one(a, p));
    cudaError_t end = cudaStreamEndCapture(a, &graph);
    assert_int_equal(end, join ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    assert_int_equal(graph != nullptr, join);
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(done));
    return graph;
}

static void test_graph(void **)
{
    cudaStream_t a = new_stream(), b = new_stream();
    float *p = new_floats(), *other = new_floats();
    OK(fill(a, p, 0));
    OK(cudaStreamSynchronize(a));
    uint64_t before = counts().n_launches;
    cudaGraph_t graph = capture_fork(a, b, p, other, true);
    OK(cudaStreamSynchronize(a));
    assert_float_equal(on_host(p, 1, a)[0], 0, 0); /* capturing runs nothing */
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 5; i++) {
        OK(fill(a, p, -1));
        OK(cudaGraphLaunch(exec, a));
        auto got = on_host(p, N, a);
        assert_float_equal(got[0], 7, 0);
        assert_float_equal(got[N - 1], 7, 0);
        assert_float_equal(on_host(other, 1, a)[0], 1, 0);
    }
    assert_int_equal(counts().n_launches - before, 5 * (1 + 4));
    OK(cudaGraphExecDestroy(exec));
    assert_int_equal(cudaGraphLaunch(exec, a), cudaErrorInvalidValue);
    capture_fork(a, b, p, other, false);
    OK(add_one(b, p)); /* b takes no part any more */
    OK(cudaStreamSynchronize(b));
    OK(cudaFree(p));
    OK(cudaFree(other));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

/* A captured fork without an edge between its halves runs them in both orders. */
static void test_replay_order_varies(void **)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event(), done = new_event();
    float *p = new_floats();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(fill(a, p, 1));
    OK(fill(b, p, 2));
    OK(cudaEventRecord(done, b));
    OK(cudaStreamWaitEvent(a, done, 0));
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    bool seen[3] = {};
    for (int i = 0; i < 40; i++) {
        OK(cudaGraphLaunch(exec, a));
        seen[int(on_host(p, 1, a)[0])] = true;
    }
    assert_true(seen[1] && seen[2]);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    for (cudaEvent_t e : {fork, done})
        OK(cudaEventDestroy(e));
    OK(cudaFree(p));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

struct capture_fixture {
    cudaStream_t s = new_stream(), outside = new_stream();
    cudaEvent_t captured = new_event(), uncaptured = new_event();
    float *p = new_floats(), host[4];
};

/* What each of these calls returns during a capture, and that it spoils it. */
static void test_forbidden_in_capture(void **)
{
    struct {
        const char *name;
        cudaError_t want;
        cudaError_t (*call)(capture_fixture &);
    } cases[] = {
            {"malloc", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &) {
                 void *p;
                 return cudaMalloc(&p, 8);
             }},
            {"free", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) { return cudaFree(f.p); }},
            {"synchronize", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) { return cudaStreamSynchronize(f.s); }},
            {"synchronize another", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) { return cudaStreamSynchronize(f.outside); }},
            {"query", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) { return cudaStreamQuery(f.s); }},
            {"event query", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) { return cudaEventQuery(f.captured); }},
            {"pageable", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) {
                 return cudaMemcpyAsync(f.p, f.host, 4, cudaMemcpyHostToDevice, f.s);
             }},
            {"isolation", cudaErrorStreamCaptureIsolation,
             [](capture_fixture &f) { return cudaStreamWaitEvent(f.s, f.uncaptured, 0); }},
            {"second begin", cudaErrorStreamCaptureUnsupported,
             [](capture_fixture &f) {
                 return cudaStreamBeginCapture(f.s, cudaStreamCaptureModeGlobal);
             }},
    };
    for (auto &c : cases) {
        capture_fixture f;
        cudaGraph_t graph;
        OK(cudaEventRecord(f.uncaptured, f.outside));
        OK(cudaStreamBeginCapture(f.s, cudaStreamCaptureModeGlobal));
        OK(fill(f.s, f.p, 1));
        OK(cudaEventRecord(f.captured, f.s));
        cudaError_t got = c.call(f);
        if (got != c.want)
            fail_msg("%s: %s, want %s", c.name, cudaGetErrorName(got), cudaGetErrorName(c.want));
        assert_int_equal(cudaGetLastError(), c.want);
        assert_int_equal(fill(f.s, f.p, 1), cudaErrorStreamCaptureInvalidated);
        assert_int_equal(cudaStreamEndCapture(f.s, &graph), cudaErrorStreamCaptureInvalidated);
        OK(fill(f.s, f.p, 1)); /* an ordinary stream again */
        OK(cudaStreamSynchronize(f.s));
        OK(cudaFree(f.p));
        for (cudaStream_t s : {f.s, f.outside})
            OK(cudaStreamDestroy(s));
        for (cudaEvent_t e : {f.captured, f.uncaptured})
            OK(cudaEventDestroy(e));
    }
}

static void test_capture_modes(void **)
{
    const struct {
        cudaStreamCaptureMode mode;
        cudaError_t here, elsewhere, end_elsewhere;
    } cases[] = {
            {cudaStreamCaptureModeGlobal, cudaErrorStreamCaptureUnsupported,
             cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureWrongThread},
            {cudaStreamCaptureModeThreadLocal, cudaErrorStreamCaptureUnsupported, cudaSuccess,
             cudaErrorStreamCaptureWrongThread},
            {cudaStreamCaptureModeRelaxed, cudaSuccess, cudaSuccess, cudaSuccess},
    };
    for (auto &c : cases) {
        cudaStream_t s = new_stream();
        cudaGraph_t graph = nullptr;
        void *p = nullptr;
        auto allocate = [&] {
            cudaError_t e = cudaMalloc(&p, 8);
            if (!e)
                OK(cudaFree(p));
            return e;
        };
        cudaError_t elsewhere, end_elsewhere;
        OK(cudaStreamBeginCapture(s, c.mode));
        std::thread([&] { elsewhere = allocate(); }).join();
        std::thread([&] { end_elsewhere = cudaStreamEndCapture(s, &graph); }).join();
        assert_int_equal(elsewhere, c.elsewhere);
        assert_int_equal(end_elsewhere, c.end_elsewhere);
        if (end_elsewhere) {
            assert_int_equal(allocate(), c.here);
            assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
        } else {
            OK(cudaGraphDestroy(graph));
        }
        OK(cudaStreamDestroy(s));
    }
}

static void test_memory_limit(void **)
{
    size_t free_bytes, total;
    void *a, *b;
    vgpu_memory(1 << 20);
    OK(cudaMalloc(&a, 1 << 19));
    assert_int_equal(reinterpret_cast<uintptr_t>(a) % 256, 0);
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 1 << 19);
    assert_int_equal(total, 1 << 20);
    assert_int_equal(cudaMalloc(&b, (1 << 19) + 1), cudaErrorMemoryAllocation);
    assert_null(b);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    OK(cudaMalloc(&b, 1 << 19));
    OK(cudaFree(a));
    OK(cudaFree(b));
    assert_int_equal(cudaFree(a), cudaErrorInvalidValue);
    vgpu_memory(512 << 20);
}

static void test_launch_checks(void **)
{
    cudaStream_t s = new_stream();
    float *p = new_floats();
    auto launch = [&](dim3 grid, dim3 block, size_t shared) {
        return launch_on(s, grid, block, shared, k_fill, p, 0.0f, N);
    };
    assert_int_equal(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch(0, 32, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
    OK(launch(1, 32, 48 << 10));
    assert_int_equal(launch(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(k_fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
    OK(launch(1, 32, 227 << 10));
    assert_int_equal(launch(1, 32, (227 << 10) + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetAttribute(k_fill, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (227 << 10) + 1),
                     cudaErrorInvalidValue);
    void (*none)(float *) = nullptr;
    assert_int_equal(launch_on(s, 1, 32, 0, none, p), cudaErrorInvalidDeviceFunction);
    assert_int_equal(launch_on(nullptr, 1, 32, 0, k_fill, p, 0.0f, N),
                     cudaErrorInvalidResourceHandle);
    OK(cudaStreamSynchronize(s));
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
}

static void test_copy_checks(void **)
{
    cudaStream_t s = new_stream();
    float *p = new_floats(), host[2];
    assert_int_equal(cudaMemcpyAsync(p + N - 1, host, 8, cudaMemcpyHostToDevice, s),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(p, host, 8, cudaMemcpyDeviceToHost, s), cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(p + 1, 0, N * sizeof(float), s), cudaErrorInvalidValue);
    OK(cudaMemcpyAsync(p, host, 0, cudaMemcpyDefault, s));
    std::vector<float> got = on_host(p, 2, s);
    assert_int_equal(vgpu::bits<unsigned>(got[0]), 0xffffffffu); /* fresh memory is all ones */
    OK(cudaFree(p));
    OK(cudaStreamDestroy(s));
}

/* All of one small program; the first error ends it, and what was made is given back. */
static cudaError_t small_program()
{
    cudaStream_t s = nullptr;
    float *p = nullptr, *pinned = nullptr;
    cudaEvent_t e = nullptr;
    cudaError_t r = cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    if (!r)
        r = cudaMalloc(&p, N * sizeof(float));
    if (!r)
        r = cudaMallocHost(&pinned, N * sizeof(float));
    if (!r)
        r = cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    if (!r)
        r = fill(s, p, 3);
    if (!r)
        r = cudaMemcpyAsync(pinned, p, N * sizeof(float), cudaMemcpyDeviceToHost, s);
    if (!r)
        r = cudaEventRecord(e, s);
    if (!r)
        r = cudaStreamSynchronize(s);
    if (!r && pinned[N - 1] != 3)
        r = cudaErrorUnknown;
    cudaError_t ends[] = {s ? cudaStreamSynchronize(s) : cudaSuccess,
                          e ? cudaEventDestroy(e) : cudaSuccess,
                          pinned ? cudaFreeHost(pinned) : cudaSuccess,
                          p ? cudaFree(p) : cudaSuccess, s ? cudaStreamDestroy(s) : cudaSuccess};
    for (cudaError_t end : ends)
        r = r ? r : end;
    return r;
}

static void check_nothing_alive()
{
    vgpu_counts c = counts();
    assert_int_equal(c.n_allocations + c.n_pinned + c.n_streams + c.n_events + c.n_graphs +
                             c.n_execs + c.device_bytes,
                     0);
}

static void test_each_call_fails(void **)
{
    unsigned n = 1;
    for (; n < 100; n++) {
        vgpu_fail_call(n, cudaErrorUnknown);
        cudaError_t r = small_program();
        check_nothing_alive();
        if (!r)
            break;
        assert_int_equal(r, cudaErrorUnknown);
    }
    assert_int_equal(n, 14); /* 13 calls */
    vgpu_fail_call(0, 0);
    for (n = 1; n <= 2; n++) {
        vgpu_fail_malloc(n);
        assert_int_equal(small_program(), cudaErrorMemoryAllocation);
        check_nothing_alive();
    }
    OK(small_program());
}

/* The stages of a fault, in a child: this device is not to be used again. */
static void fault_stays()
{
    cudaStream_t s = new_stream();
    float *p = new_floats();
    vgpu_fault_launch(2, cudaErrorECCUncorrectable);
    OK(fill(s, p, 1));
    OK(cudaStreamSynchronize(s));
    OK(fill(s, p, 2)); /* asynchronous: nobody knows yet */
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorECCUncorrectable);
    assert_int_equal(fill(s, p, 3), cudaErrorECCUncorrectable);
    assert_int_equal(cudaStreamQuery(s), cudaErrorECCUncorrectable);
    void *more;
    assert_int_equal(cudaMalloc(&more, 8), cudaErrorECCUncorrectable);
    assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable);
    assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable); /* it does not go away */
    assert_int_equal(cudaFree(p), cudaErrorECCUncorrectable);
    assert_int_equal(cudaStreamDestroy(s), cudaErrorECCUncorrectable);
    check_nothing_alive();
    int device;
    assert_int_equal(cudaSetDevice(1), cudaSuccess); /* the other one works */
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    OK(small_program());
    fprintf(stderr, "fault stayed\n");
}

static void fault_ends_a_hang()
{
    cudaStream_t s = new_stream();
    float *p = new_floats();
    vgpu_hang_kernel("k_add");
    OK(add_one(s, p));
    usleep(20000);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    vgpu_fault(0, cudaErrorLaunchTimeout);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorLaunchTimeout);
    fprintf(stderr, "hang ended\n");
}

static void driver_answers()
{
    int n = -1, version = -1;
    void *p;
    cudaError_t e = cudaGetDeviceCount(&n), m = cudaMalloc(&p, 8);
    OK(cudaDriverGetVersion(&version));
    fprintf(stderr, "count %d %s, driver %d, malloc %s\n", n, cudaGetErrorName(e), version,
            cudaGetErrorName(m));
}

static const std::vector<bad_case> CHILDREN = {{"fault", fault_stays, "fault stayed", nullptr},
                                               {"hang", fault_ends_a_hang, "hang ended", nullptr},
                                               {"driver", driver_answers, nullptr, nullptr}};

static void check_child(const char *name, const std::vector<std::string> &settings,
                        const char *want)
{
    int status;
    std::string text = run_again(name, settings, &status);
    if (text.find(want) == std::string::npos || !WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("%s: status %d, want '%s' in:\n%s", name, status, want, text.c_str());
}

static void test_faults(void **)
{
    check_child("fault", {"VGPU_DEVICES=2"}, "fault stayed");
    check_child("hang", {}, "hang ended");
}

static void test_driver(void **)
{
    check_child("driver", {"VGPU_DRIVER=0"},
                "cudaErrorInsufficientDriver, driver 0, malloc cudaErrorInsufficientDriver");
    check_child("driver", {"VGPU_DRIVER=12040"}, "cudaErrorInsufficientDriver, driver 12040");
    check_child("driver", {"VGPU_DEVICES=0"},
                "count 0 cudaErrorNoDevice, driver 13000, malloc cudaErrorNoDevice");
    check_child("driver", {"VGPU_DEVICES=8"},
                "count 8 cudaSuccess, driver 13000, malloc cudaSuccess");
    check_child("driver", {"VGPU_FAIL_CALL=2", "VGPU_FAIL_CODE=46"},
                "malloc cudaErrorDevicesUnavailable");
}

static void test_properties(void **)
{
    cudaDeviceProp prop;
    int value;
    OK(cudaGetDeviceProperties(&prop, 0));
    assert_int_equal(prop.major, 9);
    assert_int_equal(prop.multiProcessorCount, 4);
    assert_int_equal(prop.totalGlobalMem, 512 << 20);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    assert_int_equal(value, 227 << 10);
    assert_int_equal(cudaGetDeviceProperties(&prop, 1), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    assert_string_equal(cudaGetErrorName(cudaErrorStreamCaptureUnsupported),
                        "cudaErrorStreamCaptureUnsupported");
    assert_string_equal(cudaGetErrorString(cudaErrorNotReady), "device not ready");
}

static int at_end(void **)
{
    check_nothing_alive();
    return 0;
}

int main(int argc, char **argv)
{
    if (ran_bad(argc, argv, CHILDREN))
        return 0;
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_properties),
            cmocka_unit_test(test_order_of_streams),
            cmocka_unit_test(test_pinned_memory_is_read_late),
            cmocka_unit_test(test_events),
            cmocka_unit_test(test_graph),
            cmocka_unit_test(test_replay_order_varies),
            cmocka_unit_test(test_forbidden_in_capture),
            cmocka_unit_test(test_capture_modes),
            cmocka_unit_test(test_memory_limit),
            cmocka_unit_test(test_launch_checks),
            cmocka_unit_test(test_copy_checks),
            cmocka_unit_test(test_each_call_fails),
            cmocka_unit_test(test_faults),
            cmocka_unit_test(test_driver),
    };
    return cmocka_run_group_tests(tests, nullptr, at_end);
}
