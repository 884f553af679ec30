/* SPDX-License-Identifier: Apache-2.0
 *
 * block.cc - one block of threads, run on one OS thread.
 *
 * A CUDA thread is a fiber: a stack of its own, left and entered by vgpu_switch().  A fiber runs
 * until it waits (for its block, for its warp) or ends; nothing else interrupts it, but for atomics
 * in the shuffled order.  So whatever two threads do without waiting for each other happens in
 * the order that the scheduler chose, and a kernel that lacks a barrier computes something else
 * in another order.  Three orders, each as skewed as the barriers allow:
 *   forward    the first warp that can run does, lanes upwards, until its barrier stops it
 *   reverse    the last warp, lanes downwards
 *   shuffled   a random warp, a random order of lanes, anew each time
 *
 * A waiting fiber is not polled: the last one to arrive makes the others ready.  When no fiber is
 * ready and some still live, that is a deadlock, found at once.
 *
 * Fibers and their stacks belong to the OS thread and live as long as it: a fiber whose kernel has
 * returned waits for the next block's.  Shared memory ends at a page that cannot be touched, as
 * near as its 128-byte alignment allows; what is left is poisoned under AddressSanitizer and else
 * filled and looked at afterwards.  Before each block it is all ones (NaN, or -1), in the reverse
 * order zeros, and in the shuffled one anything at all.
 *
 * ldmatrix has all lanes of the warp meet, as it does on a GPU, but orders no memory: of every 16
 * bytes it is known who copied them by cp.async, who read them by ldmatrix, and how many barriers
 * that thread had passed then, so that a read of another thread's copy, or a copy over what was
 * read, without a barrier in between is found although it gives the right result.
 *
 * What this cannot see: weak memory order otherwise (a missing fence), and two threads that change
 * the same word without an atomic between the same two waits.
 */
#include "block.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <signal.h>
#include <sys/mman.h>
#include <vector>

#include "device.h"
#include "kernels/cuda/ptx.cuh"
#include "sanitizer.h"

