/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.cc - NCCL's twin, libnccl.so.2 for dlopen(): ranks are threads of one process.
 *
 * A collective is work in each rank's stream (and so in its captured graph).  When its turn comes
 * it waits for the other ranks' work of the same number; the last to arrive computes for all, in
 * order of rank.  As with the real library:
 *   a rank that never comes    the others wait until ncclCommAbort(), each its own communicator;
 *                              what they would have received is filled with ones (NaN)
 *   ranks that disagree        on kind, count or type: undefined there; here the asynchronous
 *                              error ncclInvalidUsage for all, a line on stderr, and no end
 *                              until the abort
 *   joining                    waits for all ranks: ncclCommInitRank() by a thread each, or by one
 *                              thread between ncclGroupStart() and ncclGroupEnd(), or not at all
 *                              with config.blocking = 0 (ncclInProgress until all are there)
 * Two ranks on one device, a stream of another device and memory that is not an allocation of the
 * communicator's device are refused.
 *
 *   VGPU_NCCL_LOSE=RANK,N[,CODE]   the rank's N-th collective (from 1) and all later ones never
 *                                  come; with CODE, the others get it as asynchronous error
 *
 * Declarations follow NCCL's public API reference.  The program is called back by vgpu.h's names.
 */
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "vgpu.h"

enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
};

struct ncclUniqueId {
    char internal[128];
};

struct ncclConfig_t { /* what we read of it; more follows */
    size_t size;
    unsigned magic, version;
    int blocking;
};

namespace
{
constexpr int FLOAT32 = 7, SUM = 0, RANKS_MAX = 64;

enum class kind { all_reduce, all_gather };

struct part {
    kind what;
    const void *in;
    void *out;
    size_t n; /* elements a rank sends */
    int type;

    size_t bytes_in() const;
    size_t bytes_out(size_t n_ranks) const;
};

/* The n-th collective of a group. */
struct meeting {
    std::vector<part> parts; /* of those who came */
    std::vector<int> ranks;
    bool is_done, is_mismatched;
    int n_left;
};

struct group {
    std::mutex lock;
    std::condition_variable changed;
    int size, n_joined, error;
    bool is_refused; /* two ranks on one device */
    std::set<int> ranks, devices;
    std::vector<int> device_of; /* by rank */
    std::map<uint64_t, meeting> meetings;
};

struct loss {
    int rank, code;
    uint64_t at;
};
} // namespace

struct ncclComm {
    std::shared_ptr<group> all;
    int rank, device;
    bool is_aborted, is_blocking; /* under the group's lock */
    uint64_t n_run;
};

