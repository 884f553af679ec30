/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c - the thread that turns requests into tokens.
 *
 * One loop: take what arrived, drop what was cancelled, ask schedule() what the next step
 * computes, move the blocks, have the model compute the plan, publish the tokens.  Everything it
 * touches is its own, so there is no lock; the outside sees a request's published counters and
 * the metrics, and reaches in by the inbox and by a request's cancel flag alone.
 *
 * Waiting and running sequences stand in two arrays in order of arrival.  A preempted one goes
 * back to the front of the waiting, where its arrival puts it anyway.
 *
 * Where the device computes behind our back, the next step is planned and submitted before the
 * tokens of this one are known: the plan says "what this slot drew last" in their place.  A
 * sequence whose last token is being drawn waits among the closing.  One that turns out to have
 * ended at a stop token is in one step too many; that token is dropped, and since steps run in
 * order, its blocks can be given away at once.  Nobody is preempted on such a guess: when blocks
 * run out, the step under way is collected first.
 */
#include "runtime/engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/engine/batch.h"
#include "runtime/engine/schedule.h"
#include "runtime/engine/sequence.h"

enum { WAITING_FIRST = 64, IDLE_MS = 1000 };

struct engine {
    struct engine_options o;
    pthread_t thread;
    atomic_bool abort, device_lost;
    struct err failure; /* written once, before health says it */
    atomic_uint n_in_engine;
    uint32_t n_groups;
    struct kv_pool *pools[PLAN_GROUPS_MAX];
    struct batch *batches[MODEL_STEPS];
    unsigned batch_at; /* the one to fill next */
    bool is_flying;    /* the other one is submitted and not collected */
    struct model_ticket ticket;
    struct sequence **running; /* [sequences_max], oldest first */
    uint32_t n_running;
    struct sequence **closing; /* [sequences_max]: their last token is being computed */
    uint32_t n_closing;
    struct sequence **waiting; /* oldest first */
    uint32_t n_waiting, cap_waiting;
    uint32_t *free_slots;
    uint32_t n_free_slots;
    struct sched_seq *sched_running, *sched_waiting; /* what schedule() reads */
    uint32_t cap_sched_waiting;
    struct sched_output plan;
    int32_t *sampled; /* [sequences_max] */
    uint64_t next_order;
};

static uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* metrics */

static void set_gauges(struct engine *e)
{
    double fullest = 0;
    uint32_t used = 0;

    for (uint32_t g = 0; g < e->n_groups; g++) {
        uint32_t n = kv_pool_n_blocks(e->pools[g]), taken = n - kv_pool_n_free(e->pools[g]);
        double share = (double)taken / n;

        used += taken;
        fullest = share > fullest ? share : fullest;
    }
    metric_set(e->o.metrics->running, e->n_running + e->n_closing);
    metric_set(e->o.metrics->kv_usage, fullest);
    metric_set(e->o.metrics->kv_blocks_used, used);
    metric_set(e->o.metrics->in_progress, e->n_running + e->n_closing + inbox_waiting(e->o.inbox));
}

static void count_finish(struct engine *e, const struct request *r, enum finish_reason why)
{
    static const int index[] = {
            [FINISH_STOP] = 0, [FINISH_LENGTH] = 1, [FINISH_CANCELED] = 2, [FINISH_ERROR] = 3};

    metric_add(e->o.metrics->finished[index[why]], 1);
    if (r->first_token_ns)
        metric_observe(e->o.metrics->decode_seconds, seconds(r->first_token_ns, r->finished_ns));
}

/* the ends of a sequence's life */

static void leave_queue(struct engine *e, struct sequence *s)
{
    if (s->in_queue)
        inbox_release(e->o.inbox, s->request->n_prompt);
    s->in_queue = false;
}

