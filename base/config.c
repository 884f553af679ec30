/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - loading options: default, file, environment, flag; later wins.
 *
 * Every source ends in set_option(), which turns text into the typed field, so a value means the
 * same wherever it is written.  Help, --print-config and the reference are in config_show.c.
 */
#include "base/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/assertion.h"
#include "base/config_units.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/yaml.h"

enum { NAME_MAX_BYTES = 64 };

#define ENV_PREFIX "PENSTOCK_"

static void *field(const struct option *o, void *target)
{
    return (char *)target + o->offset;
}

static const struct option *find_option(const struct option *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
        for (size_t a = 0; a < OPTION_ALIASES_MAX && table[i].aliases[a]; a++)
            if (strcmp(table[i].aliases[a], name) == 0)
                return &table[i];
    }
    return NULL;
}

/* Edit distance, for "did you mean": plain dynamic programming over two rows. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_BYTES + 1];
    size_t n = strlen(b);

    if (n > NAME_MAX_BYTES || strlen(a) > NAME_MAX_BYTES)
        return NAME_MAX_BYTES;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t change = diagonal + (a[i] != b[j]);
            size_t best = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;

            diagonal = row[j + 1];
            row[j + 1] = change < best ? change : best;
        }
    }
    return row[n];
}

static const char *nearest(const struct option *table, size_t n, const char *name)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 3 + 1;

    for (size_t i = 0; i < n; i++) {
        size_t d = distance(name, table[i].name);

        if (d <= best_distance) {
            best = table[i].name;
            best_distance = d;
        }
        for (size_t a = 0; a < OPTION_ALIASES_MAX && table[i].aliases[a]; a++) {
            d = distance(name, table[i].aliases[a]);
            if (d < best_distance) {
                best = table[i].aliases[a];
                best_distance = d;
            }
        }
    }
    return best;
}

static int unknown(const struct option *table, size_t n, const char *kind, const char *shown,
                   const char *name, struct err *err)
{
    const char *near = nearest(table, n, name);

    if (near)
        return err_set(err, ERR_INVALID, "unknown %s '%.80s'; did you mean '%s'?", kind, shown,
                       near);
    return err_set(err, ERR_INVALID, "unknown %s '%.80s'; see --help", kind, shown);
}

static int set_text(char **at, const char *value, struct err *err)
{
    char *copy = mem_strdup(value);

    if (!copy)
        return err_set(err, ERR_NO_MEMORY, "option value");
    mem_free(*at);
    *at = copy;
    return 0;
}

static int set_choice(const struct option *o, char **at, const char *value, struct err *err)
{
    size_t n = strlen(value);

    for (const char *c = o->choices; *c;) {
        size_t len = strcspn(c, " ");

        if (len == n && memcmp(c, value, n) == 0)
            return set_text(at, value, err);
        c += len + (c[len] == ' ');
    }
    return err_set(err, ERR_INVALID, "'%.80s' is not one of: %s", value, o->choices);
}

static int set_bool(bool *at, const char *value, struct err *err)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "1") == 0 || strcmp(value, "yes") == 0)
        *at = true;
    else if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0 || strcmp(value, "no") == 0)
        *at = false;
    else
        return err_set(err, ERR_INVALID, "'%.80s' is not true or false", value);
    return 0;
}

static int add_to_list(struct option_list *list, const char *value, struct err *err)
{
    char **items;

    if (list->n >= OPTION_LIST_MAX)
        return err_set(err, ERR_INVALID, "given more than %d times", OPTION_LIST_MAX);
    items = mem_realloc(list->items, (list->n + 1) * sizeof(*items));
    if (!items)
        return err_set(err, ERR_NO_MEMORY, "option value");
    list->items = items;
    items[list->n] = NULL;
    list->n++;
    return set_text(&items[list->n - 1], value, err);
}

static double lower_bound(const struct option *o)
{
    return o->min == 0 && o->max == 0 ? -9e18 : o->min;
}

static double upper_bound(const struct option *o)
{
    return o->min == 0 && o->max == 0 ? 9e18 : o->max;
}

static int set_integer(const struct option *o, int64_t *at, const char *value, struct err *err)
{
    int64_t v = 0;
    int r;

    if (o->type == OPTION_BYTES)
        r = config_parse_bytes(value, &v, err);
    else if (o->type == OPTION_MS)
        r = config_parse_ms(value, &v, err);
    else
        r = parse_i64(value, INT64_MIN, INT64_MAX, &v, err);
    if (r)
        return r;
    if ((double)v < lower_bound(o) || (double)v > upper_bound(o))
        return err_set(err, ERR_INVALID, "%.40s is not in %.0f..%.0f", value, lower_bound(o),
                       upper_bound(o));
    *at = v;
    return 0;
}

static int set_value(const struct option *o, void *target, const char *value, struct err *err)
{
    void *at = field(o, target);

    switch (o->type) {
    case OPTION_STR:
        return set_text(at, value, err);
    case OPTION_BOOL:
        return set_bool(at, value, err);
    case OPTION_F64:
        return parse_f64(value, lower_bound(o), upper_bound(o), at, err);
    case OPTION_I64:
    case OPTION_BYTES:
    case OPTION_MS:
        return set_integer(o, at, value, err);
    case OPTION_CHOICE:
        return set_choice(o, at, value, err);
    case OPTION_LIST:
        return add_to_list(at, value, err);
    }
    return err_set(err, ERR_INTERNAL, "option type");
}

/* shown: how the user wrote the option, "--port" or "PENSTOCK_PORT" */
static int set_option(const struct option *o, void *target, const char *shown, const char *value,
                      struct err *err)
{
    if (set_value(o, target, value, err) != 0)
        return err_wrap(err, "%s", shown);
    return 0;
}