namespace
{
struct library {
    std::mutex lock;
    uint64_t n_ids;
    std::map<uint64_t, std::shared_ptr<group>> groups;
    std::map<ncclComm *, std::shared_ptr<ncclComm>> comms;
    loss lost;
};

library &lib()
{
    static library *one = [] {
        auto l = new library();
        const char *text = getenv("VGPU_NCCL_LOSE");
        l->lost.rank = -1;
        if (text && sscanf(text, "%d,%lu,%d", &l->lost.rank, &l->lost.at, &l->lost.code) < 2) {
            fprintf(stderr, "vgpu: VGPU_NCCL_LOSE: '%s' is not RANK,N[,CODE]\n", text);
            abort();
        }
        return l;
    }();
    return *one;
}

size_t width(int type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? bytes[type] : 0;
}

size_t part::bytes_in() const
{
    return n * width(type);
}

size_t part::bytes_out(size_t n_ranks) const
{
    return bytes_in() * (what == kind::all_gather ? n_ranks : 1);
}

std::shared_ptr<ncclComm> find(ncclComm *comm)
{
    std::lock_guard<std::mutex> hold(lib().lock);
    auto found = lib().comms.find(comm);
    return found == lib().comms.end() ? nullptr : found->second;
}

/* Device memory as this thread may touch it; it was checked when the work was queued. */
unsigned char *view(int device, const void *p, size_t size)
{
    void *host = vgpu_host_view(device, p, size);
    if (!host) {
        fprintf(stderr, "vgpu: a collective's turn comes when its memory %p is given back\n", p);
        abort();
    }
    return static_cast<unsigned char *>(host);
}

void compute(const group &g, const meeting &m)
{
    size_t n_ranks = m.parts.size(), n = m.parts[0].n, size = m.parts[0].bytes_in();
    std::vector<const part *> by_rank(n_ranks);
    for (size_t i = 0; i < n_ranks; i++)
        by_rank[size_t(m.ranks[i])] = &m.parts[i];
    std::vector<unsigned char> result(by_rank[0]->bytes_out(n_ranks));
    for (size_t r = 0; r < n_ranks; r++) {
        const unsigned char *in = view(g.device_of[r], by_rank[r]->in, size);
        if (by_rank[r]->what == kind::all_gather) {
            memcpy(result.data() + r * size, in, size);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            float sum = 0, next;
            memcpy(&next, in + 4 * i, 4);
            if (r)
                memcpy(&sum, result.data() + 4 * i, 4);
            sum = r ? sum + next : next;
            memcpy(result.data() + 4 * i, &sum, 4);
        }
    }
    for (size_t r = 0; r < n_ranks; r++)
        memcpy(view(g.device_of[r], by_rank[r]->out, result.size()), result.data(), result.size());
}

void arrive(group &g, meeting &m, const ncclComm &c, uint64_t number, const part &mine)
{
    if (!m.parts.empty()) {
        const part &first = m.parts[0];
        if (first.what != mine.what || first.n != mine.n || first.type != mine.type) {
            fprintf(stderr,
                    "vgpu: NCCL: collective %lu: rank %d brings %s of %zu (type %d), rank %d %s of "
                    "%zu (type %d)\n",
                    number, c.rank, mine.what == kind::all_reduce ? "all-reduce" : "all-gather",
                    mine.n, mine.type, m.ranks[0],
                    first.what == kind::all_reduce ? "all-reduce" : "all-gather", first.n,
                    first.type);
            m.is_mismatched = true;
            g.error = ncclInvalidUsage;
        }
    }
    m.parts.push_back(mine);
    m.ranks.push_back(c.rank);
    if (int(m.parts.size()) == g.size && !m.is_mismatched) {
        compute(g, m);
        m.is_done = true;
        g.changed.notify_all();
    }
}

/* The collective's turn in its stream. */
void run(ncclComm &c, const part &mine)
{
    group &g = *c.all;
    std::unique_lock<std::mutex> hold(g.lock);
    uint64_t number = ++c.n_run;
    bool done = false;
    if (!c.is_aborted) {
        const loss &lost = lib().lost;
        bool is_lost = c.rank == lost.rank && number >= lost.at;
        meeting &m = g.meetings[number];
        if (is_lost && lost.code)
            g.error = lost.code;
        if (!is_lost)
            arrive(g, m, c, number, mine);
        g.changed.wait(hold, [&] { return m.is_done || c.is_aborted; });
        done = m.is_done;
        if (done && ++m.n_left == g.size)
            g.meetings.erase(number);
    }
    if (!done)
        memset(view(c.device, mine.out, mine.bytes_out(size_t(g.size))), 0xff,
               mine.bytes_out(size_t(g.size)));
}

struct queued {
    std::shared_ptr<ncclComm> comm;
    part mine;
};

ncclResult_t enqueue(ncclComm *comm, const part &mine, void *stream)
{
    auto c = find(comm);
    if (!c)
        return ncclInvalidArgument;
    {
        std::lock_guard<std::mutex> hold(c->all->lock);
        if (c->all->n_joined < c->all->size)
            return ncclInvalidUsage;
        if (c->all->error)
            return ncclResult_t(c->all->error);
    }
    if (!width(mine.type) || vgpu_stream_device(stream) != c->device ||
        !vgpu_host_view(c->device, mine.in, mine.bytes_in()) ||
        !vgpu_host_view(c->device, mine.out, mine.bytes_out(size_t(c->all->size))))
        return ncclInvalidArgument;
    auto q = new queued{c, mine};
    int error = vgpu_enqueue(
            stream,
            [](void *arg) {
                run(*static_cast<queued *>(arg)->comm, static_cast<queued *>(arg)->mine);
            },
            q, [](void *arg) { delete static_cast<queued *>(arg); });
    return error ? ncclUnhandledCudaError : ncclSuccess;
}

/* --- joining --- */

struct joining {
    std::shared_ptr<ncclComm> comm;
    ncclComm **ret;
};

thread_local int depth; /* of ncclGroupStart() */
thread_local std::vector<joining> waiting;

ncclResult_t finish_join(const joining &j)
{
    group &g = *j.comm->all;
    std::unique_lock<std::mutex> hold(g.lock);
    if (j.comm->is_blocking)
        g.changed.wait(hold, [&] { return g.n_joined == g.size || g.is_refused; });
    if (g.is_refused)
        return ncclInvalidUsage;
    *j.ret = j.comm.get();
    bool all_there = g.n_joined == g.size;
    hold.unlock();
    std::lock_guard<std::mutex> also(lib().lock);
    lib().comms[j.comm.get()] = j.comm;
    return all_there ? ncclSuccess : ncclInProgress;
}

ncclResult_t join(ncclComm **ret, int size, const ncclUniqueId &id, int rank, bool is_blocking)
{
    uint64_t key;
    memcpy(&key, id.internal, sizeof(key));
    if (!ret || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    auto c = std::make_shared<ncclComm>();
    {
        std::lock_guard<std::mutex> hold(lib().lock);
        auto found = lib().groups.find(key);
        if (found == lib().groups.end())
            return ncclInvalidArgument;
        c->all = found->second;
    }
    c->rank = rank;
    c->device = vgpu_current_device();
    c->is_blocking = is_blocking;
    {
        group &g = *c->all;
        std::lock_guard<std::mutex> hold(g.lock);
        if (!g.size) {
            g.size = size;
            g.device_of.resize(size_t(size));
        }
        if (g.size != size || !g.ranks.insert(rank).second)
            return ncclInvalidArgument;
        if (!g.devices.insert(c->device).second)
            g.is_refused = true;
        g.device_of[size_t(rank)] = c->device;
        g.n_joined++;
        g.changed.notify_all();
    }
    if (depth) {
        waiting.push_back({c, ret});
        return ncclSuccess;
    }
    return finish_join({c, ret});
}

ncclResult_t leave(ncclComm *comm, bool aborts)
{
    auto c = find(comm);
    if (!c)
        return ncclInvalidArgument;
    {
        std::lock_guard<std::mutex> hold(c->all->lock);
        c->is_aborted |= aborts;
        c->all->changed.notify_all();
    }
    std::lock_guard<std::mutex> hold(lib().lock);
    lib().comms.erase(comm);
    return ncclSuccess;
}
} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int *ret)
{
    *ret = 23203;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *ret)
{
    std::lock_guard<std::mutex> hold(lib().lock);
    uint64_t key = ++lib().n_ids;
    memset(ret, 0, sizeof(*ret));
    memcpy(ret->internal, &key, sizeof(key));
    lib().groups[key] = std::make_shared<group>();
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm **ret, int size, ncclUniqueId id, int rank)
{
    return join(ret, size, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm **ret, int size, ncclUniqueId id, int rank,
                                    const ncclConfig_t *config)
{
    return join(ret, size, id, rank, !config || config->blocking != 0);
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth)
        return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (const joining &j : waiting) {
        ncclResult_t one = finish_join(j);
        if (one && (!result || result == ncclInProgress))
            result = one;
    }
    waiting.clear();
    return result;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm *comm,
                           void *stream)
{
    if (op != SUM || type != FLOAT32) /* all that Penstock asks for */
        return ncclInvalidArgument;
    return enqueue(comm, {kind::all_reduce, in, out, n, type}, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm *comm,
                           void *stream)
{
    return enqueue(comm, {kind::all_gather, in, out, n, type}, stream);
}

ncclResult_t ncclCommGetAsyncError(ncclComm *comm, ncclResult_t *ret)
{
    auto c = find(comm);
    if (!c)
        return ncclInvalidArgument;
    group &g = *c->all;
    std::lock_guard<std::mutex> hold(g.lock);
    *ret = g.error               ? ncclResult_t(g.error)
           : g.is_refused        ? ncclInvalidUsage
           : g.n_joined < g.size ? ncclInProgress
                                 : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm *comm)
{
    return leave(comm, true);
}

ncclResult_t ncclCommDestroy(ncclComm *comm)
{
    return leave(comm, false);
}

const char *ncclGetErrorString(ncclResult_t code)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return unsigned(code) < sizeof(text) / sizeof(text[0]) ? text[code] : "unknown result code";
}
}
