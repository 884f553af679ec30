/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.cc - capture and replay.
 *
 * While a stream captures, its work becomes nodes instead; a node comes after the stream's last
 * ones, and after those of each event that the stream waited for (which is how a second stream
 * joins the capture).  A replay is one piece of work in its stream: it runs the nodes one by one in
 * a random order that the edges allow, a new one each time, so a forgotten edge shows.
 *
 * Restrictions, as the real runtime has them (programming guide, "CUDA graphs"): a synchronisation
 * or query of a captured stream or event, waiting for work that is not part of the capture, and
 * unsafe calls (allocation among them; by any thread while a capture is global, by the capturing
 * thread while it is thread-local) invalidate the capture: they fail, all later work in it fails,
 * and so does its end.  It ends on the stream where it began, by the thread that began it, with all
 * streams joined.  Stricter than the real one: copies of pageable memory are refused.
 *
 * One lock guards everything here; nothing is called under it but enqueue().
 */
#include <map>
#include <thread>

#include "stream.h"
#include "vgpu.h"

namespace vgpu
{
struct node {
    work run;
    std::vector<unsigned> after;
};

struct capture {
    std::vector<node> nodes;
    CUstream_st *origin;
    int device;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_spoilt, is_over;
};
} // namespace vgpu

struct CUgraph_st {
    std::vector<vgpu::node> nodes;
};

struct CUgraphExec_st {
    std::vector<vgpu::node> nodes;
    std::mutex lock; /* an executable graph runs once at a time */
    uint64_t n_runs;
};

