/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c - one line an event.
 *
 * A line is built in a buffer on the stack and leaves in one write(), so lines of several threads
 * never mix and no lock is needed.  A line that is too long loses whole fields, never half of one,
 * and says so.  Strings are escaped by JSON's rules in both formats: a log line cannot be forged
 * by a newline or an escape sequence in a value.
 */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/mem.h"

enum { LINE_MAX_BYTES = 8192, FIELD_TEXT_MAX = 2048 };

struct logger {
    struct logger *root; /* itself, for the root */
    int fd;
    enum log_format format;
    atomic_int level; /* root's counts */
    char *fields;     /* rendered fields of the child and its parents */
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static void add_value(struct str *out, const struct log_field *f)
{
    switch (f->type) {
    case LOG_FIELD_STR:
        if (f->str)
            json_escape(out, f->str, strnlen(f->str, FIELD_TEXT_MAX));
        else
            str_adds(out, "null");
        break;
    case LOG_FIELD_I64:
        str_addf(out, "%lld", (long long)f->i64);
        break;
    case LOG_FIELD_U64:
        str_addf(out, "%llu", (unsigned long long)f->u64);
        break;
    case LOG_FIELD_F64: {
        struct json_writer w = json_writer_start(out);

        json_f64(&w, f->f64);
        break;
    }
    case LOG_FIELD_BOOL:
        str_adds(out, f->boolean ? "true" : "false");
        break;
    }
}

/* ,"key":value  or  " key=value" */
static void add_field(struct str *out, enum log_format format, const struct log_field *f)
{
    if (format == LOG_JSON)
        str_addf(out, ",\"%s\":", f->key);
    else
        str_addf(out, " %s=", f->key);
    add_value(out, f);
}

int logger_new(int fd, enum log_format format, enum log_level level, struct logger **ret,
               struct err *err)
{
    struct logger *lg = mem_calloc(1, sizeof(*lg));

    if (!lg)
        return err_set(err, ERR_NO_MEMORY, "logger");
    lg->root = lg;
    lg->fd = fd;
    lg->format = format;
    atomic_init(&lg->level, (int)level);
    *ret = lg;
    return 0;
}

int logger_child(struct logger *parent, const struct log_field *fields, struct logger **ret,
                 struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(LINE_MAX_BYTES / 2);
    struct logger *lg;

    if (parent->fields)
        str_adds(&text, parent->fields);
    for (; fields->key; fields++)
        add_field(&text, parent->format, fields);
    if (str_check(&text, "log fields", err) != 0)
        return -(int)err->code;
    lg = mem_calloc(1, sizeof(*lg));
    if (!lg)
        return err_set(err, ERR_NO_MEMORY, "logger");
    *lg = (struct logger){.root = parent->root, .fd = parent->fd, .format = parent->format};
    lg->fields = str_take(&text);
    if (!lg->fields) {
        mem_free(lg);
        return err_set(err, ERR_NO_MEMORY, "logger");
    }
    *ret = lg;
    return 0;
}

void logger_free(struct logger *lg)
{
    if (!lg)
        return;
    mem_free(lg->fields);
    mem_free(lg);
}

void logger_set_level(struct logger *lg, enum log_level level)
{
    atomic_store_explicit(&lg->root->level, (int)level, memory_order_relaxed);
}

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int log_level_parse(const char *name, enum log_level *ret)
{
    int i = find_name(level_names, 4, name);

    if (i < 0)
        return -1;
    *ret = (enum log_level)i;
    return 0;
}

int log_format_parse(const char *name, enum log_format *ret)
{
    static const char *const names[] = {"json", "text"};
    int i = find_name(names, 2, name);

    if (i < 0)
        return -1;
    *ret = (enum log_format)i;
    return 0;
}

bool log_enabled(const struct logger *lg, enum log_level level)
{
    return lg && (int)level <= atomic_load_explicit(&lg->root->level, memory_order_relaxed);
}

static void add_head(struct str *out, const struct logger *lg, enum log_level level,
                     const char *msg)
{
    char now[CLOCK_TEXT_BYTES];

    clock_rfc3339_micro(clock_wall_ms(clock_system()), now);
    if (lg->format == LOG_JSON) {
        str_addf(out, "{\"time\":\"%s\",\"level\":\"%s\",\"msg\":", now, level_names[level]);
        json_escape(out, msg, strlen(msg));
    } else {
        str_addf(out, "%.8s %-5s %s", now + 11, level_names[level], msg);
    }
}

void log_write(const struct logger *lg, enum log_level level, const char *msg,
               const struct log_field *fields)
{
    CLEANUP(str_release) struct str line = STR_INIT(LINE_MAX_BYTES);
    bool cut = false;

    add_head(&line, lg, level, msg);
    if (lg->fields)
        str_adds(&line, lg->fields);
    for (; fields->key; fields++) {
        struct str one = STR_INIT(LINE_MAX_BYTES);

        add_field(&one, lg->format, fields);
        if (one.failed || line.len + one.len > LINE_MAX_BYTES - 64)
            cut = true;
        else
            str_add(&line, one.data, one.len);
        str_release(&one);
    }
    if (cut)
        add_field(&line, lg->format, &F_BOOL("fields_dropped", true));
    str_adds(&line, lg->format == LOG_JSON ? "}\n" : "\n");
    if (!line.failed)
        (void)!write(lg->fd, line.data, line.len);
}
