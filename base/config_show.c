/* SPDX-License-Identifier: Apache-2.0
 *
 * config_show.c - the option table as text: --help, --print-config, docs/reference.
 */
#include <ctype.h>
#include <string.h>

#include "base/config.h"
#include "base/config_units.h"
#include "base/json_writer.h"

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

static void add_env_name(struct str *out, const char *name)
{
    str_adds(out, "PENSTOCK_");
    for (; *name; name++)
        str_addc(out, *name == '-' ? '_' : (char)toupper((unsigned char)*name));
}

/* Words of text from the column on, broken before HELP_WIDTH. */
static void add_wrapped(struct str *out, size_t column, const char *text)
{
    size_t at = column;

    while (*text) {
        size_t n = strcspn(text, " ");

        if (at > column && at + 1 + n > HELP_WIDTH) {
            str_addf(out, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            str_addc(out, ' ');
            at++;
        }
        str_add(out, text, n);
        at += n;
        text += n;
        text += strspn(text, " ");
    }
}

static void add_help_line(struct str *out, const struct option *o)
{
    size_t from = out->len;
    struct str what = STR_INIT(2048);

    str_addf(out, "  --%s", o->name);
    if (o->type != OPTION_BOOL)
        str_addf(out, " %s", o->value ? o->value : "X");
    if (out->len - from >= HELP_COLUMN)
        str_addf(out, "\n%*s", HELP_COLUMN, "");
    else
        str_addf(out, "%*s", (int)(HELP_COLUMN - (out->len - from)), "");
    str_adds(&what, o->help);
    if (o->choices)
        str_addf(&what, " One of: %s.", o->choices);
    if (o->fallback && *o->fallback)
        str_addf(&what, " [%s]", o->fallback);
    for (size_t a = 0; a < OPTION_ALIASES_MAX && o->aliases[a]; a++)
        str_addf(&what, "%s--%s", a ? " " : " Also: ", o->aliases[a]);
    add_wrapped(out, HELP_COLUMN, str_text(&what));
    str_addc(out, '\n');
    str_release(&what);
}

void config_help(const struct option *table, size_t n, const char *usage, struct str *out)
{
    const char *section = NULL;

    str_adds(out, usage);
    for (size_t i = 0; i < n; i++) {
        if (!section || strcmp(section, table[i].section) != 0) {
            section = table[i].section;
            str_addf(out, "\n%s\n", section);
        }
        add_help_line(out, &table[i]);
    }
    str_adds(out,
             "\nEvery option can also stand in the environment (--log-level is "
             "PENSTOCK_LOG_LEVEL) and in the\nYAML file of --config (log-level: debug). A flag "
             "wins over the environment, the environment\nover the file.\n");
}

static void add_yaml_text(struct str *out, const char *s)
{
    json_escape(out, s, strlen(s)); /* a JSON string is a YAML string */
}

static void add_list(struct str *out, const struct option_list *list)
{
    str_addc(out, '[');
    for (size_t i = 0; i < list->n; i++) {
        str_adds(out, i ? ", " : "");
        add_yaml_text(out, list->items[i]);
    }
    str_addc(out, ']');
}

static void add_value(struct str *out, const struct option *o, const void *at)
{
    switch (o->type) {
    case OPTION_STR:
    case OPTION_CHOICE:
        add_yaml_text(out, *(char *const *)at);
        break;
    case OPTION_BOOL:
        str_adds(out, *(const bool *)at ? "true" : "false");
        break;
    case OPTION_I64:
        str_addf(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case OPTION_F64:
        str_addf(out, "%g", *(const double *)at);
        break;
    case OPTION_BYTES:
        config_add_bytes(out, *(const int64_t *)at);
        break;
    case OPTION_MS:
        config_add_ms(out, *(const int64_t *)at);
        break;
    case OPTION_LIST:
        add_list(out, at);
        break;
    }
}

static bool is_set(const struct option *o, const void *at)
{
    if (o->type == OPTION_STR || o->type == OPTION_CHOICE)
        return *(char *const *)at != NULL;
    return o->type != OPTION_LIST || ((const struct option_list *)at)->n > 0;
}

void config_print(const struct option *table, size_t n, const void *target, struct str *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct option *o = &table[i];
        const void *at = (const char *)target + o->offset;

        if (!is_set(o, at)) {
            str_addf(out, "# %s is not set\n", o->name);
        } else if (o->secret) {
            str_addf(out, "# %s is set; its value is not shown\n", o->name);
        } else {
            str_addf(out, "%s: ", o->name);
            add_value(out, o, at);
            str_addc(out, '\n');
        }
    }
}

static void add_markdown_row(struct str *out, const struct option *o)
{
    str_addf(out, "| `--%s` | `", o->name);
    add_env_name(out, o->name);
    str_addf(out, "` | %s%s%s | %s", o->fallback && *o->fallback ? "`" : "",
             o->fallback && *o->fallback ? o->fallback : "-",
             o->fallback && *o->fallback ? "`" : "", o->help);
    if (o->choices)
        str_addf(out, " One of: `%s`.", o->choices);
    if (o->max > 0)
        str_addf(out, " Range %.12g to %.12g.", o->min, o->max);
    for (size_t a = 0; a < OPTION_ALIASES_MAX && o->aliases[a]; a++)
        str_addf(out, "%s`--%s`", a ? ", " : " Also ", o->aliases[a]);
    str_adds(out, " |\n");
}

void config_markdown(const struct option *table, size_t n, struct str *out)
{
    const char *section = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!section || strcmp(section, table[i].section) != 0) {
            section = table[i].section;
            str_addf(out,
                     "\n## %s\n\n| flag | environment | default | meaning |\n"
                     "| --- | --- | --- | --- |\n",
                     section);
        }
        add_markdown_row(out, &table[i]);
    }
}
