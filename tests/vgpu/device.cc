/* SPDX-License-Identifier: Apache-2.0
 *
 * device.cc - each device is a process.
 *
 * Why processes: what one device must not touch is then simply not there.  Each device's memory is
 * a file in RAM (memfd), mapped at one and the same address everywhere: in the host's process with
 * no rights at all, in its own device's process with rights for the pieces that are allocated, in
 * the other devices' with none.  A host thread that follows a device pointer faults, always; so
 * does a kernel that follows another device's pointer, or a host pointer that was made after the
 * start.  (Rights toggled around each kernel in one process would leave the door open to the other
 * threads for as long as a kernel runs.)  The host's streams copy through a second mapping.
 *
 * The processes are forked before main() by a constructor: one thread, no locks held, and code at
 * the same addresses, so that a kernel is called by its pointer.  They read jobs from a struct in
 * shared memory: a kernel launch (its blocks are dealt out to VGPU_THREADS threads, several
 * launches side by side) or a change of rights.  They end when the host's end of a pipe closes,
 * whatever ended the host.
 *
 * A bug found in a kernel ends the device's process after the report; the host sees it and aborts:
 * a test with such a bug fails whatever it goes on to check.
 *
 * Pieces are placed on pages of their own, with an untouchable page after each, and never twice at
 * one address.  Under AddressSanitizer a piece starts on a page and the rest of its last page is
 * poisoned: the first byte past the end is reported.  Else it ends on a page, as near as its
 * alignment of 256 allows; the rest of its pages is filled and looked at after each launch.
 */
#include "device.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "sanitizer.h"

