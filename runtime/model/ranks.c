/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c - one device or several behind one plan.
 *
 * With one rank every call goes straight to its decoder.  With several, each has a thread that
 * owns its device from the moment the weights are loaded, and takes commands from a short queue in
 * the order in which they were given.  A submit returns as soon as it is queued; a collect (or
 * logits) waits for all ranks.  So the threads meet at the model's collective ops and nowhere else.
 *
 * A rank that fails aborts the group: the others come back from their collectives with an error
 * instead of waiting for it.  What the first one said is what the caller gets, from then on.
 *
 * One lock, over the queues and counters.
 */
#include "runtime/model/ranks.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/assertion.h"
#include "base/mem.h"
#include "runtime/device/cpu_count.h"
#include "runtime/model/decoder.h"
#include "runtime/model/shard.h"
#include "runtime/model/weights.h"
#include "runtime/parallel/communicator.h"

enum { QUEUE = 2 * MODEL_STEPS + 1 };
_Static_assert((int)MODEL_STEPS == (int)DECODER_STEPS, "steps under way");

enum verb { SUBMIT, COLLECT, LOGITS };

struct command {
    enum verb verb;
    unsigned step;
    const struct step_plan *plan;
    int32_t *ret_tokens;
    float *ret_logits;
};

struct rank {
    struct ranks *all;
    struct shard shard;
    struct device *device;
    struct communicator *comm;
    struct weights *weights;
    struct decoder *decoder;
    pthread_t thread;
    uint64_t n_done; /* commands, under the lock */
};

struct ranks {
    unsigned n;
    unsigned n_threads;
    struct rank each[COMMUNICATOR_RANKS_MAX];
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t changed;
    bool stop;
    uint64_t n_given;
    struct command queue[QUEUE];
    struct err failed;
};

static int execute(struct rank *k, const struct command *c, struct err *err)
{
    bool tells = k->shard.rank == 0;

    switch (c->verb) {
    case SUBMIT:
        return decoder_submit(k->decoder, c->step, c->plan, err);
    case COLLECT:
        return decoder_collect(k->decoder, c->step, tells ? c->ret_tokens : NULL, err);
    case LOGITS:
        break;
    }
    return decoder_logits(k->decoder, c->plan, tells ? c->ret_logits : NULL, err);
}

/* The next command; false: none will come. */
static bool next(struct rank *k, struct command *ret)
{
    struct ranks *r = k->all;
    bool any;

    (void)pthread_mutex_lock(&r->lock);
    while (k->n_done == r->n_given && !r->stop)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    any = k->n_done < r->n_given;
    if (any)
        *ret = r->queue[k->n_done % QUEUE];
    (void)pthread_mutex_unlock(&r->lock);
    return any;
}

static void done(struct rank *k, int result, const struct err *err)
{
    struct ranks *r = k->all;

    if (result != 0)
        communicator_abort(k->comm);
    (void)pthread_mutex_lock(&r->lock);
    if (result != 0 && r->failed.code == ERR_NONE)
        r->failed = *err;
    k->n_done++;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

static void *run(void *userdata)
{
    struct rank *k = userdata;
    struct command c;

    while (next(k, &c)) {
        struct err err = {0};
        int result = execute(k, &c, &err);

        done(k, result, &err);
    }
    return NULL;
}

static bool all_done(const struct ranks *r)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->each[i].n_done != r->n_given)
            return false;
    return true;
}

/* Give everybody a command; wait until all have done everything. */
static int give(struct ranks *r, const struct command *c, bool wait, struct err *err)
{
    int result;

    if (r->n == 1)
        return execute(&r->each[0], c, err);
    (void)pthread_mutex_lock(&r->lock);
    r->queue[r->n_given++ % QUEUE] = *c;
    (void)pthread_cond_broadcast(&r->changed);
    while (wait && !all_done(r))
        (void)pthread_cond_wait(&r->changed, &r->lock);
    result = -(int)r->failed.code;
    if (result)
        *err = r->failed;
    (void)pthread_mutex_unlock(&r->lock);
    return result;
}

