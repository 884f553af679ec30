/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator_nccl.c - ranks on GPUs of one node, by NCCL, opened at run time.
 *
 * Calls queue on the rank's stream and return; that a peer is lost shows in the communicator's
 * asynchronous error, which communicator_check() asks for while the device waits.  An abort ends
 * the kernels that wait for the peer: it is the only way out of a collective that one rank never
 * joined.  After it the group is gone; every later call fails.
 *
 * The library is not linked: images for the CPU do not carry it, and its licence is its own.  The
 * few declarations needed are NCCL's documented ABI (NVIDIA NCCL User Guide, "API").
 *
 * Lock: one a group, over its communicators; held while a call is queued, so that an abort from
 * another thread never frees a communicator in use.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/parallel/communicator_kind.h"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

struct nccl_id {
    char internal[128];
};

struct nccl {
    int (*get_unique_id)(struct nccl_id *id);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*comm_init_rank)(void **comm, int n, struct nccl_id id, int rank);
    int (*all_reduce)(const void *in, void *out, size_t n, int type, int op, void *comm,
                      void *stream);
    int (*all_gather)(const void *in, void *out, size_t n, int type, void *comm, void *stream);
    int (*comm_get_async_error)(void *comm, int *ret);
    int (*comm_abort)(void *comm);
    int (*comm_destroy)(void *comm);
    const char *(*get_error_string)(int code);
};

struct group {
    void *library;
    struct nccl api;
    unsigned size;
    pthread_mutex_t lock; /* what follows */
    unsigned n_ends;
    bool is_aborted;
    void *comms[COMMUNICATOR_RANKS_MAX];
};

struct nccl_end {
    struct communicator base;
    struct group *group;
};

static struct group *group_of(struct communicator *c)
{
    return ((struct nccl_end *)c)->group;
}

static int fail(const struct group *g, int code, const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE, "NCCL: %s: %s", what, g->api.get_error_string(code));
}

static int aborted(struct err *err)
{
    return err_set(err, ERR_DEVICE, "tensor parallelism: another rank failed");
}

static int all_reduce(struct communicator *c, float *data, size_t n, void *stream, struct err *err)
{
    struct group *g = group_of(c);
    int code = NCCL_SUCCESS;
    bool gone;

    (void)pthread_mutex_lock(&g->lock);
    gone = g->is_aborted;
    if (!gone)
        code = g->api.all_reduce(data, data, n, NCCL_FLOAT32, NCCL_SUM, g->comms[c->rank], stream);
    (void)pthread_mutex_unlock(&g->lock);
    if (gone)
        return aborted(err);
    return code == NCCL_SUCCESS ? 0 : fail(g, code, "all-reduce", err);
}

static int all_gather(struct communicator *c, const float *part, size_t n, float *all, void *stream,
                      struct err *err)
{
    struct group *g = group_of(c);
    int code = NCCL_SUCCESS;
    bool gone;

    (void)pthread_mutex_lock(&g->lock);
    gone = g->is_aborted;
    if (!gone)
        code = g->api.all_gather(part, all, n, NCCL_FLOAT32, g->comms[c->rank], stream);
    (void)pthread_mutex_unlock(&g->lock);
    if (gone)
        return aborted(err);
    return code == NCCL_SUCCESS ? 0 : fail(g, code, "all-gather", err);
}

static int check(struct communicator *c, struct err *err)
{
    struct group *g = group_of(c);
    int code = NCCL_SUCCESS, state = NCCL_SUCCESS;
    bool gone;

    (void)pthread_mutex_lock(&g->lock);
    gone = g->is_aborted;
    if (!gone)
        code = g->api.comm_get_async_error(g->comms[c->rank], &state);
    (void)pthread_mutex_unlock(&g->lock);
    if (gone)
        return aborted(err);
    if (code == NCCL_SUCCESS && state != NCCL_IN_PROGRESS)
        code = state;
    return code == NCCL_SUCCESS ? 0 : fail(g, code, "a rank was lost", err);
}

static void abort_group(struct communicator *c)
{
    struct group *g = group_of(c);

    (void)pthread_mutex_lock(&g->lock);
    for (unsigned i = 0; i < g->size && !g->is_aborted; i++)
        (void)g->api.comm_abort(g->comms[i]);
    g->is_aborted = true;
    (void)pthread_mutex_unlock(&g->lock);
}

