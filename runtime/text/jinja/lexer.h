/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A template's source as tokens, with trim_blocks, lstrip_blocks and every "-" and "+" of the tags
 * applied already.  Private to runtime/text. */
struct arena;

enum jinja_token_kind {
    JINJA_TOKEN_TEXT,         /* between tags */
    JINJA_TOKEN_OUTPUT_BEGIN, /* {{ */
    JINJA_TOKEN_OUTPUT_END,
    JINJA_TOKEN_BLOCK_BEGIN, /* {% */
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STR, /* escapes undone */
    JINJA_TOKEN_INT,
    JINJA_TOKEN_FLOAT,
    JINJA_TOKEN_OP,
    JINJA_TOKEN_END,
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    const char *text; /* in the arena */
    size_t len;
    union {
        int64_t integer;
        double number;
    };
};

struct jinja_tokens {
    struct jinja_token *items; /* the last one is JINJA_TOKEN_END; in the arena */
    size_t n;
};

/* Errors name the line.  ERR_NO_MEMORY as well when the arena is full. */
int jinja_lex(struct arena *arena, const char *source, size_t len, struct jinja_tokens *ret,
              struct err *err) MUST_CHECK;
