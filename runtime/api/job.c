/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c - one generation from the API's side, from the handler to the end of its answer.
 *
 * The handler takes a place in the inbox before any work is spent, keeps the exchange and queues
 * the job for a text worker.  From then on only text workers touch it, one at a time (job.h): the
 * first visit prepares and sends the request, every later one turns new tokens into text and sends
 * it.  The engine and the HTTP watch thread do no more than set a flag and wake the job.
 */
#include "runtime/api/job.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/assertion.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { BYTES_PER_TOKEN_GUESS = 4 };

/* To the text workers; the job may be gone when this returns. */
static void hand_over(struct job *j)
{
    bool queued = mailbox_put(j->api->work, j);

    ASSERT(queued); /* the box has room for every job: jobs_max */
}

static void wake(struct job *j)
{
    int turn = atomic_load(&j->turn), next;

    do {
        if (turn == JOB_QUEUED || turn == JOB_HELD_AGAIN || turn == JOB_ENDED)
            return;
        next = turn == JOB_IDLE ? JOB_QUEUED : JOB_HELD_AGAIN;
    } while (!atomic_compare_exchange_weak(&j->turn, &turn, next));
    if (next == JOB_QUEUED)
        hand_over(j);
}

static void unref(struct job *j)
{
    struct api *a = j->api;

    if (atomic_fetch_sub(&j->refs, 1) != 1)
        return;
    if (j->holds_place)
        inbox_release(a->model.inbox, j->place_tokens);
    if (j->request)
        request_unref(j->request);
    stop_matcher_free(j->stops);
    params_release(&j->params);
    str_release(&j->text);
    mem_free(j);
    atomic_fetch_sub(&a->n_jobs, 1);
}

/* From the engine.  It publishes the finish itself, so seeing it here means: the last call. */
static void on_output(void *userdata)
{
    struct job *j = userdata;
    bool last = request_finish(j->request) != FINISH_NONE;

    wake(j);
    if (last)
        unref(j);
}

/* From the HTTP watch thread; never after the exchange's end. */
static void on_gone(void *userdata)
{
    struct job *j = userdata;

    atomic_store(&j->gone, true);
    wake(j);
}

static void make_id(struct job *j)
{
    unsigned char random[12] = {0};
    size_t n = (size_t)snprintf(j->id, sizeof(j->id), "%s", j->chat ? "chatcmpl-" : "cmpl-");

    (void)!getrandom(random, sizeof(random), 0);
    for (size_t i = 0; i < sizeof(random); i++)
        n += (size_t)snprintf(j->id + n, sizeof(j->id) - n, "%02x", random[i]);
}