static void group_free(struct group *g)
{
    for (unsigned i = 0; i < g->size && !g->is_aborted; i++)
        if (g->comms[i])
            (void)g->api.comm_destroy(g->comms[i]);
    (void)pthread_mutex_destroy(&g->lock);
    if (g->library)
        (void)dlclose(g->library);
    mem_free(g);
}

static void free_end(struct communicator *c)
{
    struct group *g = group_of(c);
    bool last;

    (void)pthread_mutex_lock(&g->lock);
    last = --g->n_ends == 0;
    (void)pthread_mutex_unlock(&g->lock);
    mem_free(c);
    if (last)
        group_free(g);
}

static int open_library(struct group *g, struct err *err)
{
    const struct {
        const char *name;
        void *to;
    } table[] = {
            {"ncclGetUniqueId", &g->api.get_unique_id},
            {"ncclGroupStart", &g->api.group_start},
            {"ncclGroupEnd", &g->api.group_end},
            {"ncclCommInitRank", &g->api.comm_init_rank},
            {"ncclAllReduce", &g->api.all_reduce},
            {"ncclAllGather", &g->api.all_gather},
            {"ncclCommGetAsyncError", &g->api.comm_get_async_error},
            {"ncclCommAbort", &g->api.comm_abort},
            {"ncclCommDestroy", &g->api.comm_destroy},
            {"ncclGetErrorString", &g->api.get_error_string},
    };

    g->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!g->library)
        return err_set(err, ERR_UNAVAILABLE,
                       "tensor parallelism on GPUs needs NCCL, and libnccl.so.2 does not open: use "
                       "the image whose tag ends in -cuda");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        void *symbol = dlsym(g->library, table[i].name);

        if (!symbol)
            return err_set(err, ERR_UNAVAILABLE, "libnccl.so.2 has no %s", table[i].name);
        *(void **)table[i].to = symbol; /* POSIX: a function's address fits */
    }
    return 0;
}

static int join(struct group *g, struct err *err)
{
    struct nccl_id id;
    int code = g->api.get_unique_id(&id);

    if (code == NCCL_SUCCESS)
        code = g->api.group_start();
    for (unsigned i = 0; i < g->size && code == NCCL_SUCCESS; i++) {
        if (cudaSetDevice((int)i) != cudaSuccess)
            return err_set(err, ERR_DEVICE, "GPU %u: cannot use it", i);
        code = g->api.comm_init_rank(&g->comms[i], (int)g->size, id, (int)i);
    }
    if (code == NCCL_SUCCESS)
        code = g->api.group_end();
    return code == NCCL_SUCCESS ? 0 : fail(g, code, "joining the ranks", err);
}

static int make_ends(struct group *g, struct communicator **ret, struct err *err)
{
    static const struct communicator_kind kind = {
            .free = free_end,
            .all_reduce = all_reduce,
            .all_gather = all_gather,
            .check = check,
            .abort = abort_group,
    };

    for (unsigned i = 0; i < g->size; i++) {
        struct nccl_end *end = mem_calloc(1, sizeof(*end));

        if (!end) {
            while (i > 0)
                mem_free(ret[--i]);
            return err_set(err, ERR_NO_MEMORY, "communicator of %u ranks", g->size);
        }
        *end = (struct nccl_end){.base = {.kind = &kind, .rank = i, .size = g->size}, .group = g};
        ret[i] = &end->base;
    }
    g->n_ends = g->size;
    return 0;
}

int communicator_new_nccl(unsigned n_ranks, struct communicator **ret, struct err *err)
{
    struct group *g = mem_calloc(1, sizeof(*g));
    int r;

    ASSERT(n_ranks > 0 && n_ranks <= COMMUNICATOR_RANKS_MAX);
    if (!g)
        return err_set(err, ERR_NO_MEMORY, "communicator of %u ranks", n_ranks);
    g->size = n_ranks;
    (void)pthread_mutex_init(&g->lock, NULL);
    r = open_library(g, err);
    if (r == 0)
        r = join(g, err);
    if (r == 0)
        r = make_ends(g, ret, err);
    if (r < 0)
        group_free(g);
    return r;
}
