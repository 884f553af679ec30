/* SPDX-License-Identifier: Apache-2.0
 *
 * The twins of NCCL and NVML, opened as the product opens the real ones.
 */
#include <dlfcn.h>
#include <fstream>
#include <thread>

#include "tests/vgpu/sample_kernels.h"
#include "tests/vgpu/vgpu_test.h"

enum { FLOAT32 = 7, SUM = 0, IN_PROGRESS = 7, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6 };

struct unique_id {
    char bytes[128];
};

template <class F> static F *symbol(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail_msg("%s", dlerror());
    void *address = dlsym(handle, name);
    assert_non_null(address);
    return reinterpret_cast<F *>(address);
}

template <class F> static F *nccl(const char *name)
{
    return symbol<F>("libnccl.so.2", name);
}

template <class F> static F *nvml(const char *name)
{
    return symbol<F>("libnvidia-ml.so.1", name);
}

static const unsigned N = 1000;

struct rank {
    int index;
    void *comm;
    cudaStream_t s;
    float *in, *out;
};

static int reduce(const rank &r, size_t n = N)
{
    return nccl<int(const void *, void *, size_t, int, int, void *, void *)>("ncclAllReduce")(
            r.in, r.out, n, FLOAT32, SUM, r.comm, r.s);
}

static int gather(const rank &r, size_t n = N)
{
    return nccl<int(const void *, void *, size_t, int, void *, void *)>("ncclAllGather")(
            r.in, r.out, n, FLOAT32, r.comm, r.s);
}

static int async_error(const rank &r)
{
    int error = -1;
    OK(nccl<int(void *, int *)>("ncclCommGetAsyncError")(r.comm, &error));
    return error;
}

/* 'work' by n threads, one a rank, each on its device. */
template <class Work> static void with_ranks(int n, Work work)
{
    unique_id id;
    OK(nccl<int(unique_id *)>("ncclGetUniqueId")(&id));
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++)
        threads.emplace_back([=] {
            rank r = {};
            r.index = i;
            OK(cudaSetDevice(i));
            OK(nccl<int(void **, int, unique_id, int)>("ncclCommInitRank")(&r.comm, n, id, i));
            r.s = new_stream();
            std::vector<float> mine(N);
            for (unsigned k = 0; k < N; k++)
                mine[k] = float(100 * i) + float(k);
            r.in = on_device(mine, r.s);
            r.out = on_device(std::vector<float>(N * unsigned(n)), r.s);
            OK(cudaStreamSynchronize(r.s));
            work(r);
            OK(cudaFree(r.in));
            OK(cudaFree(r.out));
            OK(cudaStreamDestroy(r.s));
        });
    for (std::thread &t : threads)
        t.join();
}

static void destroy(const rank &r)
{
    OK(nccl<int(void *)>("ncclCommDestroy")(r.comm));
}

static void abort_comm(const rank &r)
{
    OK(nccl<int(void *)>("ncclCommAbort")(r.comm));
}

static void test_collectives(void **)
{
    for (int n = 1; n <= 3; n++)
        with_ranks(n, [n](const rank &r) {
            for (int round = 0; round < 3; round++) {
                OK(reduce(r));
                auto sums = on_host(r.out, N, r.s);
                for (unsigned k = 0; k < N; k++)
                    assert_float_equal(sums[k], float(n * (n - 1) / 2 * 100) + float(n) * float(k),
                                       0);
                OK(gather(r));
                auto all = on_host(r.out, N * unsigned(n), r.s);
                for (unsigned k = 0; k < all.size(); k++)
                    assert_float_equal(all[k], float(k / N * 100) + float(k % N), 0);
            }
            assert_int_equal(async_error(r), 0);
            destroy(r);
        });
}

/* In a captured graph, beside kernels. */
static void test_collective_in_graph(void **)
{
    with_ranks(2, [](const rank &r) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(cudaStreamBeginCapture(r.s, cudaStreamCaptureModeThreadLocal));
        OK(launch_on(r.s, 4, 256, 0, k_fill, r.in, float(r.index + 1), N));
        OK(reduce(r));
        OK(launch_on(r.s, 4, 256, 0, k_add_one, r.out, N));
        OK(cudaStreamEndCapture(r.s, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 10; i++)
            OK(cudaGraphLaunch(exec, r.s));
        assert_float_equal(on_host(r.out, N, r.s)[N - 1], 4, 0);
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
        destroy(r);
    });
}