static const char *endpoint(const struct job *j)
{
    return j->chat ? "/v1/chat/completions" : "/v1/completions";
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

static void log_request(const struct job *j, int status, const char *finish)
{
    const struct request *r = j->request;
    uint64_t arrival = http_exchange_arrival_ns(j->x);

    log_info(j->api->o.logger, "request", F_STR("request_id", j->id), F_STR("path", endpoint(j)),
             F_I64("status", status), F_STR("finish", finish),
             F_U64("prompt_tokens", r ? r->n_prompt : 0), F_U64("completion_tokens", j->n_counted),
             F_F64("queue_ms", r ? ms_between(r->queued_ns, r->scheduled_ns) : 0),
             F_F64("ttft_ms", r ? ms_between(arrival, r->first_token_ns) : 0),
             F_F64("total_ms", ms_between(arrival, clock_ns(clock_system()))),
             F_U64("preemptions", r ? r->n_preemptions : 0));
}

static void count_answer(struct job *j, int status, const char *finish)
{
    struct runtime_metrics *m = j->api->o.metrics;
    uint64_t arrival = http_exchange_arrival_ns(j->x);

    log_request(j, status, finish);
    runtime_metrics_answer(m, endpoint(j), status);
    metric_add(m->requests_all, 1);
    if (status >= 500)
        metric_add(m->requests_failed, 1);
    metric_observe(m->request_seconds, ms_between(arrival, clock_ns(clock_system())) / 1e3);
}

/* The exchange has ended. */
static void end_job(struct job *j)
{
    atomic_store(&j->turn, JOB_ENDED);
    unref(j);
}

static void fail(struct job *j, const struct api_error *e)
{
    count_answer(j, e->status, "error");
    answer_error(j, e);
    end_job(j);
}

/* The client left.  Nobody reads an answer, but the exchange must be ended. */
static void give_up(struct job *j)
{
    struct api_error e;

    (void)api_error_set(&e, 499, "canceled", NULL, "the client left");
    count_answer(j, e.status, "canceled");
    answer_error(j, &e);
    end_job(j);
}

static void finish(struct job *j, enum finish_reason why)
{
    bool whole = j->stopped || why == FINISH_STOP || why == FINISH_LENGTH;
    const char *reason = why == FINISH_LENGTH && !j->stopped ? "length" : "stop";
    struct api_error e;

    if (j->text.failed) { /* an answer with a gap is none */
        (void)api_error_from(&e, &(struct err){ERR_NO_MEMORY, "out of memory"});
        fail(j, &e);
    } else if (whole) {
        count_answer(j, 200, reason);
        answer_finish(j, reason);
        end_job(j);
    } else if (why == FINISH_CANCELED) {
        (void)api_error_set(&e, 503, "canceled", NULL, "the server is shutting down");
        e.retry_after_ms = 1000;
        fail(j, &e);
    } else {
        (void)api_error_set(&e, 500, "internal_error", NULL,
                            "the model failed to compute this request");
        fail(j, &e);
    }
}

/* New tokens to text; stops reading at a stop string. */
static void read_tokens(struct job *j)
{
    const struct request *r = j->request;
    uint32_t n = request_n_output(r);

    for (; j->n_read < n && !j->stopped; j->n_read++) {
        CLEANUP(str_release) struct str piece = STR_INIT(JOB_TEXT_MAX);
        size_t which;

        detokenizer_add(&j->detok, r->tokens[r->n_prompt + j->n_read], &piece);
        j->n_counted++;
        if (!j->stops)
            str_add(&j->text, str_text(&piece), piece.len);
        else
            j->stopped = stop_matcher_add(j->stops, str_text(&piece), piece.len, &j->text, &which);
    }
}

static void flush_tail(struct job *j)
{
    CLEANUP(str_release) struct str piece = STR_INIT(64);
    size_t which;

    if (j->stopped)
        return;
    detokenizer_finish(&j->detok, &piece);
    if (!j->stops) {
        str_add(&j->text, str_text(&piece), piece.len);
        return;
    }
    j->stopped = stop_matcher_add(j->stops, str_text(&piece), piece.len, &j->text, &which);
    if (!j->stopped)
        stop_matcher_finish(j->stops, &j->text);
}

/* False: it failed, the job is gone. */
static bool send_request(struct job *j)
{
    struct api_error e;

    if (job_prepare(j, &e) != 0) {
        fail(j, &e);
        return false;
    }
    j->request->on_output = on_output;
    j->request->userdata = j;
    atomic_fetch_add(&j->refs, 1); /* the engine's, until its last call */
    j->holds_place = false;        /* the engine's, too */
    if (inbox_send(j->api->model.inbox, j->request))
        return true;
    atomic_fetch_sub(&j->refs, 1);
    j->holds_place = true;
    (void)api_error_set(&e, 503, "unavailable", NULL, "the server is shutting down");
    e.retry_after_ms = 1000;
    fail(j, &e);
    return false;
}

/* One look at a job that has its request in the engine.  False: it ended, the job is gone. */
static bool follow(struct job *j)
{
    enum finish_reason why = request_finish(j->request); /* before the tokens: then all are there */

    if (atomic_load(&j->gone))
        request_end(j->request, FINISH_CANCELED);
    else
        read_tokens(j);
    if (j->stopped)
        request_end(j->request, FINISH_STOP);
    if (why == FINISH_NONE) {
        /* a partial character, or a held back stop prefix, makes no chunk */
        if (!atomic_load(&j->gone) && !j->stopped && (j->text.len || (j->n_read && !j->streaming)))
            answer_chunk(j);
        return true;
    }
    if (atomic_load(&j->gone)) {
        give_up(j);
    } else {
        flush_tail(j);
        finish(j, why);
    }
    return false;
}

/* Done for now: idle, or once more if something happened meanwhile. */
static void let_go(struct job *j)
{
    int held = JOB_HELD;

    if (atomic_compare_exchange_strong(&j->turn, &held, JOB_IDLE))
        return;
    atomic_store(&j->turn, JOB_QUEUED);
    hand_over(j);
}

void job_work(struct job *j)
{
    bool goes_on;

    atomic_store(&j->turn, JOB_HELD);
    if (j->request) {
        goes_on = follow(j);
    } else if (atomic_load(&j->gone)) {
        give_up(j);
        goes_on = false;
    } else {
        goes_on = send_request(j);
    }
    if (goes_on)
        let_go(j);
}

static int take_place(struct api *a, size_t body_len, uint64_t *ret_tokens, struct api_error *e)
{
    struct err err;

    if (!atomic_load(&a->has_model)) {
        metric_add(a->o.metrics->rejected[REJECT_LOADING], 1);
        (void)api_error_set(e, 503, "loading", NULL, "the model is still loading");
        e->retry_after_ms = 2000;
        return -1;
    }
    if (atomic_load(&a->refusing)) {
        metric_add(a->o.metrics->rejected[REJECT_DRAINING], 1);
        (void)api_error_set(e, 503, "draining", NULL, "the server is shutting down");
        e->retry_after_ms = 1000;
        return -1;
    }
    *ret_tokens = body_len / BYTES_PER_TOKEN_GUESS;
    if (inbox_reserve(a->model.inbox, *ret_tokens, &err) == 0)
        return 0;
    metric_add(a->o.metrics->rejected[REJECT_QUEUE_FULL], 1);
    return api_error_from(e, &err);
}

/* A place among the API's jobs, which bounds what can stand in the workers' box: jobs whose client
 * left count until the engine let go of them, beside those of its next connections. */
static struct job *new_job(struct api *a, struct api_error *e)
{
    struct job *j = NULL;
    struct err err = {0};

    if (atomic_fetch_add(&a->n_jobs, 1) >= a->jobs_max)
        (void)err_set(&err, ERR_BUSY, "too many requests are under way");
    else if (!(j = mem_calloc(1, sizeof(*j))))
        (void)err_set(&err, ERR_NO_MEMORY, "out of memory");
    if (j)
        return j;
    atomic_fetch_sub(&a->n_jobs, 1);
    (void)api_error_from(e, &err);
    return NULL;
}

static void refuse(struct api *a, struct http_exchange *x, bool chat, const struct api_error *e)
{
    runtime_metrics_answer(a->o.metrics, chat ? "/v1/chat/completions" : "/v1/completions",
                           e->status);
    api_error_answer(e, x, NULL);
}

void job_start(struct api *a, struct http_exchange *x, bool chat)
{
    struct api_error e;
    uint64_t tokens = 0;
    struct job *j;
    size_t len;

    (void)http_exchange_body(x, &len);
    if (take_place(a, len, &tokens, &e) != 0) {
        refuse(a, x, chat, &e);
        return;
    }
    j = new_job(a, &e);
    if (!j) {
        inbox_release(a->model.inbox, tokens);
        refuse(a, x, chat, &e);
        return;
    }
    *j = (struct job){.api = a, .x = x, .chat = chat, .holds_place = true, .place_tokens = tokens};
    atomic_init(&j->refs, 1);
    atomic_init(&j->turn, JOB_QUEUED); /* so that no on_gone() queues it before it is complete */
    j->text.max = JOB_TEXT_MAX;
    j->created_s = clock_wall_ms(clock_system()) / 1000;
    make_id(j);
    http_exchange_keep(x, on_gone, j);
    hand_over(j);
}