namespace vgpu
{
namespace
{
constexpr size_t PAGE = 4096, ALIGN = 256, REGION_BYTES = size_t(1) << 40;
constexpr unsigned char SLACK = 0xc5;
constexpr unsigned N_JOBS = 8;

enum class job_is { absent, open, done };
enum class job_kind { kernel, allow, forbid };

struct job {
    job_is is;
    job_kind kind;
    unsigned n_parts, n_given, n_done; /* a kernel's parts are its blocks */
    unsigned char *at;                 /* allow, forbid: the piece */
    size_t size;
    kernel_call call;
};

/* Between the host and one device. */
struct channel {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool is_dead;
    job jobs[N_JOBS];
};

struct device {
    channel *link;
    int file; /* memfd */
    unsigned char *region, *alias;
    pid_t process;
    int lifeline; /* its closing ends the process */
    std::mutex lock;
    size_t used;                              /* of the region */
    std::map<unsigned char *, size_t> pieces; /* host's side */
};

device *devices;            /* never freed: threads outlive main() */
int n_all, own_device = -1; /* own: in a device's process, which */
std::atomic<bool> is_ending;
struct sigaction fault_before;

[[noreturn]] void cannot_start(const char *what)
{
    fprintf(stderr, "vgpu: %s: %s\n", what, strerror(errno));
    abort();
}

unsigned setting(const char *name, unsigned standard, unsigned most)
{
    const char *text = getenv(name);
    char *end = nullptr;
    unsigned long value = text ? strtoul(text, &end, 10) : standard;
    if (text && (end == text || *end || value > most)) {
        fprintf(stderr, "vgpu: %s: '%s' is not 0..%u\n", name, text, most);
        abort();
    }
    return unsigned(value);
}

unsigned char *page_of(unsigned char *p)
{
    return p - reinterpret_cast<uintptr_t>(p) % PAGE;
}

size_t pages(size_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

/* false: the device's process is no more */
bool lock_channel(channel *c)
{
    return pthread_mutex_lock(&c->lock) != EOWNERDEAD && !c->is_dead;
}

/* --- in a device's process --- */

void change_rights(const job &j)
{
    unsigned char *start = page_of(j.at);
    size_t all = pages(size_t(j.at - start) + j.size);
    bool allow = j.kind == job_kind::allow;
    if (mprotect(start, all, allow ? PROT_READ | PROT_WRITE : PROT_NONE))
        cannot_start("mprotect");
    unpoison(start, all);
    if (allow)
        poison(j.at + j.size, size_t(start + all - (j.at + j.size)));
}

/* A job with a part that nobody has; over all jobs in turn, so that launches run side by side. */
job *next_job(channel *c, unsigned turn)
{
    for (unsigned i = 0; i < N_JOBS; i++) {
        job &j = c->jobs[(turn + i) % N_JOBS];
        if (j.is == job_is::open && j.n_given < j.n_parts)
            return &j;
    }
    return nullptr;
}

/* Which block is the n-th to run: each exactly once, in an order of the launch's kind. */
unsigned block_of(const job &j, unsigned n)
{
    if (j.call.in_order == order::forward)
        return n;
    if (j.call.in_order == order::reverse)
        return j.n_parts - 1 - n;
    uint64_t step = (mix(j.call.seed) % j.n_parts) | 1;
    while (std::__gcd(step, uint64_t(j.n_parts)) != 1)
        step += 2;
    return unsigned((n * step + j.call.seed) % j.n_parts);
}

void work(channel *c)
{
    pthread_mutex_lock(&c->lock);
    for (unsigned turn = 0;; turn++) {
        job *j = next_job(c, turn);
        if (!j) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        unsigned n = j->n_given++;
        pthread_mutex_unlock(&c->lock);
        if (j->kind == job_kind::kernel)
            run_block(j->call, block_of(*j, n));
        else
            change_rights(*j);
        pthread_mutex_lock(&c->lock);
        if (++j->n_done == j->n_parts) {
            j->is = job_is::done;
            pthread_cond_broadcast(&c->done);
        }
    }
}

void mark_dead()
{
    channel *c = devices[own_device].link;
    c->is_dead = true;
    pthread_cond_broadcast(&c->done);
}

void sanitizer_report()
{
    print_position("the report above is from here");
    mark_dead();
}

[[noreturn]] void device_main(int d, int lifeline)
{
    own_device = d;
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
        ::signal(signal, SIG_IGN); /* meant for the host, whose end ends us */
    for (int i = 0; i < n_all; i++)
        munmap(devices[i].alias, REGION_BYTES);
    at_death(sanitizer_report);
    for (unsigned n = setting("VGPU_THREADS", 2, 64); n > 0; n--)
        std::thread(work, devices[d].link).detach();
    char byte;
    while (read(lifeline, &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* --- in the host's process --- */

void init_channel(channel *c)
{
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&c->lock, &mutex);
    pthread_condattr_t cond;
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
    pthread_cond_init(&c->work, &cond);
    pthread_cond_init(&c->done, &cond);
}

void map_device(device &d)
{
    d.file = memfd_create("vgpu", MFD_CLOEXEC);
    if (d.file < 0 || ftruncate(d.file, off_t(REGION_BYTES)))
        cannot_start("memfd");
    void *link = mmap(nullptr, sizeof(channel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
    void *region = mmap(nullptr, REGION_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, d.file, 0);
    void *alias = mmap(nullptr, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                       d.file, 0);
    if (link == MAP_FAILED || region == MAP_FAILED || alias == MAP_FAILED)
        cannot_start("device memory");
    d.link = static_cast<channel *>(link);
    d.used = PAGE; /* the first one is untouchable, like all between two pieces */
    d.region = static_cast<unsigned char *>(region);
    d.alias = static_cast<unsigned char *>(alias);
    init_channel(d.link);
}

void start_process(int d)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        cannot_start("pipe");
    pid_t process = fork();
    if (process < 0)
        cannot_start("fork");
    if (process == 0) {
        close(ends[1]);
        for (int i = 0; i < d; i++)
            close(devices[i].lifeline);
        device_main(d, ends[0]);
    }
    close(ends[0]);
    devices[d].process = process;
    devices[d].lifeline = ends[1];
}

void on_fault(int signal, siginfo_t *info, void *)
{
    char what[200];
    int owner = memory_device(info->si_addr);
    if (owner < 0)
        snprintf(what, sizeof(what), "%p is no device's memory", info->si_addr);
    else if (own_device < 0)
        snprintf(what, sizeof(what), "the host touches %p, device %d's memory", info->si_addr,
                 owner);
    else if (owner != own_device)
        snprintf(what, sizeof(what), "device %d touches %p, device %d's memory", own_device,
                 info->si_addr, owner);
    else
        snprintf(what, sizeof(what), "%p is outside of every allocation", info->si_addr);
    if (!print_position(what) && owner >= 0)
        fprintf(stderr, "vgpu: %s\n", what);
    if (own_device >= 0 && !HAS_ASAN)
        mark_dead();
    sigaction(signal, &fault_before, nullptr); /* returning faults again, as without us */
}

__attribute__((constructor)) void start_devices()
{
    n_all = int(setting("VGPU_DEVICES", 1, DEVICES_MAX));
    struct sigaction fault = {};
    fault.sa_sigaction = on_fault;
    fault.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &fault, &fault_before);
    devices = new device[DEVICES_MAX]();
    for (int i = 0; i < n_all; i++)
        map_device(devices[i]);
    for (int i = 0; i < n_all; i++)
        start_process(i);
}

/* A program that ends by exit() takes its devices along; streams may still be at work. */
__attribute__((destructor)) void end_devices()
{
    if (own_device >= 0)
        return;
    is_ending = true;
    for (int i = 0; i < n_all; i++) {
        close(devices[i].lifeline);
        waitpid(devices[i].process, nullptr, 0);
    }
}

[[noreturn]] void device_lost(int d)
{
    while (is_ending)
        pause();
    for (const job &j : devices[d].link->jobs)
        if (j.is == job_is::open && j.kind == job_kind::kernel)
            fprintf(stderr, "vgpu: device %d ended while it ran %s\n", d, j.call.name);
    fprintf(stderr, "vgpu: device %d has stopped; the report is above\n", d);
    abort();
}

/* Give a job to the device and wait until it is done. */
template <class Fill> void do_job(int d, Fill fill)
{
    channel *c = devices[d].link;
    job *mine = nullptr;
    if (!lock_channel(c))
        device_lost(d);
    auto wait = [&] {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 200000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        int r = pthread_cond_timedwait(&c->done, &c->lock, &until);
        siginfo_t info = {};
        if (c->is_dead || r == EOWNERDEAD ||
            (r == ETIMEDOUT &&
             waitid(P_PID, id_t(devices[d].process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid))
            device_lost(d);
    };
    for (;;) {
        for (job &j : c->jobs)
            if (j.is == job_is::absent)
                mine = &j;
        if (mine)
            break;
        wait();
    }
    mine->n_parts = 1;
    mine->n_given = mine->n_done = 0;
    fill(*mine);
    mine->is = job_is::open;
    pthread_cond_broadcast(&c->work);
    while (mine->is != job_is::done)
        wait();
    mine->is = job_is::absent;
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->lock);
}

/* What a piece leaves of its pages, before and after it, where nobody may write. */
template <class Each> void each_slack_byte(unsigned char *p, size_t size, Each each)
{
    unsigned char *start = page_of(p), *end = start + pages(size_t(p - start) + size);
    for (unsigned char *at = start; at < p; at++)
        each(static_cast<unsigned char *>(memory_alias(at)), at);
    for (unsigned char *at = p + size; at < end; at++)
        each(static_cast<unsigned char *>(memory_alias(at)), at);
}

void check_slack(device &d, const char *kernel)
{
    if (HAS_ASAN)
        return;
    std::lock_guard<std::mutex> hold(d.lock);
    for (const auto &[p, size] : d.pieces)
        each_slack_byte(p, size, [&, p = p, size = size](unsigned char *alias, unsigned char *at) {
            if (*alias == SLACK)
                return;
            fprintf(stderr, "vgpu: kernel %s, or one beside it, wrote byte %td of the %zu at %p\n",
                    kernel, at - p, size, static_cast<void *>(p));
            abort();
        });
}
} // namespace

int n_devices()
{
    return n_all;
}

int memory_device(const void *p)
{
    auto at = static_cast<const unsigned char *>(p);
    for (int i = 0; i < n_all; i++)
        if (at >= devices[i].region && at < devices[i].region + REGION_BYTES)
            return i;
    return -1;
}

void *memory_alias(const void *p)
{
    const device &d = devices[memory_device(p)];
    return d.alias + (static_cast<const unsigned char *>(p) - d.region);
}

void *memory_place(int device_id, size_t size)
{
    device &d = devices[device_id];
    std::lock_guard<std::mutex> hold(d.lock);
    size_t rounded = (size + ALIGN - 1) / ALIGN * ALIGN, all = pages(rounded);
    if (size > REGION_BYTES / 2 || all + 2 * PAGE > REGION_BYTES - d.used)
        return nullptr;
    unsigned char *start = d.region + d.used, *p = HAS_ASAN ? start : start + all - rounded;
    d.used += all + PAGE;
    d.pieces[p] = size;
    memset(memory_alias(p), 0xff, size);
    each_slack_byte(p, size, [](unsigned char *alias, unsigned char *) { *alias = SLACK; });
    do_job(device_id, [&](job &j) {
        j.kind = job_kind::allow;
        j.at = p;
        j.size = size;
    });
    return p;
}

void memory_remove(int device_id, void *p, size_t size)
{
    device &d = devices[device_id];
    check_slack(d, "(any)");
    std::lock_guard<std::mutex> hold(d.lock);
    unsigned char *start = page_of(static_cast<unsigned char *>(p));
    size_t all = pages(size_t(static_cast<unsigned char *>(p) - start) + size);
    do_job(device_id, [&](job &j) {
        j.kind = job_kind::forbid;
        j.at = static_cast<unsigned char *>(p);
        j.size = size;
    });
    d.pieces.erase(static_cast<unsigned char *>(p));
    fallocate(d.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start - d.region, off_t(all));
}

void device_run(int d, const kernel_call &call)
{
    do_job(d, [&](job &j) {
        j.kind = job_kind::kernel;
        j.n_parts = call.grid.x * call.grid.y * call.grid.z;
        j.call = call;
    });
    check_slack(devices[d], call.name);
}

void device_gives_up()
{
    if (own_device >= 0)
        mark_dead();
    abort();
}

void fault_stack()
{
    constexpr size_t size = 64 << 10;
    stack_t stack = {};
    stack.ss_sp = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = size;
    sigaltstack(&stack, nullptr);
}
} // namespace vgpu
