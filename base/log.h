/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_JSON, LOG_TEXT };

struct log_field {
    const char *key; /* a constant of ours; NULL ends a list */
    enum { LOG_FIELD_STR, LOG_FIELD_I64, LOG_FIELD_U64, LOG_FIELD_F64, LOG_FIELD_BOOL } type;
    union {
        const char *str;
        int64_t i64;
        uint64_t u64;
        double f64;
        bool boolean;
    };
};

#define F_STR(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_STR, .str = (v)})
#define F_I64(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_I64, .i64 = (v)})
#define F_U64(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_U64, .u64 = (v)})
#define F_F64(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_F64, .f64 = (v)})
#define F_BOOL(k, v) ((struct log_field){.key = (k), .type = LOG_FIELD_BOOL, .boolean = (v)})
#define F_ERR(e) F_STR("error", (e)->msg)

/* One line a call on a descriptor (stderr), written with a single write(): lines of several
 * threads never mix.  JSON lines for machines; text for people.  Never prompts, tokens, secrets. */
struct logger;

/* The root logger.  Names and values are copied.  The level can be changed at any time, by any
 * thread; children follow their root's. */
int logger_new(int fd, enum log_format format, enum log_level level, struct logger **ret,
               struct err *err) MUST_CHECK;
/* A logger that adds fields to every line; free it before its parent. */
int logger_child(struct logger *parent, const struct log_field *fields, struct logger **ret,
                 struct err *err) MUST_CHECK;
void logger_free(struct logger *lg);
DEFINE_FREEP(logger)
void logger_set_level(struct logger *lg, enum log_level level);
/* -1: not a level's or format's name */
int log_level_parse(const char *name, enum log_level *ret);
int log_format_parse(const char *name, enum log_format *ret);

/* msg is a constant; what varies goes in fields.  A NULL logger drops the line. */
#define log_error(lg, msg, ...) LOG_AT(lg, LOG_ERROR, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(lg, msg, ...) LOG_AT(lg, LOG_WARN, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_info(lg, msg, ...) LOG_AT(lg, LOG_INFO, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_debug(lg, msg, ...) LOG_AT(lg, LOG_DEBUG, msg __VA_OPT__(, ) __VA_ARGS__)
#define LOG_AT(lg, level, msg, ...)                                                         \
    do {                                                                                    \
        if (log_enabled(lg, level))                                                         \
            log_write(lg, level, msg,                                                       \
                      (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}}); \
    } while (0)

bool log_enabled(const struct logger *lg, enum log_level level);
void log_write(const struct logger *lg, enum log_level level, const char *msg,
               const struct log_field *fields);
