/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - JSON from strangers.
 *
 * cJSON builds the tree, but it is a lenient reader: it lets "01" and invalid UTF-8 pass, recurses
 * as deep as it is told to, and cuts a string at \u0000.  So the text first goes through a small
 * checker that accepts exactly RFC 8259 within our limits, without recursion and without memory;
 * what it lets through is well-formed, and cJSON's leniency has nothing left to act on.  Of members
 * with the same key only the last stays in the tree, so that who looks a key up and who walks the
 * members see the same object.
 */
#include "base/json.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { DEPTH_CAP = 512 }; /* below cJSON's own nesting limit of 1000 */

const struct json_limits JSON_LIMITS_DEFAULT = {
        .bytes_max = 8u << 20, .depth_max = 64, .values_max = 1u << 20};

/* A member of an object and its place among the others. */
struct member {
    cJSON *item;
    size_t place;
};

/* The checker's state: where it reads, and one bit a level: object or array. */
struct check {
    const char *text;
    size_t len, pos;
    const struct json_limits *limits;
    size_t n_values;
    unsigned depth;
    unsigned char is_object[DEPTH_CAP / 8];
    struct err *err;
};

static int refuse(struct check *c, const char *why)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < c->pos && i < c->len; i++) {
        if (c->text[i] == '\n') {
            line++;
            column = 1;
        } else {
            column++;
        }
    }
    return err_set(c->err, ERR_INVALID, "line %zu column %zu: %s", line, column, why);
}

static int peek(const struct check *c)
{
    return c->pos < c->len ? (unsigned char)c->text[c->pos] : -1;
}

static void skip_space(struct check *c)
{
    int ch;

    while ((ch = peek(c)) == ' ' || ch == '\t' || ch == '\n' || ch == '\r')
        c->pos++;
}

static int hex4(struct check *c, unsigned *ret)
{
    unsigned v = 0;

    for (int i = 0; i < 4; i++, c->pos++) {
        int ch = peek(c);

        if (ch >= '0' && ch <= '9')
            v = v << 4 | (unsigned)(ch - '0');
        else if ((ch | 32) >= 'a' && (ch | 32) <= 'f')
            v = v << 4 | (unsigned)((ch | 32) - 'a' + 10);
        else
            return refuse(c, "\\u needs four hexadecimal digits");
    }
    *ret = v;
    return 0;
}

static int check_unicode_escape(struct check *c)
{
    unsigned hi, lo;
    int r = hex4(c, &hi);

    if (r)
        return r;
    if (hi == 0)
        return refuse(c, "\\u0000 is not accepted in a string");
    if (hi >= 0xDC00 && hi <= 0xDFFF)
        return refuse(c, "lone low surrogate");
    if (hi < 0xD800 || hi > 0xDBFF)
        return 0;
    if (c->len - c->pos < 6 || c->text[c->pos] != '\\' || c->text[c->pos + 1] != 'u')
        return refuse(c, "lone high surrogate");
    c->pos += 2;
    r = hex4(c, &lo);
    if (r)
        return r;
    if (lo < 0xDC00 || lo > 0xDFFF)
        return refuse(c, "lone high surrogate");
    return 0;
}

static int check_escape(struct check *c)
{
    int ch;

    c->pos++; /* the backslash */
    ch = peek(c);
    if (ch <= 0 || !strchr("\"\\/bfnrtu", ch)) /* strchr() finds a NUL, too */
        return refuse(c, "unknown escape in a string");
    c->pos++;
    return ch == 'u' ? check_unicode_escape(c) : 0;
}

static int check_string(struct check *c)
{
    c->pos++; /* the quote */
    for (;;) {
        int ch = peek(c);
        uint32_t cp;
        int n;

        if (ch < 0)
            return refuse(c, "the text ends inside a string");
        if (ch == '"') {
            c->pos++;
            return 0;
        }
        if (ch < 0x20)
            return refuse(c, "control character in a string: escape it");
        if (ch == '\\') {
            int r = check_escape(c);

            if (r)
                return r;
            continue;
        }
        n = utf8_decode(c->text + c->pos, c->len - c->pos, &cp);
        if (n <= 0)
            return refuse(c, "invalid UTF-8 in a string");
        c->pos += (size_t)n;
    }
}