/* Publish the end; the sequence is in none of the arrays any more. */
static void end_sequence(struct engine *e, struct sequence *s, enum finish_reason why)
{
    struct request *r = s->request;

    leave_queue(e, s);
    for (unsigned i = 0; i < MODEL_STEPS; i++)
        batch_forget(e->batches[i], s);
    sequence_drop_blocks(s, e->pools);
    sequence_free(s);
    r->finished_ns = now_ns();
    count_finish(e, r, why);
    atomic_fetch_sub(&e->n_in_engine, 1);
    atomic_store_explicit(&r->finish, (int)why, memory_order_release);
    if (r->on_output)
        r->on_output(r->userdata);
    request_unref(r);
}

static bool grow_waiting(struct engine *e)
{
    uint32_t cap = e->cap_waiting ? e->cap_waiting * 2 : WAITING_FIRST;
    struct sequence **more;
    struct sched_seq *sched;

    if (e->n_waiting + e->o.sequences_max < e->cap_waiting)
        return true; /* room for all running ones to be preempted, too */
    while (cap <= e->n_waiting + e->o.sequences_max)
        cap *= 2;
    more = mem_realloc(e->waiting, cap * sizeof(*more));
    if (!more)
        return false;
    e->waiting = more;
    sched = mem_realloc(e->sched_waiting, cap * sizeof(*sched));
    if (!sched)
        return false;
    e->sched_waiting = sched;
    e->cap_waiting = cap;
    return true;
}

/* A request that cannot even be queued ends at once. */
static void refuse_request(struct engine *e, struct request *r)
{
    inbox_release(e->o.inbox, r->n_prompt);
    r->finished_ns = now_ns();
    count_finish(e, r, FINISH_ERROR);
    atomic_store_explicit(&r->finish, FINISH_ERROR, memory_order_release);
    if (r->on_output)
        r->on_output(r->userdata);
    request_unref(r);
}

static void take_request(struct engine *e, struct request *r)
{
    struct sequence *s = NULL;
    struct err err;

    r->queued_ns = now_ns();
    if (!grow_waiting(e) ||
        sequence_new(r, e->next_order++, e->n_groups, MODEL_BLOCK_SIZE, &s, &err) != 0) {
        refuse_request(e, r);
        return;
    }
    atomic_fetch_add(&e->n_in_engine, 1);
    e->waiting[e->n_waiting++] = s;
}

/* Take what arrived; wait for it when there is nothing else to do. */
static void take_requests(struct engine *e)
{
    bool idle = e->n_running == 0 && e->n_waiting == 0 && !e->is_flying;
    struct request *r = inbox_take(e->o.inbox, idle ? IDLE_MS : 0);

    for (; r; r = inbox_take(e->o.inbox, 0))
        take_request(e, r);
}

static void free_slot(struct engine *e, const struct sequence *s)
{
    e->free_slots[e->n_free_slots++] = s->slot;
}

/* Why a sequence must end now; FINISH_NONE: it need not. */
static enum finish_reason over(const struct engine *e, const struct sequence *s)
{
    if (atomic_load(&e->device_lost))
        return FINISH_ERROR;
    if (atomic_load(&e->abort))
        return FINISH_CANCELED;
    return (enum finish_reason)atomic_load(&s->request->cancel);
}

/* End those of an array that nobody waits for any more, keeping the order of the rest. */
static void drop_from(struct engine *e, struct sequence **all, uint32_t *n, bool has_slot)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < *n; i++) {
        struct sequence *s = all[i];
        enum finish_reason why = over(e, s);

        if (why == FINISH_NONE) {
            all[kept++] = s;
            continue;
        }
        if (has_slot)
            free_slot(e, s);
        end_sequence(e, s, why);
    }
    *n = kept;
}

static void drop_cancelled(struct engine *e)
{
    drop_from(e, e->running, &e->n_running, true);
    drop_from(e, e->closing, &e->n_closing, true);
    drop_from(e, e->waiting, &e->n_waiting, false);
}

/* planning */