extern "C" void vgpu_switch(void **save, void *to);

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace vgpu
{
__thread unsigned lane_of_thread;
__thread unsigned char *shared_memory;

namespace
{
constexpr size_t PAGE = 4096, STACK_BYTES = 256 << 10, SHARED_MAX = 256 << 10;
constexpr unsigned char SLACK = 0xc5; /* fills what nobody may write */

enum class state { ready, at_barrier, in_collective, ended };

struct pending_copy {
    unsigned char *to;
    const unsigned char *from;
    bool valid;
    unsigned group;
};

/* Barriers that a thread has passed. */
struct passed {
    unsigned any; /* of its warp, or of the block */
    unsigned block;
};

/* What cp.async or ldmatrix did last to 16 bytes of shared memory. */
struct use {
    unsigned by; /* thread + 1; 0: nobody yet */
    passed when;
};
struct piece {
    use copied, read;
};

struct fiber {
    uint3 tid;
    struct passed passed;
    unsigned index, lane;
    state is;
    const char *op; /* what it waits for; for whom, from where */
    int line;
    unsigned mask;
    void *slot;
    std::vector<pending_copy> copies;
    unsigned n_groups; /* committed */
    void *sp;
    unsigned char *stack;
    stack_note note;
};

/* A collective that lanes wait in. */
struct meeting {
    const char *op;
    int line;
    unsigned mask, arrived;
};

struct warp {
    unsigned alive, ready; /* lanes */
    void *slots[WARP];
    unsigned n_meetings; /* masks do not overlap */
    meeting meetings[WARP];
};

struct runner {
    const kernel_call *call; /* NULL: no block is running */
    uint3 id;
    unsigned char *shared;
    std::vector<std::unique_ptr<fiber>> fibers;
    std::vector<warp> warps;
    std::vector<piece> pieces; /* of shared memory */
    unsigned n_threads, n_live, n_at_barrier;
    unsigned ready_warps;
    uint64_t random;
    unsigned char *shared_end; /* the page that cannot be touched */
    size_t shared_slack;
    fiber *running;
    void *sp; /* the scheduler's own stack */
    stack_note note;

    uint64_t next_random()
    {
        return random = mix(random);
    }
    fiber &lane_of(unsigned w, unsigned lane)
    {
        return *fibers[w * WARP + lane];
    }
};

__thread runner *mine;

void to_scheduler()
{
    runner &r = *mine;
    stack_leaves(&r.running->note, r.note.bottom, r.note.size);
    vgpu_switch(&r.running->sp, r.sp);
    stack_enters(&mine->running->note, &mine->note);
}

void set_ready(fiber &f)
{
    f.is = state::ready;
    mine->warps[f.index / WARP].ready |= 1u << f.lane;
    mine->ready_warps |= 1u << f.index / WARP;
}

void wait_as(fiber &f, state is)
{
    warp &w = mine->warps[f.index / WARP];
    f.is = is;
    w.ready &= ~(1u << f.lane);
    if (w.ready == 0)
        mine->ready_warps &= ~(1u << f.index / WARP);
}

/* All live threads are at the barrier: they go on, if it is one and the same. */
void open_barrier()
{
    runner &r = *mine;
    const fiber *first = nullptr;
    for (unsigned i = 0; i < r.n_threads; i++) {
        fiber &f = *r.fibers[i];
        if (f.is != state::at_barrier)
            continue;
        if (first && first->line != f.line)
            fail("__syncthreads of lines %d and %d meet: threads %u and %u diverged", first->line,
                 f.line, first->index, f.index);
        first = &f;
        set_ready(f);
    }
    r.n_at_barrier = 0;
}

void thread_ends()
{
    runner &r = *mine;
    fiber &f = *r.running;
    warp &w = r.warps[f.index / WARP];
    if (!f.copies.empty())
        fail("ends, and %zu copies of its cp.async were never waited for", f.copies.size());
    w.alive &= ~(1u << f.lane);
    wait_as(f, state::ended);
    r.n_live--;
    for (unsigned i = 0; i < w.n_meetings; i++)
        if (has(w.meetings[i].mask, f.lane))
            fail("ends, while lane %d waits for it in %s, line %d",
                 __builtin_ctz(w.meetings[i].arrived), w.meetings[i].op, w.meetings[i].line);
    if (r.n_live && r.n_at_barrier == r.n_live)
        open_barrier();
}

void fiber_main()
{
    stack_enters(nullptr, &mine->note);
    for (;;) {
        mine->call->entry(mine->call->kernel, mine->call->args);
        thread_ends();
        to_scheduler();
    }
}

/* A new fiber's stack looks as if vgpu_switch() had left it just before fiber_main().  Stacks start
 * at different cache lines, or they would drive each other out of the cache. */
void *first_frame(const fiber &f)
{
    void **sp = reinterpret_cast<void **>(f.stack + STACK_BYTES - f.index % 128 * 320);
#if defined(__x86_64__)
    *--sp = nullptr; /* keeps the stack 16-byte aligned at the call */
    *--sp = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
#elif defined(__aarch64__)
    sp -= 20;
    memset(sp, 0, 160);
    sp[11] = reinterpret_cast<void *>(fiber_main);
#endif
    return sp;
}

void add_fiber(runner &r)
{
    auto f = std::make_unique<fiber>();
    void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE, PROT_NONE))
        fail("no memory for a thread's stack");
    f->index = unsigned(r.fibers.size());
    f->lane = f->index % WARP;
    f->stack = static_cast<unsigned char *>(stack);
    f->note.bottom = f->stack + PAGE;
    f->note.size = STACK_BYTES - PAGE;
    f->sp = first_frame(*f);
    r.fibers.push_back(std::move(f));
}

