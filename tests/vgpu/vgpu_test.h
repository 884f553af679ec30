/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the virtual GPU's tests share.  A bug that ends the program is shown by running the test
 * binary again as `TEST --bad NAME` and looking at its report: a fork alone would share the
 * devices' processes. */

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "cuda_runtime.h"
#include "tests/vgpu/vgpu.h"

#define OK(call) assert_int_equal(call, cudaSuccess)

struct bad_case {
    const char *name;
    void (*run)();
    const char *report; /* what stderr must say; under AddressSanitizer another text may stand */
    const char *asan_report;
};

inline cudaStream_t new_stream()
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

template <class... P, class... A>
cudaError_t launch_on(cudaStream_t s, dim3 grid, dim3 block, size_t shared, void (*kernel)(P...),
                      A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = s;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

template <class T> T *on_device(const std::vector<T> &values, cudaStream_t s)
{
    T *p;
    OK(cudaMalloc(&p, values.size() * sizeof(T)));
    OK(cudaMemcpyAsync(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, s));
    return p;
}

template <class T> std::vector<T> on_host(const T *p, size_t n, cudaStream_t s)
{
    std::vector<T> values(n);
    OK(cudaMemcpyAsync(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return values;
}

/* The program's output, and its wait status. */
inline std::string run_again(const char *bad, const std::vector<std::string> &settings,
                             int *ret_status)
{
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 2);
        dup2(out[1], 1);
        close(out[0]);
        close(out[1]);
        for (const std::string &s : settings)
            putenv(strdup(s.c_str()));
        alarm(30);
        execl("/proc/self/exe", "test", "--bad", bad, nullptr);
        _exit(126);
    }
    close(out[1]);
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = read(out[0], piece, sizeof(piece))) > 0;)
        text.append(piece, size_t(n));
    close(out[0]);
    assert_int_equal(waitpid(child, ret_status, 0), child);
    return text;
}

inline void check_bad(const bad_case &c)
{
#ifdef __SANITIZE_ADDRESS__
    const char *report = c.asan_report ? c.asan_report : c.report;
#else
    const char *report = c.report;
#endif
    int status;
    std::string text = run_again(c.name, {}, &status);
    bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended_well || text.find(report) == std::string::npos)
        fail_msg("%s: status %d, want '%s' in:\n%s", c.name, status, report, text.c_str());
}

/* main() of a test with bad cases: true when it was asked for one, which has been run. */
inline bool ran_bad(int argc, char **argv, const std::vector<bad_case> &cases)
{
    if (argc != 3 || strcmp(argv[1], "--bad"))
        return false;
    for (const bad_case &c : cases)
        if (!strcmp(c.name, argv[2]))
            c.run();
    return true;
}