static void make_plan(struct engine *e, struct sched_input *in)
{
    const struct model_info *info = model_info(e->o.model);

    *in = (struct sched_input){
            .limits = {.sequences_max = e->o.sequences_max - e->n_closing,
                       .tokens_max = e->o.tokens_max,
                       .block_size = MODEL_BLOCK_SIZE,
                       .n_groups = e->n_groups},
            .running = e->sched_running,
            .n_running = e->n_running,
            .waiting = e->sched_waiting,
            .n_waiting = e->n_waiting,
    };
    for (uint32_t g = 0; g < e->n_groups; g++)
        in->groups[g] = (struct sched_group){.window = info->groups[g].window,
                                             .n_free = kv_pool_n_free(e->pools[g]),
                                             .n_blocks = kv_pool_n_blocks(e->pools[g])};
    for (uint32_t i = 0; i < e->n_running; i++)
        e->sched_running[i] = e->running[i]->sched;
    for (uint32_t i = 0; i < e->n_waiting; i++)
        e->sched_waiting[i] = e->waiting[i]->sched;
    schedule(in, &e->plan);
}

/* The youngest running ones go back to the front of the queue, in order. */
static void preempt(struct engine *e)
{
    uint32_t n = e->n_running - e->plan.n_kept;

    if (n == 0)
        return;
    memmove(e->waiting + n, e->waiting, e->n_waiting * sizeof(*e->waiting));
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *s = e->running[e->plan.n_kept + i];

        sequence_drop_blocks(s, e->pools);
        free_slot(e, s);
        s->request->n_preemptions++;
        s->in_queue = true;
        inbox_return(e->o.inbox, s->request->n_prompt);
        e->waiting[i] = s;
    }
    e->n_waiting += n;
    e->n_running -= n;
    metric_add(e->o.metrics->preemptions, n);
}

static void admit(struct engine *e)
{
    uint64_t now = now_ns();

    for (uint32_t i = 0; i < e->plan.n_admitted; i++) {
        struct sequence *s = e->waiting[i];

        s->slot = e->free_slots[--e->n_free_slots];
        if (s->request->scheduled_ns == 0) {
            s->request->scheduled_ns = now;
            metric_observe(e->o.metrics->queue_seconds, seconds(s->request->queued_ns, now));
            metric_add(e->o.metrics->prompt_tokens, s->request->n_prompt);
        }
        leave_queue(e, s);
        e->running[e->n_running++] = s;
    }
    e->n_waiting -= e->plan.n_admitted;
    memmove(e->waiting, e->waiting + e->plan.n_admitted, e->n_waiting * sizeof(*e->waiting));
}

static struct batch *fill_batch(struct engine *e, const struct sched_input *in)
{
    struct batch *b = e->batches[e->batch_at];

    batch_clear(b);
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->plan.n_new[i])
            sequence_give_behind(e->running[i], e->pools, in, e->plan.n_new[i]);
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->plan.n_new[i])
            sequence_take_ahead(e->running[i], e->pools, in, e->plan.n_new[i]);
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->plan.n_new[i])
            batch_add(b, e->running[i], e->plan.n_new[i]);
    return b;
}

/* The step is on its way: its tokens count as computed, what it draws as known.  Who draws the last
 * token it may have has nothing left to plan. */
static void advance(struct engine *e, const struct batch *b)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < e->n_running; i++)
        e->running[i]->sched.n_computed += e->plan.n_new[i];
    for (uint32_t i = 0; i < b->plan.n_samples; i++)
        b->sampled[i]->sched.n_tokens++;
    for (uint32_t i = 0; i < e->n_running; i++) {
        struct sequence *s = e->running[i];

        if (s->sched.n_tokens == s->request->n_prompt + s->request->max_tokens)
            e->closing[e->n_closing++] = s;
        else
            e->running[kept++] = s;
    }
    e->n_running = kept;
}

/* results */

static bool is_end(const struct request *r, int32_t token)
{
    for (uint32_t i = 0; i < r->n_end_ids && !r->ignore_eos; i++)
        if (r->end_ids[i] == token)
            return true;
    return false;
}

static void time_token(struct engine *e, struct sequence *s, uint64_t now)
{
    struct request *r = s->request;

    if (r->first_token_ns == 0) {
        r->first_token_ns = now;
        metric_observe(e->o.metrics->ttft, seconds(r->arrival_ns, now));
        metric_observe(e->o.metrics->prefill_seconds, seconds(r->scheduled_ns, now));
    } else {
        metric_observe(e->o.metrics->itl, seconds(s->last_token_ns, now));
    }
    s->last_token_ns = now;
}

