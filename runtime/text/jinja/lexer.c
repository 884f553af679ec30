/* SPDX-License-Identifier: Apache-2.0
 *
 * lexer.c - the outer and the inner language of a template.
 *
 * Outside of tags everything is text, but for white space: "{%-" eats what stands before it, "-%}"
 * what follows; without a sign a block tag eats the blanks between it and the start of its line
 * (lstrip_blocks) and the line end behind it (trim_blocks).  Inside of tags are names, numbers,
 * strings and operators.  A closing "}}" inside of an open "{" is two braces of the inner language,
 * so brackets are counted here.
 *
 * Rules: https://jinja.palletsprojects.com/en/3.1.x/templates/#whitespace-control
 */
#include "runtime/text/jinja/lexer.h"

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "base/utf8.h"
#include "runtime/text/jinja/text.h"

enum { NESTING_MAX = 64 };

struct lexer {
    struct arena *arena;
    struct err *err;
    const char *p, *end;
    uint32_t line;
    bool line_starts; /* the text that comes begins a line */
    char open[NESTING_MAX];
    size_t n_open;
    struct jinja_tokens *tokens;
    size_t cap;
};

static int no_memory(struct lexer *l)
{
    return err_set(l->err, ERR_NO_MEMORY, "template");
}

static int add(struct lexer *l, enum jinja_token_kind kind, const char *text, size_t len)
{
    struct jinja_tokens *t = l->tokens;

    if (t->n == l->cap) {
        size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        struct jinja_token *items = arena_calloc(l->arena, cap, sizeof(*items));

        if (!items)
            return no_memory(l);
        if (t->n > 0)
            memcpy(items, t->items, t->n * sizeof(*items));
        t->items = items;
        l->cap = cap;
    }
    t->items[t->n++] =
            (struct jinja_token){.kind = kind, .line = l->line, .text = text, .len = len};
    return 0;
}

static bool at(const struct lexer *l, const char *s)
{
    size_t n = strlen(s);

    return (size_t)(l->end - l->p) >= n && memcmp(l->p, s, n) == 0;
}

static void advance(struct lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->p[i] == '\n';
    l->p += n;
}

/* The bytes of white space at p. */
static size_t space_at(const char *p, const char *end)
{
    const char *start = p;
    uint32_t cp;
    int n;

    while (p < end && (n = utf8_decode(p, (size_t)(end - p), &cp)) > 0 && jinja_is_space(cp))
        p += n;
    return (size_t)(p - start);
}

static bool all_space(const char *p, const char *end)
{
    return space_at(p, end) == (size_t)(end - p);
}

/* Without the white space at its end. */
static const char *strip_end(const char *p, const char *end)
{
    const char *keep = p;

    for (; p < end;) {
        size_t n = space_at(p, end);
        uint32_t cp;
        int step;

        p += n;
        if (p == end)
            break;
        step = utf8_decode(p, (size_t)(end - p), &cp);
        p += step > 0 ? step : 1;
        keep = p;
    }
    return keep;
}

/* ---- inside of tags ---- */

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int lex_name(struct lexer *l)
{
    const char *p = l->p;
    int r;

    while (p < l->end && (is_name_start(*p) || is_digit(*p)))
        p++;
    r = add(l, JINJA_TOKEN_NAME, l->p, (size_t)(p - l->p));
    l->p = p;
    return r;
}

static int lex_number(struct lexer *l)
{
    char digits[64];
    size_t n = 0;
    bool is_float = false;
    const char *p = l->p;
    struct jinja_token *t;
    int r;

    for (; p < l->end && n < sizeof(digits) - 1; p++) {
        bool fraction = *p == '.' && !is_float && p + 1 < l->end && is_digit(p[1]);
        bool sign = (*p == '-' || *p == '+') && n > 0 && (digits[n - 1] | 0x20) == 'e';

        if (*p == '_' && n > 0 && is_digit(digits[n - 1]))
            continue;
        if (!is_digit(*p) && !fraction && !sign && (*p | 0x20) != 'e')
            break;
        is_float = is_float || fraction || (*p | 0x20) == 'e';
        digits[n++] = *p;
    }
    digits[n] = '\0';
    r = add(l, is_float ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INT, l->p, (size_t)(p - l->p));
    if (r < 0)
        return r;
    t = &l->tokens->items[l->tokens->n - 1];
    r = is_float ? parse_f64(digits, -1e308, 1e308, &t->number, l->err)
                 : parse_i64(digits, 0, INT64_MAX, &t->integer, l->err);
    if (r < 0 || (p < l->end && is_name_start(*p)))
        return err_set(l->err, ERR_INVALID, "line %u: bad number", l->line);
    l->p = p;
    return 0;
}

static int hex_value(const char *p, size_t n, uint32_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        char c = (char)(p[i] | 0x20);

        if (!is_digit(c) && (c < 'a' || c > 'f'))
            return -1;
        *ret = *ret << 4 | (uint32_t)(is_digit(c) ? c - '0' : c - 'a' + 10);
    }
    return 0;
}

/* The escape behind a backslash at p; appends what it stands for, returns the bytes it took, or 0
 * for one that we refuse. */
