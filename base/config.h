/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* One option table drives everything: flag = environment = config file = --help = docs.
 *   --max-num-seqs 64 | --max-num-seqs=64    PENSTOCK_MAX_NUM_SEQS=64    max-num-seqs: 64
 * Later wins: default, file, environment, flag.  Unknown flags, unknown PENSTOCK_ variables and
 * unknown file keys are errors that suggest the nearest name. */

enum option_type {
    OPTION_STR,    /* char *, owned (mem_free) */
    OPTION_BOOL,   /* bool; flag alone = true, also --no-NAME */
    OPTION_I64,    /* int64_t, min..max */
    OPTION_F64,    /* double, min..max */
    OPTION_BYTES,  /* int64_t; accepts 512MiB, 2GiB, 1G */
    OPTION_MS,     /* int64_t milliseconds; accepts 300ms, 10s, 5m, 1h, plain seconds */
    OPTION_CHOICE, /* char *, owned; one of choices */
    OPTION_LIST,   /* struct option_list: may be given again; in a file a sequence */
};

struct option_list {
    char **items;
    size_t n;
};

enum { OPTION_ALIASES_MAX = 5, OPTION_LIST_MAX = 64 };

struct option {
    const char *name; /* without dashes */
    enum option_type type;
    size_t offset;        /* offsetof() in the options struct */
    const char *fallback; /* default as text, NULL = unset */
    double min, max;      /* numbers; both 0 = unbounded */
    const char *choices;  /* "auto cpu ref" */
    const char *section;  /* heading in help and docs */
    const char *value;    /* placeholder in help: "N", "PATH" */
    const char *help;     /* one sentence; teach */
    const char *aliases[OPTION_ALIASES_MAX];
    bool secret; /* value is never printed */
};

struct config_source {
    int argc; /* arguments after the sub-command */
    char **argv;
    char **environ_vars;     /* NULL: none */
    const char *config_flag; /* name of the option that holds the file's path, or NULL */
};

/* Fill *target (zeroed by the caller).  ERR_INVALID names flag, value, range and remedy.
 * A target that failed half-way is released by the caller with config_release(), too. */
int config_load(const struct option *table, size_t n, const struct config_source *src, void *target,
                struct err *err) MUST_CHECK;
void config_release(const struct option *table, size_t n, void *target);
void config_help(const struct option *table, size_t n, const char *usage, struct str *out);
/* Effective values as YAML that config_load() reads back; secrets only as a remark. */
void config_print(const struct option *table, size_t n, const void *target, struct str *out);
/* A Markdown table a section, for docs/reference. */
void config_markdown(const struct option *table, size_t n, struct str *out);