runner *new_runner()
{
    auto r = new runner();
    void *shared =
            mmap(nullptr, SHARED_MAX + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto start = static_cast<unsigned char *>(shared) + PAGE;
    if (shared == MAP_FAILED || mprotect(start, SHARED_MAX, PROT_READ | PROT_WRITE))
        fail("no memory for shared memory");
    r->shared_end = start + SHARED_MAX;
    fault_stack();
    return r;
}

void prepare_shared(runner &r)
{
    size_t rounded = (r.call->shared_bytes + 127) & ~size_t(127);
    unsigned char *start = r.shared_end - SHARED_MAX;
    shared_memory = r.shared = r.shared_end - rounded;
    r.shared_slack = rounded - r.call->shared_bytes;
    unpoison(start, SHARED_MAX);
    memset(r.shared, r.call->in_order == order::reverse ? 0 : 0xff, r.call->shared_bytes);
    for (size_t at = 0; r.call->in_order == order::shuffled && at + 8 <= r.call->shared_bytes;
         at += 8) {
        uint64_t anything = r.next_random();
        memcpy(r.shared + at, &anything, sizeof(anything));
    }
    memset(r.shared + r.call->shared_bytes, SLACK, r.shared_slack);
    poison(start, size_t(r.shared - start));
    poison(r.shared + r.call->shared_bytes, r.shared_slack);
    r.pieces.assign(rounded / 16, {});
}

void check_slack(runner &r)
{
    unpoison(r.shared, r.call->shared_bytes + r.shared_slack);
    for (size_t i = 0; i < r.shared_slack; i++)
        if (r.shared[r.call->shared_bytes + i] != SLACK)
            fail("byte %zu of shared memory was written, past the %zu of the launch",
                 r.call->shared_bytes + i, r.call->shared_bytes);
}

void prepare(runner &r, const kernel_call &call, unsigned index)
{
    r.call = &call;
    gridDim = {call.grid.x, call.grid.y, call.grid.z};
    blockDim = {call.block.x, call.block.y, call.block.z};
    blockIdx = r.id = {index % call.grid.x, index / call.grid.x % call.grid.y,
                       index / (call.grid.x * call.grid.y)};
    r.n_threads = r.n_live = call.block.x * call.block.y * call.block.z;
    r.n_at_barrier = 0;
    r.random = mix(call.seed ^ uint64_t(index) << 32);
    while (r.fibers.size() < r.n_threads)
        add_fiber(r);
    r.warps.resize((r.n_threads + WARP - 1) / WARP);
    for (warp &w : r.warps)
        w.alive = w.ready = w.n_meetings = 0;
    r.ready_warps = 0;
    for (unsigned i = 0; i < r.n_threads; i++) {
        fiber &f = *r.fibers[i];
        f.tid = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        f.n_groups = 0;
        f.passed = {};
        r.warps[i / WARP].alive |= 1u << f.lane;
        set_ready(f);
    }
    prepare_shared(r);
}

void resume(fiber &f)
{
    runner &r = *mine;
    r.running = &f;
    threadIdx = f.tid;
    lane_of_thread = f.lane;
    stack_leaves(&r.note, f.note.bottom, f.note.size);
    vgpu_switch(&r.sp, f.sp);
    stack_enters(&r.note, nullptr);
}

/* Each ready lane of the warp once, in an order of the launch's kind. */
void run_warp(unsigned w)
{
    runner &r = *mine;
    unsigned start = 0, step = 1;
    if (r.call->in_order == order::reverse) {
        start = WARP - 1;
        step = WARP - 1;
    } else if (r.call->in_order == order::shuffled) {
        uint64_t random = r.next_random();
        start = unsigned(random % WARP);
        step = unsigned(random >> 8) | 1;
    }
    for (unsigned i = 0; i < WARP; i++) {
        unsigned lane = (start + i * step) % WARP;
        if (has(r.warps[w].ready, lane))
            resume(r.lane_of(w, lane));
    }
}

unsigned choose_warp()
{
    runner &r = *mine;
    if (r.call->in_order == order::forward)
        return unsigned(__builtin_ctz(r.ready_warps));
    if (r.call->in_order == order::reverse)
        return 31 - unsigned(__builtin_clz(r.ready_warps));
    unsigned left = r.ready_warps,
             skip = unsigned(r.next_random() % unsigned(__builtin_popcount(left)));
    while (skip--)
        left &= left - 1;
    return unsigned(__builtin_ctz(left));
}

/* The meeting that the lane comes to; any other that shares a lane with it is a divergence. */
meeting &meeting_of(warp &w, const fiber &f)
{
    for (unsigned i = 0; i < w.n_meetings; i++) {
        meeting &m = w.meetings[i];
        if (!(m.mask & f.mask))
            continue;
        if (m.mask == f.mask && m.line == f.line && (m.op == f.op || !strcmp(m.op, f.op)))
            return m;
        fail("%s, line %d, mask %#x meets %s, line %d, mask %#x of lane %d: the warp diverged",
             f.op, f.line, f.mask, m.op, m.line, m.mask, __builtin_ctz(m.arrived));
    }
    w.meetings[w.n_meetings] = {f.op, f.line, f.mask, 0};
    return w.meetings[w.n_meetings++];
}

[[noreturn]] void deadlock()
{
    runner &r = *mine;
    unsigned shown = 0;
    for (unsigned i = 0; i < r.n_threads && shown < 8; i++) {
        const fiber &f = *r.fibers[i];
        if (f.is == state::ended)
            continue;
        fprintf(stderr, "vgpu:   thread %u waits in %s, line %d, mask %#x\n", i, f.op, f.line,
                f.is == state::at_barrier ? 0 : f.mask);
        shown++;
    }
    r.running = nullptr;
    fail("deadlock: %u of %u threads wait for what will not come", r.n_live, r.n_threads);
}
} // namespace