static size_t unescape(const char *p, const char *end, char *out, size_t *n)
{
    static const char from[] = "nrtabfv\\'\"";
    static const char to[] = "\n\r\t\a\b\f\v\\'\"";
    const char *plain = strchr(from, *p);
    size_t digits = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    uint32_t cp;

    if (*p == '\0' || *p == 'N' || is_digit(*p)) /* named and octal characters */
        return 0;
    if (*p == '\n')
        return 1;
    if (plain) {
        out[(*n)++] = to[plain - from];
        return 1;
    }
    if (digits == 0) { /* an unknown escape stays as it is */
        out[(*n)++] = '\\';
        out[(*n)++] = *p;
        return 1;
    }
    if ((size_t)(end - p) <= digits || hex_value(p + 1, digits, &cp) < 0 || cp > 0x10FFFF ||
        (cp >= 0xD800 && cp < 0xE000))
        return 0;
    *n += (size_t)utf8_encode(cp, out + *n);
    return 1 + digits;
}

static int lex_string(struct lexer *l)
{
    char quote = *l->p;
    const char *p = l->p + 1;
    size_t n = 0;
    char *out;
    int r;

    while (p < l->end && *p != quote)
        p += *p == '\\' && p + 1 < l->end ? 2 : 1;
    if (p >= l->end)
        return err_set(l->err, ERR_INVALID, "line %u: a string without an end", l->line);
    out = arena_alloc(l->arena, (size_t)(p - l->p) + 4);
    if (!out)
        return no_memory(l);
    for (const char *q = l->p + 1; q < p;) {
        size_t took;

        if (*q != '\\') {
            out[n++] = *q++;
            continue;
        }
        took = unescape(q + 1, p, out, &n);
        if (took == 0)
            return err_set(l->err, ERR_INVALID, "line %u: escape in a string is not supported",
                           l->line);
        q += 1 + took;
    }
    r = add(l, JINJA_TOKEN_STR, out, n);
    advance(l, (size_t)(p + 1 - l->p));
    return r;
}

static int count_bracket(struct lexer *l, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *close = strchr(closing, c);

    if (strchr(opening, c)) {
        if (l->n_open == NESTING_MAX)
            return err_set(l->err, ERR_INVALID, "line %u: brackets over %d deep", l->line,
                           NESTING_MAX);
        l->open[l->n_open++] = c;
    } else if (close) {
        if (l->n_open == 0 || l->open[l->n_open - 1] != opening[close - closing])
            return err_set(l->err, ERR_INVALID, "line %u: unexpected '%c'", l->line, c);
        l->n_open--;
    }
    return 0;
}

static int lex_operator(struct lexer *l)
{
    static const char *const ops[] = {"**", "//", "==", "!=", ">=", "<=", ">", "<", "=",
                                      "+",  "-",  "*",  "/",  "%",  "~",  ".", ",", ":",
                                      "|",  "(",  ")",  "[",  "]",  "{",  "}"};
    int r;

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (!at(l, ops[i]))
            continue;
        r = count_bracket(l, *l->p);
        if (r == 0)
            r = add(l, JINJA_TOKEN_OP, ops[i], strlen(ops[i]));
        l->p += strlen(ops[i]);
        return r;
    }
    return err_set(l->err, ERR_INVALID, "line %u: unexpected character '%c'", l->line,
                   *l->p >= 0x20 && *l->p < 0x7f ? *l->p : '?');
}

/* What may follow a tag's last sign: trims behind the tag.  false: the tag does not end here. */
static bool tag_end(struct lexer *l, const char *close, bool is_block)
{
    size_t sign = l->p < l->end && (*l->p == '-' || (*l->p == '+' && is_block)) ? 1 : 0;
    bool eat = sign && *l->p == '-';
    size_t n = strlen(close), trimmed = 0;

    if ((size_t)(l->end - l->p) < sign + n || memcmp(l->p + sign, close, n) != 0)
        return false;
    if (eat)
        trimmed = space_at(l->p + sign + n, l->end);
    else if (is_block && !sign && l->p + n < l->end && l->p[n] == '\n')
        trimmed = 1;
    advance(l, sign + n + trimmed);
    l->line_starts = trimmed > 0 && l->p[-1] == '\n';
    return true;
}

/* From behind "{{" or "{%" to behind the end of the tag. */
static int lex_tag(struct lexer *l, bool is_block)
{
    uint32_t start = l->line;
    int r = add(l, is_block ? JINJA_TOKEN_BLOCK_BEGIN : JINJA_TOKEN_OUTPUT_BEGIN, l->p, 0);

    l->n_open = 0;
    while (r == 0) {
        advance(l, space_at(l->p, l->end));
        if (l->p == l->end)
            return err_set(l->err, ERR_INVALID, "line %u: a tag without an end", start);
        if (l->n_open == 0) {
            r = add(l, is_block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_OUTPUT_END, l->p, 0);
            if (r < 0 || tag_end(l, is_block ? "%}" : "}}", is_block))
                return r;
            l->tokens->n--;
        }
        if (is_name_start(*l->p))
            r = lex_name(l);
        else if (is_digit(*l->p))
            r = lex_number(l);
        else if (*l->p == '\'' || *l->p == '"')
            r = lex_string(l);
        else
            r = lex_operator(l);
    }
    return r;
}

