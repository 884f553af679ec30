/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/scaling/selector.h"

#include <string.h>

enum operation { OP_IN, OP_NOT_IN, OP_EXISTS, OP_MISSING };

struct term {
    const char *key;
    enum operation op;
    const char *values[SELECTOR_VALUES_MAX];
    size_t n_values;
};

struct selector {
    struct term terms[SELECTOR_TERMS_MAX];
    size_t n;
};

struct reader {
    const char *p;
    struct arena *mem;
    struct err *err;
};

static void skip_space(struct reader *r)
{
    while (*r->p == ' ')
        r->p++;
}

/* A key or value: the characters of label names. */
static const char *word(struct reader *r)
{
    size_t n = strspn(r->p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./");
    const char *s = arena_strndup(r->mem, r->p, n);

    r->p += n;
    return s;
}

static bool take(struct reader *r, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(r->p, text, n) != 0)
        return false;
    r->p += n;
    return true;
}

static int bad(struct reader *r)
{
    return err_set(r->err, ERR_INVALID, "label selector: cannot be read at \"%.40s\"", r->p);
}

static int read_set(struct reader *r, struct term *t)
{
    skip_space(r);
    if (!take(r, "("))
        return bad(r);
    do {
        skip_space(r);
        if (t->n_values >= SELECTOR_VALUES_MAX)
            return bad(r);
        t->values[t->n_values] = word(r);
        if (!t->values[t->n_values++])
            return err_set(r->err, ERR_NO_MEMORY, "label selector");
        skip_space(r);
    } while (take(r, ","));
    return take(r, ")") ? 0 : bad(r);
}

static int read_equal(struct reader *r, struct term *t)
{
    skip_space(r);
    t->values[0] = word(r);
    t->n_values = 1;
    return t->values[0] ? 0 : err_set(r->err, ERR_NO_MEMORY, "label selector");
}

static int read_term(struct reader *r, struct term *t)
{
    bool negated;

    skip_space(r);
    negated = take(r, "!");
    t->key = word(r);
    if (!t->key)
        return err_set(r->err, ERR_NO_MEMORY, "label selector");
    if (t->key[0] == '\0')
        return bad(r);
    skip_space(r);
    t->op = negated ? OP_MISSING : OP_EXISTS;
    if (negated || *r->p == ',' || *r->p == '\0')
        return 0;
    if (take(r, "==") || take(r, "=")) {
        t->op = OP_IN;
        return read_equal(r, t);
    }
    if (take(r, "!=")) {
        t->op = OP_NOT_IN;
        return read_equal(r, t);
    }
    if (take(r, "in ") || (strncmp(r->p, "in(", 3) == 0 && take(r, "in"))) {
        t->op = OP_IN;
        return read_set(r, t);
    }
    if (take(r, "notin ") || (strncmp(r->p, "notin(", 6) == 0 && take(r, "notin"))) {
        t->op = OP_NOT_IN;
        return read_set(r, t);
    }
    return bad(r);
}

int selector_parse(const char *text, struct arena *mem, const struct selector **ret,
                   struct err *err)
{
    struct selector *s = arena_alloc(mem, sizeof(*s));
    struct reader r = {.p = text, .mem = mem, .err = err};

    if (!s)
        return err_set(err, ERR_NO_MEMORY, "label selector");
    skip_space(&r);
    while (*r.p) {
        int result;

        if (s->n >= SELECTOR_TERMS_MAX)
            return bad(&r);
        result = read_term(&r, &s->terms[s->n++]);
        if (result)
            return result;
        skip_space(&r);
        if (*r.p && (!take(&r, ",") || *r.p == '\0'))
            return bad(&r);
    }
    *ret = s;
    return 0;
}

static bool term_matches(const struct term *t, const cJSON *labels)
{
    const char *value = json_str(labels, t->key, NULL);
    bool among = false;

    for (size_t i = 0; value && i < t->n_values; i++)
        among = among || strcmp(value, t->values[i]) == 0;
    switch (t->op) {
    case OP_IN:
        return among;
    case OP_NOT_IN:
        return !among;
    case OP_EXISTS:
        return value != NULL;
    case OP_MISSING:
        break;
    }
    return value == NULL;
}

bool selector_matches(const struct selector *s, const cJSON *labels)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!term_matches(&s->terms[i], labels))
            return false;
    }
    return true;
}