int ranks_submit(struct ranks *r, unsigned step, const struct step_plan *plan, struct err *err)
{
    struct command c = {.verb = SUBMIT, .step = step, .plan = plan};

    return give(r, &c, false, err);
}

int ranks_collect(struct ranks *r, unsigned step, int32_t *ret_tokens, struct err *err)
{
    struct command c = {.verb = COLLECT, .step = step, .ret_tokens = ret_tokens};

    return give(r, &c, true, err);
}

int ranks_logits(struct ranks *r, const struct step_plan *plan, float *ret_logits, struct err *err)
{
    struct command c = {.verb = LOGITS, .plan = plan, .ret_logits = ret_logits};

    return give(r, &c, true, err);
}

/* making them */

static uint32_t longest_row(const struct arch *a)
{
    uint32_t heads = a->n_heads * a->head_dim;
    uint32_t n = a->width > heads ? a->width : heads;

    return n > a->n_ff ? n : a->n_ff;
}

static int open_devices(struct ranks *r, const struct arch *a, const struct model_options *o,
                        struct err *err)
{
    unsigned n_threads = o->n_threads ? o->n_threads : cpu_count();
    struct device_options d = {
            .name = o->device,
            .n_threads = n_threads > r->n ? n_threads / r->n : 1,
            .memory_fraction = o->memory_fraction > 0 ? o->memory_fraction : MODEL_MEMORY_FRACTION,
            .timeout_ms = o->step_timeout_ms ? o->step_timeout_ms : MODEL_STEP_TIMEOUT_MS,
            .no_lists = o->no_graphs,
            .shape = {.rows_max = DECODER_ROWS_MAX,
                      .n_heads = a->n_heads,
                      .n_kv_heads = a->n_kv_heads,
                      .head_dim = a->head_dim,
                      .n_vocab = a->n_vocab,
                      .row_max = longest_row(a)},
    };
    int result = 0;

    for (unsigned i = 0; i < r->n && result == 0; i++) {
        d.index = i;
        result = device_new(&d, &r->each[i].device, err);
        /* what "auto" took for the first holds for all */
        if (result == 0)
            d.name = device_is_host(r->each[0].device) && d.name[0] == 'a' ? "cpu" : d.name;
    }
    return result;
}

static int join(struct ranks *r, const struct arch *a, const struct model_options *o,
                struct err *err)
{
    struct communicator *ends[COMMUNICATOR_RANKS_MAX];
    size_t n_max = (size_t)DECODER_ROWS_MAX * a->width;
    uint64_t timeout_ms = o->step_timeout_ms ? o->step_timeout_ms : MODEL_STEP_TIMEOUT_MS;
    size_t n_logits;
    int result;

    if (r->n == 1)
        return 0;
    n_logits = (size_t)device_logit_rows(r->each[0].device) * r->each[0].shard.n_vocab_part;
    n_max = n_logits > n_max ? n_logits : n_max;
    if (device_is_host(r->each[0].device))
        result = communicator_new_threads(r->n, n_max, timeout_ms, ends, err);
    else
        result = communicator_new_nccl(r->n, ends, err);
    for (unsigned i = 0; i < r->n && result == 0; i++) {
        r->each[i].comm = ends[i];
        device_join(r->each[i].device, ends[i]);
    }
    return result;
}

/* Who computes what: known before any device is opened. */
static int share_out(struct ranks *r, const struct gguf *file, struct arch *a, struct err *err)
{
    uint32_t head_block, ff_block;
    int result = weights_survey(file, a, &head_block, &ff_block, err);

    for (unsigned i = 0; i < r->n && result == 0; i++)
        result = shard_make(a, i, r->n, head_block, ff_block, &r->each[i].shard, err);
    return result;
}