/* ---- outside of tags ---- */

static int lex_comment(struct lexer *l)
{
    const char *close = memmem(l->p, (size_t)(l->end - l->p), "#}", 2);

    if (!close)
        return err_set(l->err, ERR_INVALID, "line %u: a comment without an end", l->line);
    if (close > l->p && (close[-1] == '-' || close[-1] == '+'))
        close--;
    advance(l, (size_t)(close - l->p));
    (void)tag_end(l, "#}", true);
    return 0;
}

/* The text in front of a tag, as much of it as the tag's sign leaves. */
static int add_text(struct lexer *l, const char *tag, char sign, bool is_block)
{
    const char *end = tag;
    const char *line = memrchr(l->p, '\n', (size_t)(tag - l->p));
    int r = 0;

    if (sign == '-') {
        end = strip_end(l->p, tag);
    } else if (sign != '+' && is_block && (line || l->line_starts)) {
        line = line ? line + 1 : l->p;
        if (all_space(line, tag))
            end = line;
    }
    if (end > l->p)
        r = add(l, JINJA_TOKEN_TEXT, l->p, (size_t)(end - l->p));
    advance(l, (size_t)(tag - l->p));
    return r;
}

/* Behind "{%": " raw %}" or " endraw %}", and moves behind it; false: another tag.  The line end
 * behind "raw" is text already. */
static bool at_named_tag(struct lexer *l, const char *name, bool trims)
{
    struct lexer probe = *l;

    probe.p += space_at(probe.p, probe.end);
    if (!at(&probe, name))
        return false;
    probe.p += strlen(name);
    probe.p += space_at(probe.p, probe.end);
    if (!tag_end(&probe, "%}", trims))
        return false;
    advance(l, (size_t)(probe.p - l->p));
    l->line_starts = probe.line_starts;
    return true;
}

/* Behind {% raw %}: text up to {% endraw %}. */
static int lex_raw(struct lexer *l)
{
    uint32_t start = l->line;

    for (const char *p = l->p; (p = memmem(p, (size_t)(l->end - p), "{%", 2)) != NULL; p += 2) {
        struct lexer probe = *l;
        char sign = p + 2 < l->end ? p[2] : '\0';
        size_t n = sign == '-' || sign == '+' ? 3 : 2;
        int r;

        probe.p = p + n;
        if (!at_named_tag(&probe, "endraw", true))
            continue;
        r = add_text(l, p, sign, true);
        advance(l, n);
        (void)at_named_tag(l, "endraw", true);
        return r;
    }
    return err_set(l->err, ERR_INVALID, "line %u: {%% raw %%} without an end", start);
}

/* The next "{{", "{%" or "{#". */
static const char *next_tag(const struct lexer *l)
{
    for (const char *p = l->p; (p = memchr(p, '{', (size_t)(l->end - p))) != NULL; p++)
        if (p + 1 < l->end && (p[1] == '{' || p[1] == '%' || p[1] == '#'))
            return p;
    return NULL;
}

static int lex_source(struct lexer *l)
{
    const char *tag;
    int r = 0;

    while (r == 0 && (tag = next_tag(l)) != NULL) {
        char kind = tag[1];
        char sign = tag + 2 < l->end && (tag[2] == '-' || tag[2] == '+') ? tag[2] : '\0';

        r = add_text(l, tag, sign, kind != '{');
        if (r < 0)
            return r;
        l->p += sign ? 3 : 2;
        if (kind == '#')
            r = lex_comment(l);
        else if (kind == '%' && at_named_tag(l, "raw", false))
            r = lex_raw(l);
        else
            r = lex_tag(l, kind == '%');
    }
    if (r == 0 && l->p < l->end)
        r = add(l, JINJA_TOKEN_TEXT, l->p, (size_t)(l->end - l->p));
    return r;
}

/* One line end is \n, whatever it was; the last one of the source is dropped. */
static char *normalise(struct arena *arena, const char *source, size_t len, size_t *ret_len)
{
    char *out = arena_alloc(arena, len + 1);
    size_t n = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        out[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    *ret_len = n > 0 && out[n - 1] == '\n' ? n - 1 : n;
    return out;
}

int jinja_lex(struct arena *arena, const char *source, size_t len, struct jinja_tokens *ret,
              struct err *err)
{
    struct lexer l = {.arena = arena, .err = err, .line = 1, .line_starts = true, .tokens = ret};
    size_t n = 0;
    int r;

    *ret = (struct jinja_tokens){0};
    l.p = normalise(arena, source, len, &n);
    if (!l.p)
        return no_memory(&l);
    l.end = l.p + n;
    if (!utf8_valid(l.p, n))
        return err_set(err, ERR_INVALID, "the template is not UTF-8");
    r = lex_source(&l);
    return r < 0 ? r : add(&l, JINJA_TOKEN_END, l.p, 0);
}
