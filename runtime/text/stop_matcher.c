/* SPDX-License-Identifier: Apache-2.0
 *
 * stop_matcher.c - stop strings in a text that arrives in pieces.
 *
 * One Knuth-Morris-Pratt automaton a string: its state is the length of the longest prefix of the
 * string that the text so far ends with.  The largest state over all strings is therefore exactly
 * what has to be held back, and it needs no buffer: what is held is a prefix of one of the strings.
 * An Aho-Corasick automaton would look at each byte once instead of n times, but n is at most
 * STOP_STRINGS_MAX and its table would be megabytes a request.
 *
 * A plain object of one sequence: whichever thread has the sequence calls it.
 */
#include "runtime/text/stop_matcher.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

struct stop_string {
    char *text;
    uint16_t
            *fail; /* fail[k]: longest proper prefix of text[0..k] that ends text[0..k], in bytes */
    size_t len;
    size_t state; /* bytes of it that the text so far ends with; < len */
};

struct stop_matcher {
    struct stop_string strings[STOP_STRINGS_MAX];
    size_t n;
    size_t holder; /* the string whose prefix is held */
    bool matched;
};

static void compute_fail(struct stop_string *s)
{
    size_t k = 0;

    s->fail[0] = 0;
    for (size_t i = 1; i < s->len; i++) {
        while (k > 0 && s->text[i] != s->text[k])
            k = s->fail[k - 1];
        if (s->text[i] == s->text[k])
            k++;
        s->fail[i] = (uint16_t)k;
    }
}

static int add_string(struct stop_matcher *m, const char *text, struct err *err)
{
    struct stop_string *s = &m->strings[m->n];
    size_t len = strlen(text);

    if (len == 0 || len > STOP_BYTES_MAX)
        return err_set(err, ERR_INVALID, "stop string of %zu bytes, want 1..%d", len,
                       STOP_BYTES_MAX);
    m->n++;
    s->len = len;
    s->text = mem_strndup(text, len);
    s->fail = mem_calloc(len, sizeof(*s->fail));
    if (!s->text || !s->fail)
        return err_set(err, ERR_NO_MEMORY, "stop string");
    compute_fail(s);
    return 0;
}

int stop_matcher_new(const char *const *strings, size_t n, struct stop_matcher **ret,
                     struct err *err)
{
    CLEANUP(stop_matcher_freep) struct stop_matcher *m = NULL;
    int r;

    if (n > STOP_STRINGS_MAX)
        return err_set(err, ERR_INVALID, "%zu stop strings, at most %d", n, STOP_STRINGS_MAX);
    m = mem_calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ERR_NO_MEMORY, "stop matcher");
    for (size_t i = 0; i < n; i++) {
        r = add_string(m, strings[i], err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(m);
    return 0;
}

void stop_matcher_free(struct stop_matcher *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        mem_free(m->strings[i].text);
        mem_free(m->strings[i].fail);
    }
    mem_free(m);
}

static size_t n_held(const struct stop_matcher *m)
{
    return m->n > 0 ? m->strings[m->holder].state : 0;
}

/* One byte into every automaton.  The longest string that is now complete, or NULL. */
static const struct stop_string *step(struct stop_matcher *m, char c)
{
    const struct stop_string *hit = NULL;

    m->holder = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct stop_string *s = &m->strings[i];

        while (s->state > 0 && s->text[s->state] != c)
            s->state = s->fail[s->state - 1];
        if (s->text[s->state] == c)
            s->state++;
        if (s->state == s->len && (!hit || s->len > hit->len))
            hit = s;
        if (s->state == s->len)
            s->state = s->fail[s->len - 1];
        if (s->state > m->strings[m->holder].state)
            m->holder = i;
    }
    return hit;
}

/* The first n bytes of held + text. */
static void show(struct str *out, const char *held, size_t held_len, const char *text, size_t n)
{
    str_add(out, held, n < held_len ? n : held_len);
    if (n > held_len)
        str_add(out, text, n - held_len);
}

bool stop_matcher_add(struct stop_matcher *m, const char *text, size_t len, struct str *out,
                      size_t *ret_which)
{
    const char *held = m->n > 0 ? m->strings[m->holder].text : "";
    size_t held_len = n_held(m);

    if (m->matched)
        return true;
    for (size_t i = 0; i < len && m->n > 0; i++) {
        const struct stop_string *hit = step(m, text[i]);

        if (hit) {
            show(out, held, held_len, text, held_len + i + 1 - hit->len);
            m->matched = true;
            *ret_which = (size_t)(hit - m->strings);
            return true;
        }
    }
    show(out, held, held_len, text, held_len + len - n_held(m));
    return false;
}

void stop_matcher_finish(struct stop_matcher *m, struct str *out)
{
    if (m->n > 0 && !m->matched)
        str_add(out, m->strings[m->holder].text, n_held(m));
    for (size_t i = 0; i < m->n; i++)
        m->strings[i].state = 0;
}