static int load(struct ranks *r, const struct gguf *file, const struct arch *a,
                const struct model_options *o, struct err *err)
{
    struct weights_rank to[COMMUNICATOR_RANKS_MAX];
    int result = join(r, a, o, err);

    for (unsigned i = 0; i < r->n; i++)
        to[i] = (struct weights_rank){r->each[i].shard, r->each[i].device, r->each[i].weights};
    return result == 0 ? weights_load(file, a, to, r->n, o, err) : result;
}

static int start(struct ranks *r, const struct arch *a, const struct model_options *o,
                 struct err *err)
{
    int result = 0;

    for (unsigned i = 0; i < r->n && result == 0; i++) {
        struct rank *k = &r->each[i];

        result = decoder_new(k->device, a, &k->shard, k->weights, o, &k->decoder, err);
    }
    for (unsigned i = 0; r->n > 1 && i < r->n && result == 0; i++) {
        if (pthread_create(&r->each[i].thread, NULL, run, &r->each[i]) != 0)
            result = err_set(err, ERR_UNAVAILABLE, "cannot start the thread of rank %u", i);
        else
            r->n_threads++;
    }
    return result;
}

int ranks_new(const struct gguf *file, struct arch *arch, const struct model_options *o,
              struct ranks **ret, struct err *err)
{
    CLEANUP(ranks_freep) struct ranks *r = mem_calloc(1, sizeof(*r));
    int result;

    if (!r)
        return err_set(err, ERR_NO_MEMORY, "ranks");
    r->n = o->n_ranks ? o->n_ranks : 1;
    ASSERT(r->n <= COMMUNICATOR_RANKS_MAX);
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    for (unsigned i = 0; i < r->n; i++) {
        r->each[i].all = r;
        r->each[i].weights = mem_calloc(1, sizeof(*r->each[i].weights));
        if (!r->each[i].weights)
            return err_set(err, ERR_NO_MEMORY, "ranks");
    }
    result = share_out(r, file, arch, err);
    if (result == 0)
        result = open_devices(r, arch, o, err);
    if (result == 0)
        result = load(r, file, arch, o, err);
    if (result == 0)
        result = start(r, arch, o, err);
    if (result < 0)
        return result;
    *ret = TAKE_PTR(r);
    return 0;
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->n_threads; i++)
        (void)pthread_join(r->each[i].thread, NULL);
    for (unsigned i = 0; i < r->n; i++) {
        decoder_free(r->each[i].decoder);
        device_free(r->each[i].device);
        communicator_free(r->each[i].comm);
        mem_free(r->each[i].weights);
    }
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    mem_free(r);
}

/* what is known of them */

const char *ranks_device_name(const struct ranks *r)
{
    return device_name(r->each[0].device);
}

unsigned ranks_count(const struct ranks *r)
{
    return r->n;
}

uint32_t ranks_kept_rows(const struct ranks *r, unsigned i)
{
    return decoder_kept_rows(r->each[0].decoder, i);
}

bool ranks_run_behind(const struct ranks *r)
{
    return !device_is_host(r->each[0].device);
}

uint64_t ranks_n_params(const struct ranks *r)
{
    return r->each[0].weights->n_params;
}

uint64_t ranks_weight_bytes(const struct ranks *r)
{
    return r->each[0].weights->bytes;
}

uint64_t ranks_block_bytes(const struct ranks *r, uint32_t group)
{
    uint64_t most = 0, sum = 0;

    for (unsigned i = 0; i < r->n; i++) {
        uint64_t bytes = decoder_group_bytes(r->each[i].decoder, group);

        most = bytes > most ? bytes : most;
        sum += bytes;
    }
    return device_is_host(r->each[0].device) ? sum : most;
}

uint64_t ranks_memory_left(const struct ranks *r)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < r->n; i++) {
        uint64_t left = device_memory_left(r->each[i].device);

        least = left < least ? left : least;
    }
    return least;
}

int ranks_kv_init(struct ranks *r, uint32_t group, uint32_t n_blocks, struct err *err)
{
    int result = 0;

    for (unsigned i = 0; i < r->n && result == 0; i++)
        result = decoder_kv_init(r->each[i].decoder, group, n_blocks, err);
    return result;
}