static void test_group_joins_from_one_thread(void **)
{
    auto init = nccl<int(void **, int, unique_id, int)>("ncclCommInitRank");
    auto end = nccl<int()>("ncclGroupEnd");
    unique_id id;
    void *comms[2] = {};
    OK(nccl<int(unique_id *)>("ncclGetUniqueId")(&id));
    assert_int_equal(end(), INVALID_USAGE);
    OK(nccl<int()>("ncclGroupStart")());
    for (int i = 0; i < 2; i++) {
        OK(cudaSetDevice(i));
        OK(init(&comms[i], 2, id, i));
    }
    assert_null(comms[0]);
    OK(end());
    for (void *c : comms)
        OK(nccl<int(void *)>("ncclCommDestroy")(c));
    OK(nccl<int(unique_id *)>("ncclGetUniqueId")(&id));
    OK(nccl<int()>("ncclGroupStart")());
    for (int i = 0; i < 2; i++)
        OK(init(&comms[i], 2, id, i)); /* both on one device */
    assert_int_equal(end(), INVALID_USAGE);
    OK(cudaSetDevice(0));
}

static void test_joining_need_not_block(void **)
{
    struct {
        size_t size;
        unsigned magic, version;
        int blocking;
    } config = {sizeof(config), 0xcafebeef, 0, 0};
    unique_id id;
    rank a = {}, b = {};
    auto init = nccl<int(void **, int, unique_id, int, void *)>("ncclCommInitRankConfig");
    OK(nccl<int(unique_id *)>("ncclGetUniqueId")(&id));
    assert_int_equal(init(&a.comm, 2, id, 0, &config), IN_PROGRESS);
    assert_int_equal(async_error(a), IN_PROGRESS);
    OK(cudaSetDevice(1));
    OK(init(&b.comm, 2, id, 1, &config));
    assert_int_equal(async_error(a), 0);
    OK(cudaSetDevice(0));
    abort_comm(a);
    abort_comm(b);
}

static bool is_nan_everywhere(const rank &r)
{
    for (float f : on_host(r.out, N, r.s))
        if (!isnan(f))
            return false;
    return true;
}

/* Rank 1 brings something else, or nothing. */
static void test_mismatch_and_loss(void **)
{
    for (int kind = 0; kind < 3; kind++)
        with_ranks(2, [kind](const rank &r) {
            int other = r.index == 1 ? kind : -1;
            if (other == 0)
                OK(reduce(r, N / 2));
            else if (other == 1)
                OK(gather(r));
            else if (other != 2)
                OK(reduce(r));
            usleep(30000);
            if (other != 2)
                assert_int_equal(cudaStreamQuery(r.s), cudaErrorNotReady);
            assert_int_equal(async_error(r), kind == 2 ? 0 : INVALID_USAGE);
            usleep(30000); /* both have looked */
            abort_comm(r);
            OK(cudaStreamSynchronize(r.s));
            if (other == -1)
                assert_true(is_nan_everywhere(r));
        });
}

static void lose_rank()
{
    with_ranks(2, [](const rank &r) {
        OK(reduce(r));
        OK(cudaStreamSynchronize(r.s));
        if (reduce(r) == 0) { /* refused, if the other's turn came before */
            usleep(50000);
            assert_int_equal(cudaStreamQuery(r.s), cudaErrorNotReady);
        }
        usleep(50000);
        assert_int_equal(async_error(r), REMOTE);
        usleep(50000);
        abort_comm(r);
        OK(cudaStreamSynchronize(r.s));
    });
    fprintf(stderr, "lost and aborted\n");
}

static void test_scripted_loss(void **)
{
    int status;
    std::string text = run_again("lose", {"VGPU_NCCL_LOSE=1,2,6", "VGPU_DEVICES=2"}, &status);
    if (text.find("lost and aborted") == std::string::npos || status)
        fail_msg("status %d:\n%s", status, text.c_str());
}

static void test_arguments(void **)
{
    with_ranks(2, [](const rank &r) {
        assert_int_equal(reduce(r, N * 2 + 1), INVALID_ARGUMENT); /* past the allocation */
        rank wrong = r;
        std::vector<float> host(N);
        wrong.in = host.data();
        assert_int_equal(reduce(wrong), INVALID_ARGUMENT);
        wrong = r;
        OK(cudaSetDevice(1 - r.index));
        wrong.s = new_stream();
        assert_int_equal(reduce(wrong), INVALID_ARGUMENT);
        OK(cudaStreamDestroy(wrong.s));
        OK(cudaSetDevice(r.index));
        destroy(r);
        assert_int_equal(reduce(r), INVALID_ARGUMENT);
    });
}