void run_block(const kernel_call &call, unsigned index)
{
    if (!mine)
        mine = new_runner();
    prepare(*mine, call, index);
    while (mine->n_live) {
        if (!mine->ready_warps)
            deadlock();
        run_warp(choose_warp());
    }
    mine->running = nullptr;
    check_slack(*mine);
    mine->call = nullptr;
}

bool print_position(const char *what)
{
    if (!mine || !mine->call)
        return false;
    const runner &r = *mine;
    fprintf(stderr, "vgpu: kernel %s, block (%u,%u,%u)", r.call->name, r.id.x, r.id.y, r.id.z);
    if (r.running)
        fprintf(stderr, ", thread (%u,%u,%u)", r.running->tid.x, r.running->tid.y,
                r.running->tid.z);
    fprintf(stderr, ": %s\n", what);
    return true;
}

void fail(const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (!print_position(text))
        fprintf(stderr, "vgpu: %s\n", text);
    device_gives_up();
}

void sync_block(int line)
{
    fiber &f = *mine->running;
    f.op = "__syncthreads";
    f.line = line;
    wait_as(f, state::at_barrier);
    if (++mine->n_at_barrier == mine->n_live)
        open_barrier();
    to_scheduler();
    f.passed.any++;
    f.passed.block++;
}

void pass_warp_barrier()
{
    mine->running->passed.any++;
}

void maybe_yield()
{
    if (mine->call->in_order == order::shuffled && mine->next_random() % 2)
        to_scheduler();
}