/* Append and publish one token; what ends the sequence, or FINISH_NONE. */
static enum finish_reason publish(struct engine *e, struct sequence *s, int32_t token, uint64_t now)
{
    struct request *r = s->request;
    uint32_t n = atomic_load_explicit(&r->n_output, memory_order_relaxed);

    if (token == MODEL_TOKEN_BAD)
        return FINISH_ERROR;
    r->tokens[r->n_prompt + n] = token;
    time_token(e, s, now);
    metric_add(e->o.metrics->generated_tokens, 1);
    atomic_store_explicit(&r->n_output, n + 1, memory_order_release);
    if (is_end(r, token))
        return FINISH_STOP;
    if (n + 1 == r->max_tokens)
        return FINISH_LENGTH;
    if (r->on_output)
        r->on_output(r->userdata);
    return FINISH_NONE;
}

static bool remove_from(struct sequence **all, uint32_t *n, const struct sequence *s)
{
    uint32_t i = 0;

    while (i < *n && all[i] != s)
        i++;
    if (i == *n)
        return false;
    memmove(all + i, all + i + 1, (*n - i - 1) * sizeof(struct sequence *));
    --*n;
    return true;
}

static void apply_results(struct engine *e, const struct batch *b)
{
    uint64_t now = now_ns();

    metric_add(e->o.metrics->tokens, b->plan.n_tokens);
    metric_observe(e->o.metrics->batch_sequences, b->plan.n_seqs);
    metric_observe(e->o.metrics->batch_tokens, b->plan.n_tokens);
    for (uint32_t i = 0; i < b->plan.n_samples; i++) {
        struct sequence *s = b->sampled[i]; /* NULL: ended meanwhile */
        enum finish_reason why = s ? publish(e, s, e->sampled[i], now) : FINISH_NONE;
        bool was_there;

        if (why == FINISH_NONE)
            continue;
        was_there = remove_from(e->running, &e->n_running, s) ||
                    remove_from(e->closing, &e->n_closing, s);
        ASSERT(was_there);
        free_slot(e, s);
        end_sequence(e, s, why);
    }
}

static void lose_device(struct engine *e, const struct err *err)
{
    log_error(e->o.logger, "the device failed; every request ends and the pod must restart",
              F_ERR(err));
    if (!atomic_exchange(&e->device_lost, true))
        e->failure = *err;
    health_set_phase(e->o.health, HEALTH_FAILED);
    metric_set(e->o.metrics->ready, 0);
}

/* The step under way, to its end. */
static void collect(struct engine *e)
{
    struct batch *b = e->batches[(e->batch_at + 1) % MODEL_STEPS];
    struct err err;

    if (!e->is_flying)
        return;
    e->is_flying = false;
    if (model_collect(e->o.model, e->ticket, e->sampled, &err) != 0)
        lose_device(e, &err);
    else
        apply_results(e, b);
}

/* Submit what is in the batch, then collect the step before it. */
static void launch(struct engine *e, struct batch *b)
{
    struct model_ticket ticket;
    struct err err;

    if (model_submit(e->o.model, &b->plan, &ticket, &err) != 0) {
        lose_device(e, &err);
        return;
    }
    advance(e, b);
    collect(e);
    if (atomic_load(&e->device_lost))
        return;
    e->ticket = ticket;
    e->is_flying = true;
    e->batch_at = (e->batch_at + 1) % MODEL_STEPS;
    if (!e->o.runs_ahead)
        collect(e);
}

static void step(struct engine *e)
{
    struct sched_input in;

    make_plan(e, &in);
    health_step_begin(e->o.health, now_ns());
    if (e->is_flying && (e->plan.n_kept < e->n_running || e->plan.n_tokens == 0)) {
        collect(e); /* it may give back what is missing */
    } else {
        preempt(e);
        admit(e);
        if (e->plan.n_tokens > 0) {
            struct batch *b = fill_batch(e, &in);

            set_gauges(e);
            launch(e, b);
        }
    }
    health_step_end(e->o.health);
}