static size_t skip_digits(struct check *c)
{
    size_t from = c->pos;

    while (peek(c) >= '0' && peek(c) <= '9')
        c->pos++;
    return c->pos - from;
}

static int check_number(struct check *c)
{
    size_t from = c->pos, n;
    char digits[64];

    if (peek(c) == '-')
        c->pos++;
    if (peek(c) == '0')
        c->pos++;
    else if (skip_digits(c) == 0)
        return refuse(c, "unexpected character");
    if (peek(c) == '.') {
        c->pos++;
        if (skip_digits(c) == 0)
            return refuse(c, "a digit must follow the decimal point");
    }
    if ((peek(c) | 32) == 'e') {
        c->pos++;
        if (peek(c) == '+' || peek(c) == '-')
            c->pos++;
        if (skip_digits(c) == 0)
            return refuse(c, "a digit must follow the exponent");
    }
    n = c->pos - from;
    if (n >= sizeof(digits))
        return refuse(c, "number of more than 63 characters");
    memcpy(digits, c->text + from, n);
    digits[n] = '\0';
    if (!isfinite(strtod(digits, NULL)))
        return refuse(c, "number out of range");
    return 0;
}

static int check_word(struct check *c)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if (c->len - c->pos >= n && memcmp(c->text + c->pos, words[i], n) == 0) {
            c->pos += n;
            return 0;
        }
    }
    return refuse(c,
                  peek(c) < 0 ? "the text ends where a value is expected" : "unexpected character");
}

static int check_key(struct check *c)
{
    int r;

    skip_space(c);
    if (peek(c) != '"')
        return refuse(c, "expected a key in double quotes");
    r = check_string(c);
    if (r)
        return r;
    skip_space(c);
    if (peek(c) != ':')
        return refuse(c, "expected ':' after a key");
    c->pos++;
    return 0;
}

static int open_level(struct check *c, bool object)
{
    if (c->depth >= c->limits->depth_max || c->depth >= DEPTH_CAP)
        return refuse(c, "nested too deeply");
    if (object)
        c->is_object[c->depth / 8] |= (unsigned char)(1u << c->depth % 8);
    else
        c->is_object[c->depth / 8] &= (unsigned char)~(1u << c->depth % 8);
    c->depth++;
    c->pos++;
    return 0;
}

static bool in_object(const struct check *c)
{
    return c->is_object[(c->depth - 1) / 8] >> (c->depth - 1) % 8 & 1;
}

/* After a complete value: close levels, or stand before the next value.  *ret_done: all read. */
static int check_after_value(struct check *c, bool *ret_done)
{
    for (;;) {
        int ch;

        skip_space(c);
        *ret_done = c->depth == 0;
        if (c->depth == 0)
            return peek(c) < 0 ? 0 : refuse(c, "text after the value");
        ch = peek(c);
        if (ch == ',') {
            c->pos++;
            return in_object(c) ? check_key(c) : 0;
        }
        if (ch != (in_object(c) ? '}' : ']'))
            return refuse(c, in_object(c) ? "expected ',' or '}'" : "expected ',' or ']'");
        c->pos++;
        c->depth--;
    }
}

/* An opening bracket: into the first element, or over an empty one.  *ret_empty: a value is done.
 */
static int check_open(struct check *c, bool object, bool *ret_empty)
{
    int r = open_level(c, object);

    if (r)
        return r;
    skip_space(c);
    *ret_empty = peek(c) == (object ? '}' : ']');
    if (!*ret_empty)
        return object ? check_key(c) : 0;
    c->pos++;
    c->depth--;
    return 0;
}

static int check_value(struct check *c, bool *ret_complete)
{
    int ch;

    skip_space(c);
    if (++c->n_values > c->limits->values_max)
        return refuse(c, "too many values");
    *ret_complete = true;
    ch = peek(c);
    if (ch == '{' || ch == '[')
        return check_open(c, ch == '{', ret_complete);
    if (ch == '"')
        return check_string(c);
    if (ch == '-' || (ch >= '0' && ch <= '9'))
        return check_number(c);
    return check_word(c);
}