static void clear_list(const struct option *o, void *target)
{
    struct option_list *list = field(o, target);

    for (size_t i = 0; i < list->n; i++)
        mem_free(list->items[i]);
    mem_free(list->items);
    *list = (struct option_list){0};
}

static int load_defaults(const struct option *table, size_t n, void *target, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        ASSERT(strlen(table[i].name) < NAME_MAX_BYTES);
        if (table[i].fallback) {
            int r = set_option(&table[i], target, table[i].name, table[i].fallback, err);

            if (r)
                return r;
        }
    }
    return 0;
}

static int load_file_value(const struct option *o, void *target, const cJSON *v, struct err *err)
{
    char number[32];

    if (cJSON_IsArray(v) && o->type == OPTION_LIST) {
        const cJSON *item;

        clear_list(o, target);
        cJSON_ArrayForEach(item, v)
        {
            int r = cJSON_IsString(item)
                            ? set_option(o, target, o->name, item->valuestring, err)
                            : err_set(err, ERR_INVALID, "%s: items must be text", o->name);
            if (r)
                return r;
        }
        return 0;
    }
    if (cJSON_IsString(v))
        return set_option(o, target, o->name, v->valuestring, err);
    if (cJSON_IsBool(v))
        return set_option(o, target, o->name, cJSON_IsTrue(v) ? "true" : "false", err);
    if (cJSON_IsNumber(v)) {
        (void)snprintf(number, sizeof(number), "%.17g", v->valuedouble);
        return set_option(o, target, o->name, number, err);
    }
    return err_set(err, ERR_INVALID, "%s: expected a plain value", o->name);
}

static int load_file(const struct option *table, size_t n, const char *path, void *target,
                     struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(1u << 20);
    CLEANUP(json_freep) cJSON *root = NULL;
    const cJSON *v;
    int r = file_read(path, &text, err);

    if (r == 0)
        r = yaml_parse(str_text(&text), text.len, &JSON_LIMITS_DEFAULT, &root, err);
    if (r)
        return err_wrap(err, "configuration file '%s'", path);
    if (!cJSON_IsObject(root))
        return err_set(err, ERR_INVALID, "configuration file '%s': expected 'name: value' lines",
                       path);
    cJSON_ArrayForEach(v, root)
    {
        const struct option *o = find_option(table, n, v->string);

        r = o ? load_file_value(o, target, v, err)
              : unknown(table, n, "key", v->string, v->string, err);
        if (r)
            return err_wrap(err, "configuration file '%s'", path);
    }
    return 0;
}