void *const *collective_arrive(unsigned mask, const char *op, int line, void *slot)
{
    fiber &f = *mine->running;
    warp &w = mine->warps[f.index / WARP];
    if (!has(mask, f.lane))
        fail("%s, line %d: lane %u is not in its own mask %#x", op, line, f.lane, mask);
    if (mask & ~w.alive)
        fail("%s, line %d: mask %#x names lane %d, which has ended or never was", op, line, mask,
             __builtin_ctz(mask & ~w.alive));
    f.op = op;
    f.line = line;
    f.mask = mask;
    w.slots[f.lane] = slot;
    meeting &m = meeting_of(w, f);
    m.arrived |= 1u << f.lane;
    if (m.arrived != mask)
        return nullptr;
    m = w.meetings[--w.n_meetings];
    return w.slots;
}

void collective_leave(unsigned mask, bool last)
{
    unsigned w = mine->running->index / WARP;
    if (last) {
        for (unsigned left = mask; left; left &= left - 1)
            set_ready(mine->lane_of(w, unsigned(__builtin_ctz(left))));
    } else {
        wait_as(*mine->running, state::in_collective);
    }
    to_scheduler();
}

void check_shared(const void *p, size_t n, const char *op)
{
    const unsigned char *at = static_cast<const unsigned char *>(p);
    if (at < mine->shared || at + n > mine->shared + mine->call->shared_bytes)
        fail("%s: %p is not in the block's shared memory", op, p);
    if (reinterpret_cast<uintptr_t>(p) % n)
        fail("%s: byte %td of shared memory is not %zu-byte aligned", op, at - mine->shared, n);
}

void check_global(const void *p, size_t n, const char *op)
{
    const unsigned char *at = static_cast<const unsigned char *>(p);
    if (at >= mine->shared_end - SHARED_MAX && at < mine->shared_end)
        fail("%s: %p is in shared memory", op, p);
    if (reinterpret_cast<uintptr_t>(p) % n)
        fail("%s: %p is not %zu-byte aligned", op, p, n);
}

namespace
{
piece &piece_at(const unsigned char *at)
{
    return mine->pieces[size_t(at - mine->shared) / 16];
}

use now(const fiber &f)
{
    return {f.index + 1, f.passed};
}

/* Is there a barrier of both between what was done and what the thread does now? Threads that pass
 * the same barriers count them alike. */
bool comes_after(const fiber &f, const use &u)
{
    bool one_warp = u.by != 0 && (u.by - 1) / WARP == f.index / WARP;
    return u.by == 0 || f.passed.block > u.when.block || (one_warp && f.passed.any > u.when.any);
}
} // namespace

void load_row(const void *row, unsigned lane)
{
    const fiber &f = mine->lane_of(mine->running->index / WARP, lane);
    piece &p = piece_at(static_cast<const unsigned char *>(row));
    if (!comes_after(f, p.copied))
        fail("ldmatrix: no barrier orders what lane %u points to after the cp.async of thread %u",
             lane, p.copied.by - 1);
    p.read = now(f);
}

/* The hardware may write at any time from now to the wait: here the old bytes are gone now, the
 * new ones come at the wait, and the source is read then. */
void copy_async(void *shared, const void *global, bool valid)
{
    fiber &f = *mine->running;
    check_shared(shared, 16, "cp.async");
    if (valid)
        check_global(global, 16, "cp.async");
    piece &p = piece_at(static_cast<unsigned char *>(shared));
    if (!comes_after(f, p.read))
        fail("cp.async: no barrier orders it after the ldmatrix that read the same bytes");
    memset(shared, 0xff, 16);
    f.copies.push_back({static_cast<unsigned char *>(shared),
                        static_cast<const unsigned char *>(global), valid, f.n_groups});
}

void copy_async_commit()
{
    mine->running->n_groups++;
}

void copy_async_wait(unsigned n_pending)
{
    fiber &f = *mine->running;
    size_t n_kept = 0;
    for (const pending_copy &c : f.copies) {
        if (c.group + n_pending >= f.n_groups) { /* also those not yet committed */
            f.copies[n_kept++] = c;
            continue;
        }
        if (c.valid)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
        piece_at(c.to).copied = now(f);
    }
    f.copies.resize(n_kept);
}
} // namespace vgpu