int json_check(const char *text, size_t len, const struct json_limits *limits, struct err *err)
{
    struct check c = {.text = text, .len = len, .limits = limits, .err = err};
    bool done = false, complete = false;

    if (len > limits->bytes_max)
        return err_set(err, ERR_INVALID, "JSON of %zu bytes, at most %zu are accepted", len,
                       limits->bytes_max);
    while (!done) {
        int r = check_value(&c, &complete);

        if (r == 0 && complete)
            r = check_after_value(&c, &done);
        if (r)
            return r;
    }
    return 0;
}

static void *hook_malloc(size_t size)
{
    return mem_calloc(1, size);
}

static void use_our_heap(void)
{
    cJSON_Hooks hooks = {hook_malloc, mem_free};

    cJSON_InitHooks(&hooks);
}

static void init_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, use_our_heap);
}

static int by_key_then_place(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = strcmp(x->item->string, y->item->string);

    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Deletes the members of obj that a later one of the same key overrules. */
static int keep_last_of_each_key(cJSON *obj, size_t n)
{
    CLEANUP(mem_freep) struct member *members = mem_calloc(n, sizeof(*members));
    size_t i = 0;
    cJSON *item;

    if (!members)
        return -ERR_NO_MEMORY;
    cJSON_ArrayForEach(item, obj)
    {
        members[i] = (struct member){.item = item, .place = i};
        i++;
    }
    qsort(members, n, sizeof(*members), by_key_then_place);
    for (i = 0; i + 1 < n; i++) {
        if (strcmp(members[i].item->string, members[i + 1].item->string) == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(obj, members[i].item));
    }
    return 0;
}

/* All objects of a tree; its depth is bounded by the check. */
static int drop_duplicates(cJSON *v)
{
    size_t n = 0;
    cJSON *child;

    cJSON_ArrayForEach(child, v)
    {
        int r = drop_duplicates(child);

        if (r)
            return r;
        n++;
    }
    return cJSON_IsObject(v) && n > 1 ? keep_last_of_each_key(v, n) : 0;
}

int json_parse(const char *text, size_t len, const struct json_limits *limits, cJSON **ret,
               struct err *err)
{
    cJSON *tree;
    int r = json_check(text, len, limits, err);

    if (r)
        return r;
    init_once();
    tree = cJSON_ParseWithLength(text, len);
    if (!tree || drop_duplicates(tree)) {
        cJSON_Delete(tree);
        return err_set(err, ERR_NO_MEMORY, "JSON tree of %zu bytes of text", len);
    }
    *ret = tree;
    return 0;
}

const cJSON *json_get(const cJSON *obj, const char *key)
{
    return cJSON_IsObject(obj) ? cJSON_GetObjectItemCaseSensitive(obj, key) : NULL;
}

const cJSON *json_path(const cJSON *obj, const char *dotted)
{
    char key[128];

    while (obj) {
        size_t n = strcspn(dotted, ".");

        if (n >= sizeof(key))
            return NULL;
        memcpy(key, dotted, n);
        key[n] = '\0';
        obj = json_get(obj, key);
        if (dotted[n] == '\0')
            break;
        dotted += n + 1;
    }
    return obj;
}

static const char *text_of(const cJSON *v, const char *fallback)
{
    return cJSON_IsString(v) ? v->valuestring : fallback;
}

const char *json_str(const cJSON *obj, const char *key, const char *fallback)
{
    return text_of(json_get(obj, key), fallback);
}

const char *json_path_str(const cJSON *obj, const char *dotted, const char *fallback)
{
    return text_of(json_path(obj, dotted), fallback);
}

double json_num(const cJSON *obj, const char *key, double fallback)
{
    const cJSON *v = json_get(obj, key);

    return cJSON_IsNumber(v) ? v->valuedouble : fallback;
}

int64_t json_int(const cJSON *obj, const char *key, int64_t fallback)
{
    const cJSON *v = json_get(obj, key);

    if (!cJSON_IsNumber(v) || !(v->valuedouble >= -0x1p63 && v->valuedouble < 0x1p63))
        return fallback;
    return (int64_t)v->valuedouble;
}

bool json_bool(const cJSON *obj, const char *key, bool fallback)
{
    const cJSON *v = json_get(obj, key);

    return cJSON_IsBool(v) ? cJSON_IsTrue(v) != 0 : fallback;
}

char *json_print(const cJSON *v)
{
    init_once();
    return cJSON_PrintUnformatted(v);
}

bool json_equal(const cJSON *a, const cJSON *b)
{
    return cJSON_Compare(a, b, true);
}