/* PENSTOCK_MAX_NUM_SEQS -> max-num-seqs */
static bool env_to_name(const char *var, size_t len, char name[NAME_MAX_BYTES])
{
    if (len >= NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        name[i] = var[i] == '_' ? '-' : (char)tolower((unsigned char)var[i]);
    name[len] = '\0';
    return true;
}

/* Variables under our prefix that are not ours: the build scripts' cache, and what Kubernetes sets
 * for a Service whose name begins with "penstock". */
static bool env_is_foreign(const char *name)
{
    return strcmp(name, "cache") == 0 || strstr(name, "-service-host") ||
           strstr(name, "-service-port") || strstr(name, "-port-") || str_ends(name, "-port");
}

static int load_env(const struct option *table, size_t n, char **vars, void *target,
                    struct err *err)
{
    for (; vars && *vars; vars++) {
        const char *eq = strchr(*vars, '=');
        const char *start = *vars + strlen(ENV_PREFIX);
        char name[NAME_MAX_BYTES], shown[NAME_MAX_BYTES + sizeof(ENV_PREFIX)];
        const struct option *o;
        int r;

        if (!eq || !str_starts(*vars, ENV_PREFIX) || eq < start ||
            !env_to_name(start, (size_t)(eq - start), name))
            continue;
        (void)snprintf(shown, sizeof(shown), "%.*s", (int)(eq - *vars), *vars);
        o = find_option(table, n, name);
        if (!o && env_is_foreign(name))
            continue;
        if (!o)
            return unknown(table, n, "environment variable", shown, name, err);
        if (o->type == OPTION_LIST)
            clear_list(o, target);
        r = set_option(o, target, shown, eq + 1, err);
        if (r)
            return r;
    }
    return 0;
}

/* One flag at argv[*i]; moves *i over a value of its own. */
static int load_flag(const struct option *table, size_t n, const struct config_source *src, int *i,
                     void *target, struct err *err)
{
    const char *arg = src->argv[*i], *eq, *value;
    char name[NAME_MAX_BYTES], shown[NAME_MAX_BYTES + 2];
    const struct option *o;
    size_t len;

    if (!str_starts(arg, "--") || arg[2] == '\0')
        return err_set(err, ERR_INVALID, "unexpected argument '%.80s'; options start with --", arg);
    eq = strchr(arg, '=');
    len = eq ? (size_t)(eq - arg) - 2 : strlen(arg) - 2;
    if (len == 0 || len >= sizeof(name))
        return err_set(err, ERR_INVALID, "unknown option '%.80s'", arg);
    memcpy(name, arg + 2, len);
    name[len] = '\0';
    (void)snprintf(shown, sizeof(shown), "--%s", name);
    o = find_option(table, n, name);
    if (!o && str_starts(name, "no-") && !eq) {
        o = find_option(table, n, name + 3);
        if (o && o->type == OPTION_BOOL)
            return set_option(o, target, shown, "false", err);
        o = NULL;
    }
    if (!o)
        return unknown(table, n, "option", shown, name, err);
    if (eq)
        value = eq + 1;
    else if (o->type == OPTION_BOOL)
        value = "true";
    else if (*i + 1 < src->argc)
        value = src->argv[++*i];
    else
        return err_set(err, ERR_INVALID, "%s needs a value", shown);
    return set_option(o, target, shown, value, err);
}

/* A list given by flags replaces what file and environment said, as one. */
static void clear_flagged_lists(const struct option *table, size_t n,
                                const struct config_source *src, void *target)
{
    for (size_t k = 0; k < n; k++) {
        if (table[k].type != OPTION_LIST)
            continue;
        for (int i = 0; i < src->argc; i++) {
            char name[NAME_MAX_BYTES];

            (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(src->argv[i], "="),
                           src->argv[i]);
            if (str_starts(name, "--") && find_option(table, n, name + 2) == &table[k])
                clear_list(&table[k], target);
        }
    }
}

static int load_flags(const struct option *table, size_t n, const struct config_source *src,
                      void *target, struct err *err)
{
    clear_flagged_lists(table, n, src, target);
    for (int i = 0; i < src->argc; i++) {
        int r = load_flag(table, n, src, &i, target, err);

        if (r)
            return r;
    }
    return 0;
}

/* The file's path itself comes from a flag or the environment, before the file is read: load both
 * into a throw-away target first, where their errors do not count. */
static char *file_path(const struct option *table, size_t n, const struct config_source *src,
                       void *target)
{
    const struct option *o = find_option(table, n, src->config_flag);
    struct err ignored;
    char *path;

    ASSERT(o && o->type == OPTION_STR);
    (void)!load_env(table, n, src->environ_vars, target, &ignored);
    (void)!load_flags(table, n, src, target, &ignored);
    path = *(char **)field(o, target);
    return path ? mem_strdup(path) : NULL;
}

int config_load(const struct option *table, size_t n, const struct config_source *src, void *target,
                struct err *err)
{
    int r = 0;

    if (src->config_flag) {
        char *path = file_path(table, n, src, target);

        config_release(table, n, target);
        r = load_defaults(table, n, target, err);
        if (r == 0 && path)
            r = load_file(table, n, path, target, err);
        mem_free(path);
    } else {
        r = load_defaults(table, n, target, err);
    }
    if (r == 0)
        r = load_env(table, n, src->environ_vars, target, err);
    return r ? r : load_flags(table, n, src, target, err);
}

void config_release(const struct option *table, size_t n, void *target)
{
    for (size_t i = 0; i < n; i++) {
        void *at = field(&table[i], target);

        switch (table[i].type) {
        case OPTION_STR:
        case OPTION_CHOICE:
            mem_free(*(char **)at);
            *(char **)at = NULL;
            break;
        case OPTION_LIST:
            clear_list(&table[i], target);
            break;
        case OPTION_BOOL:
            *(bool *)at = false;
            break;
        case OPTION_F64:
            *(double *)at = 0;
            break;
        case OPTION_I64:
        case OPTION_BYTES:
        case OPTION_MS:
            *(int64_t *)at = 0;
            break;
        }
    }
}