/* --- NVML --- */

static std::string script_path;

static void write_script(const char *text)
{
    std::string next = script_path + ".next";
    std::ofstream(next) << text;
    assert_int_equal(rename(next.c_str(), script_path.c_str()), 0);
}

static void test_nvml(void **)
{
    struct {
        unsigned gpu, memory;
    } use;
    struct {
        unsigned long long total, free, used;
    } memory;
    struct {
        void *device;
        unsigned long long type, data;
        unsigned gi, ci;
    } event;
    unsigned n, watts;
    void *gpu, *set;
    char uuid[96];
    write_script("driver none\n");
    assert_int_equal(nvml<int()>("nvmlInit_v2")(), 9);
    write_script("gpus 2 # two\n1.utilization 37\n1.memory_utilization 12\n1.uuid GPU-b\n"
                 "1.memory_used 1048576\n1.power none\nxid 1 13\n");
    OK(nvml<int()>("nvmlInit_v2")());
    OK(nvml<int(unsigned *)>("nvmlDeviceGetCount_v2")(&n));
    assert_int_equal(n, 2);
    assert_int_equal(nvml<int(unsigned, void **)>("nvmlDeviceGetHandleByIndex_v2")(2, &gpu), 2);
    OK(nvml<int(unsigned, void **)>("nvmlDeviceGetHandleByIndex_v2")(1, &gpu));
    OK(nvml<int(void *, void *)>("nvmlDeviceGetUtilizationRates")(gpu, &use));
    assert_int_equal(use.gpu, 37);
    assert_int_equal(use.memory, 12);
    OK(nvml<int(void *, void *)>("nvmlDeviceGetMemoryInfo")(gpu, &memory));
    assert_int_equal(memory.used + memory.free, memory.total);
    OK(nvml<int(void *, char *, unsigned)>("nvmlDeviceGetUUID")(gpu, uuid, sizeof(uuid)));
    assert_string_equal(uuid, "GPU-b");
    assert_int_equal(nvml<int(void *, unsigned *)>("nvmlDeviceGetPowerUsage")(gpu, &watts), 3);

    auto wait = nvml<int(void *, void *, unsigned)>("nvmlEventSetWait_v2");
    OK(nvml<int(void **)>("nvmlEventSetCreate")(&set));
    OK(nvml<int(void *, unsigned long long, void *)>("nvmlDeviceRegisterEvents")(gpu, 8, set));
    assert_int_equal(wait(set, &event, 30), 10); /* Xid 13 was before */
    write_script("gpus 2\n1.utilization 99\nxid 1 13\nxid 0 31\nxid 1 79\n");
    OK(nvml<int(void *, void *)>("nvmlDeviceGetUtilizationRates")(gpu, &use));
    assert_int_equal(use.gpu, 99);
    OK(wait(set, &event, 1000)); /* GPU 0 is not watched */
    assert_int_equal(event.data, 79);
    assert_ptr_equal(event.device, gpu);
    assert_int_equal(wait(set, &event, 0), 10);
    OK(nvml<int(void *)>("nvmlEventSetFree")(set));
    write_script("gpus 2\n1.lost 1\n");
    assert_int_equal(nvml<int(void *, void *)>("nvmlDeviceGetUtilizationRates")(gpu, &use), 15);
    assert_string_equal(nvml<const char *(int)>("nvmlErrorString")(15), "GPU is lost");
    OK(nvml<int()>("nvmlShutdown")());
}

static const std::vector<bad_case> CHILDREN = {{"lose", lose_rank, nullptr, nullptr}};

int main(int argc, char **argv)
{
    if (ran_bad(argc, argv, CHILDREN))
        return 0;
    if (!getenv("VGPU_DEVICES")) { /* read before main(): start over with it */
        setenv("VGPU_DEVICES", "3", 1);
        execv("/proc/self/exe", argv);
    }
    char folder[] = "/tmp/vgpu_nvml.XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    script_path = std::string(folder) + "/script";
    setenv("VGPU_NVML", script_path.c_str(), 1);
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_collectives),
            cmocka_unit_test(test_collective_in_graph),
            cmocka_unit_test(test_group_joins_from_one_thread),
            cmocka_unit_test(test_joining_need_not_block),
            cmocka_unit_test(test_mismatch_and_loss),
            cmocka_unit_test(test_scripted_loss),
            cmocka_unit_test(test_arguments),
            cmocka_unit_test(test_nvml),
    };
    int n_failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    unlink(script_path.c_str());
    rmdir(folder);
    return n_failed;
}