static void *run(void *userdata)
{
    struct engine *e = userdata;

    while (!atomic_load(&e->abort) || e->n_running || e->n_closing || e->n_waiting ||
           inbox_waiting(e->o.inbox)) {
        take_requests(e);
        drop_cancelled(e);
        if (e->n_running || e->n_waiting || e->is_flying)
            step(e);
        set_gauges(e);
    }
    collect(e);
    return NULL;
}

static int allocate(struct engine *e, struct err *err)
{
    const struct model_info *info = model_info(e->o.model);
    uint32_t n = e->o.sequences_max, tables = 0;
    int r = 0;

    e->n_groups = info->n_groups;
    for (uint32_t g = 0; g < e->n_groups && r == 0; g++) {
        r = kv_pool_new(e->o.n_blocks[g], &e->pools[g], err);
        /* a table entry is a block of the sequence, or one that a window left behind */
        tables += (info->context_max + MODEL_BLOCK_SIZE - 1) / MODEL_BLOCK_SIZE;
    }
    for (unsigned i = 0; i < MODEL_STEPS && r == 0; i++)
        r = batch_new(e->o.tokens_max, n, n * tables, &e->batches[i], err);
    if (r)
        return r;
    e->closing = mem_calloc(n, sizeof(*e->closing));
    e->running = mem_calloc(n, sizeof(*e->running));
    e->free_slots = mem_calloc(n, sizeof(*e->free_slots));
    e->sched_running = mem_calloc(n, sizeof(*e->sched_running));
    e->sampled = mem_calloc(n, sizeof(*e->sampled));
    if (!e->running || !e->closing || !e->free_slots || !e->sched_running || !e->sampled ||
        !grow_waiting(e))
        return err_set(err, ERR_NO_MEMORY, "engine for %u sequences", n);
    for (uint32_t i = 0; i < n; i++)
        e->free_slots[e->n_free_slots++] = n - 1 - i;
    r = model_kv_init(e->o.model, e->o.n_blocks, err);
    return r == 0 ? model_warm_up(e->o.model, err) : r;
}

static void destroy(struct engine *e)
{
    for (uint32_t g = 0; g < PLAN_GROUPS_MAX; g++)
        kv_pool_free(e->pools[g]);
    for (unsigned i = 0; i < MODEL_STEPS; i++)
        batch_free(e->batches[i]);
    mem_free(e->closing);
    mem_free(e->running);
    mem_free(e->waiting);
    mem_free(e->free_slots);
    mem_free(e->sched_running);
    mem_free(e->sched_waiting);
    mem_free(e->sampled);
    mem_free(e);
}

int engine_start(const struct engine_options *o, struct engine **ret, struct err *err)
{
    struct engine *e = mem_calloc(1, sizeof(*e));
    int r;

    ASSERT(o->sequences_max > 0 && o->sequences_max <= SCHED_RUNNING_MAX);
    ASSERT(o->tokens_max >= o->sequences_max);
    if (!e)
        return err_set(err, ERR_NO_MEMORY, "engine");
    e->o = *o;
    r = allocate(e, err);
    if (r == 0 && pthread_create(&e->thread, NULL, run, e) != 0)
        r = err_set(err, ERR_UNAVAILABLE, "cannot start the engine's thread");
    if (r) {
        destroy(e);
        return r;
    }
    *ret = e;
    return 0;
}

void engine_abort(struct engine *e)
{
    atomic_store(&e->abort, true);
    inbox_wake(e->o.inbox);
}

const struct err *engine_failure(const struct engine *e)
{
    return &e->failure;
}

uint32_t engine_in_progress(const struct engine *e)
{
    return atomic_load(&e->n_in_engine) + inbox_waiting(e->o.inbox);
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    engine_abort(e);
    (void)pthread_join(e->thread, NULL);
    destroy(e);
}