namespace vgpu
{
namespace
{
struct state {
    std::mutex lock;
    std::vector<std::shared_ptr<capture>> captures; /* going on */
    std::vector<CUstream_st *> streams;             /* that take part in one */
    std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>> graphs;
    std::map<cudaGraphExec_t, std::shared_ptr<CUgraphExec_st>> execs;
};

state &all()
{
    static state *one = new state(); /* never freed: threads outlive main() */
    return *one;
}

template <class T> void remove(std::vector<T> &from, const T &what)
{
    for (size_t i = from.size(); i-- > 0;)
        if (from[i] == what)
            from.erase(from.begin() + long(i));
}

void join(std::vector<unsigned> &to, const std::vector<unsigned> &more)
{
    for (unsigned n : more) {
        remove(to, n);
        to.push_back(n);
    }
}

/* Some node that nothing waits for is not among the origin stream's last: a stream was forked and
 * never joined. */
bool has_loose_end(const capture &c)
{
    std::vector<bool> is_followed(c.nodes.size());
    for (const node &n : c.nodes)
        for (unsigned before : n.after)
            is_followed[before] = true;
    for (unsigned last : c.origin->tail)
        is_followed[last] = true;
    for (bool followed : is_followed)
        if (!followed)
            return true;
    return false;
}

void leave_capture(const std::shared_ptr<capture> &c)
{
    c->is_over = true;
    for (size_t i = all().streams.size(); i-- > 0;) {
        CUstream_st *s = all().streams[i];
        if (s->in != c)
            continue;
        s->in = nullptr;
        s->tail.clear();
        remove(all().streams, s);
    }
    remove(all().captures, c);
}

void run_nodes(const std::vector<node> &nodes, int device, uint64_t random)
{
    std::vector<unsigned> n_before(nodes.size()), ready;
    std::vector<std::vector<unsigned>> followers(nodes.size());
    for (unsigned i = 0; i < nodes.size(); i++) {
        n_before[i] = unsigned(nodes[i].after.size());
        for (unsigned before : nodes[i].after)
            followers[before].push_back(i);
        if (!n_before[i])
            ready.push_back(i);
    }
    while (!ready.empty()) {
        random = mix(random);
        std::swap(ready[random % ready.size()], ready.back());
        unsigned next = ready.back();
        ready.pop_back();
        if (!device_error(device))
            nodes[next].run();
        for (unsigned f : followers[next])
            if (--n_before[f] == 0)
                ready.push_back(f);
    }
}
} // namespace

bool capture_allows_unsafe()
{
    std::lock_guard<std::mutex> hold(all().lock);
    bool allowed = true;
    for (auto &c : all().captures) {
        bool own = c->thread == std::this_thread::get_id();
        if (c->mode == cudaStreamCaptureModeRelaxed ||
            (c->mode == cudaStreamCaptureModeThreadLocal && !own))
            continue;
        c->is_spoilt = true;
        allowed = false;
    }
    return allowed;
}

cudaError_t submit(cudaStream_t stream, work run)
{
    auto s = stream_of(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    std::lock_guard<std::mutex> hold(all().lock);
    if (!s->in) {
        enqueue(*s, std::move(run), false);
        return cudaSuccess;
    }
    if (s->in->is_spoilt)
        return cudaErrorStreamCaptureInvalidated;
    s->in->nodes.push_back({std::move(run), s->tail});
    s->tail = {unsigned(s->in->nodes.size() - 1)};
    return cudaSuccess;
}

bool capture_spoilt(CUstream_st &s)
{
    std::lock_guard<std::mutex> hold(all().lock);
    if (s.in)
        s.in->is_spoilt = true;
    return s.in != nullptr;
}

cudaError_t record(CUevent_st &event, CUstream_st &s)
{
    std::lock_guard<std::mutex> hold(all().lock);
    if (s.in && s.in->is_spoilt)
        return cudaErrorStreamCaptureInvalidated;
    event.in = s.in;
    event.nodes = s.tail;
    event.last = nullptr;
    if (!s.in) {
        auto now = std::make_shared<moment>();
        event.last = now;
        enqueue(
                s, [=] { now->reach(); }, true);
    }
    return cudaSuccess;
}

cudaError_t wait_for(CUstream_st &s, CUevent_st &event)
{
    std::lock_guard<std::mutex> hold(all().lock);
    if (s.in && s.in->is_spoilt)
        return cudaErrorStreamCaptureInvalidated;
    if (event.in && event.in->is_over)
        return cudaErrorCapturedEvent;
    if (s.in && event.in != s.in) {
        s.in->is_spoilt = true;
        return event.in ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
    }
    if (!event.in) {
        if (auto last = event.last)
            enqueue(
                    s, [=] { last->wait(); }, true);
        return cudaSuccess;
    }
    if (!s.in) {
        s.in = event.in;
        all().streams.push_back(&s);
    }
    join(s.tail, event.nodes);
    return cudaSuccess;
}

std::shared_ptr<moment> last_moment(CUevent_st &event, bool *ret_captured)
{
    std::lock_guard<std::mutex> hold(all().lock);
    *ret_captured = event.in != nullptr;
    if (event.in)
        event.in->is_spoilt = true;
    return event.last;
}

void end_of_stream(CUstream_st &s)
{
    std::lock_guard<std::mutex> hold(all().lock);
    if (s.in && s.in->origin == &s) {
        leave_capture(std::shared_ptr<capture>(s.in));
    } else if (s.in) {
        s.in->is_spoilt = true;
        s.in = nullptr;
        remove(all().streams, &s);
    }
}
} // namespace vgpu

using namespace vgpu;

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    return api(PLAIN, [=] {
        auto s = stream_of(stream);
        if (!s)
            return cudaErrorInvalidResourceHandle;
        std::lock_guard<std::mutex> hold(all().lock);
        if (s->in) {
            s->in->is_spoilt = true;
            return cudaErrorStreamCaptureUnsupported;
        }
        auto c = std::make_shared<capture>();
        c->origin = s.get();
        c->device = s->device;
        c->mode = mode;
        c->thread = std::this_thread::get_id();
        s->in = c;
        all().captures.push_back(c);
        all().streams.push_back(s.get());
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret)
{
    return api(PLAIN, [=] {
        *ret = nullptr;
        auto s = stream_of(stream);
        if (!s)
            return cudaErrorInvalidResourceHandle;
        std::lock_guard<std::mutex> hold(all().lock);
        auto c = s->in;
        if (!c)
            return cudaErrorIllegalState;
        if (c->origin != s.get())
            return cudaErrorStreamCaptureUnmatched;
        if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
            return cudaErrorStreamCaptureWrongThread;
        bool is_loose = has_loose_end(*c);
        leave_capture(c);
        if (c->is_spoilt)
            return cudaErrorStreamCaptureInvalidated;
        if (is_loose)
            return cudaErrorStreamCaptureUnjoined;
        auto graph = std::make_shared<CUgraph_st>();
        graph->nodes = std::move(c->nodes);
        all().graphs[graph.get()] = graph;
        count(&counters::n_graphs, 1);
        *ret = graph.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph,
                                            unsigned long long flags)
{
    return api(UNSAFE, [=] {
        std::lock_guard<std::mutex> hold(all().lock);
        auto found = all().graphs.find(graph);
        if (found == all().graphs.end() || flags)
            return cudaErrorInvalidValue;
        auto exec = std::make_shared<CUgraphExec_st>();
        exec->nodes = found->second->nodes;
        all().execs[exec.get()] = exec;
        count(&counters::n_execs, 1);
        *ret = exec.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return api(PLAIN, [=] {
        std::shared_ptr<CUgraphExec_st> e;
        {
            std::lock_guard<std::mutex> hold(all().lock);
            auto found = all().execs.find(exec);
            if (found == all().execs.end())
                return cudaErrorInvalidValue;
            e = found->second;
        }
        auto s = stream_of(stream);
        if (!s)
            return cudaErrorInvalidResourceHandle;
        int device = s->device;
        if (device_error(device))
            return device_error(device);
        return submit(stream, [=] {
            std::lock_guard<std::mutex> hold(e->lock);
            count(&counters::n_replays, 1);
            run_nodes(e->nodes, device, seed() ^ ++e->n_runs << 20);
        });
    });
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return api(RELEASES, [=] {
        std::lock_guard<std::mutex> hold(all().lock);
        if (!all().execs.erase(exec))
            return cudaErrorInvalidValue;
        count(&counters::n_execs, -1);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return api(RELEASES, [=] {
        std::lock_guard<std::mutex> hold(all().lock);
        if (!all().graphs.erase(graph))
            return cudaErrorInvalidValue;
        count(&counters::n_graphs, -1);
        return cudaSuccess;
    });
}
