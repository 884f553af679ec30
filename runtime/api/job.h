/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/api/api_internal.h"
#include "runtime/api/params.h"
#include "runtime/request/request.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/stop_matcher.h"

/* One generation from the API's side.  Never with two text workers at once: 'turn' says where it
 * is, so wake-ups from the engine and the HTTP watch thread collapse into at most one more look.
 *
 *   JOB_IDLE --wake--> JOB_QUEUED --worker--> JOB_HELD --wake--> JOB_HELD_AGAIN
 *      ^------------------------------done-------'   <--done: QUEUED again---'
 *
 * JOB_ENDED: answered; a late wake-up from the engine finds nothing to do.  The engine's last
 * wake-up may come after that, hence two references.
 */
enum job_turn { JOB_IDLE, JOB_QUEUED, JOB_HELD, JOB_HELD_AGAIN, JOB_ENDED };

enum { JOB_ID_BYTES = 48, JOB_TEXT_MAX = 16 << 20 };

struct job {
    struct api *api;
    struct http_exchange *x;
    atomic_uint refs;
    atomic_int turn;
    atomic_bool gone; /* the client left */
    bool chat;
    bool holds_place; /* in the inbox, before the request was sent */
    uint64_t place_tokens;
    char id[JOB_ID_BYTES]; /* "chatcmpl-..." */
    uint64_t created_s;
    struct params params;
    struct request *request; /* NULL until the prompt is tokenised */
    struct detokenizer detok;
    struct stop_matcher *stops; /* NULL: none */
    uint32_t n_read;            /* output tokens looked at */
    uint32_t n_counted;         /* completion tokens: up to a stop string's end */
    bool stopped;               /* by a stop string */
    bool streaming;             /* the 200 and the first chunk are out */
    struct str text;            /* not yet sent; the whole answer when not streaming */
};

/* prepare.c: body to sent request.  0, or -1 with *e set. */
int job_prepare(struct job *j, struct api_error *e);
/* answer.c */
void answer_chunk(struct job *j); /* stream: send j->text as one chunk */
/* The end: last chunk, usage, [DONE]; or the whole JSON.  finish: "stop" or "length". */
void answer_finish(struct job *j, const char *finish);
/* The end, by an error: as an HTTP answer if nothing is out yet, else inside the stream. */
void answer_error(struct job *j, const struct api_error *e);
