/* SPDX-License-Identifier: Apache-2.0
 *
 * pretokenizer.c - words by PCRE2, with UTF and UCP.
 *
 * Three cuts, one inside the other: a text into stretches of valid UTF-8 and runs of invalid bytes
 * (PCRE2 is then told not to check again), a stretch into parts by the first pattern (smollm: each
 * digit alone), and a part into words by GPT-2's pattern.  The parts are matched as texts of their
 * own, because the look-ahead of "\s+(?!\S)" must not see beyond its part.
 *
 * \s is spelled out as Unicode's White_Space: PCRE2's own adds U+180E, which lost that property in
 * Unicode 6.3.  No just-in-time compilation: it needs pages that are writable and executable.
 *
 * GPT-2's pattern: https://github.com/openai/gpt-2, encoder.py.
 */
#include "runtime/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define SPACES                                                                  \
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}" \
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define GPT2                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES \
    "]+(?![^" SPACES "])|[" SPACES "]+"

static const struct {
    const char *name;
    const char *first; /* NULL: none; what it matches is a part, and so is what lies between */
    const char *words;
} kinds[] = {
        {"gpt-2", NULL, GPT2},
        {"smollm", "\\p{N}", GPT2},
};

struct pretokenizer {
    pcre2_general_context *memory;
    pcre2_code *first; /* NULL: none */
    pcre2_code *words;
};

struct pretokenizer_cut {
    const struct pretokenizer *p;
    pcre2_match_data *match;
    const char *text;
    size_t at, len;       /* the whole text */
    size_t stretch_end;   /* valid UTF-8 up to here */
    size_t part_end;      /* cut by the second pattern up to here */
    size_t next_part_end; /* the part after it, known already; 0: not */
};

static void *pcre_alloc(size_t size, void *userdata)
{
    (void)userdata;
    return mem_realloc(NULL, size);
}

static void pcre_free(void *p, void *userdata)
{
    (void)userdata;
    mem_free(p);
}

static int compile(struct pretokenizer *p, const char *pattern, pcre2_code **ret, struct err *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    PCRE2_SIZE offset = 0;
    int code = PCRE2_ERROR_HEAP_FAILED;

    if (context)
        *ret = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                             &code, &offset, context);
    pcre2_compile_context_free(context);
    if (*ret)
        return 0;
    if (code == PCRE2_ERROR_HEAP_FAILED)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer pattern");
    return err_set(err, ERR_INTERNAL, "pre-tokenizer pattern: error %d at %zu", code, offset);
}

int pretokenizer_new(const char *name, size_t name_len, struct pretokenizer **ret, struct err *err)
{
    CLEANUP(pretokenizer_freep) struct pretokenizer *p = NULL;
    size_t kind = 0;
    int r = 0;

    while (kind < sizeof(kinds) / sizeof(kinds[0]) &&
           (strlen(kinds[kind].name) != name_len || memcmp(kinds[kind].name, name, name_len) != 0))
        kind++;
    if (kind == sizeof(kinds) / sizeof(kinds[0]))
        return err_set(err, ERR_INVALID, "pre-tokenizer '%.*s' is not supported",
                       (int)(name_len < 64 ? name_len : 64), name);
    p = mem_calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer");
    p->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (!p->memory)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer");
    if (kinds[kind].first)
        r = compile(p, kinds[kind].first, &p->first, err);
    if (r == 0)
        r = compile(p, kinds[kind].words, &p->words, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(p);
    return 0;
}

void pretokenizer_free(struct pretokenizer *p)
{
    if (!p)
        return;
    pcre2_code_free(p->first);
    pcre2_code_free(p->words);
    pcre2_general_context_free(p->memory);
    mem_free(p);
}

int pretokenizer_cut_new(const struct pretokenizer *p, const char *text, size_t len,
                         struct pretokenizer_cut **ret, struct err *err)
{
    CLEANUP(pretokenizer_cut_freep) struct pretokenizer_cut *c = mem_calloc(1, sizeof(*c));

    if (!c)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer");
    *c = (struct pretokenizer_cut){.p = p, .text = text, .len = len};
    c->match = pcre2_match_data_create(1, p->memory);
    if (!c->match)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer");
    *ret = TAKE_PTR(c);
    return 0;
}

void pretokenizer_cut_free(struct pretokenizer_cut *c)
{
    if (!c)
        return;
    pcre2_match_data_free(c->match);
    mem_free(c);
}

/* From 'at' on: how many bytes are all valid, or (when the first is not) all invalid. */
static size_t same_validity(const char *text, size_t at, size_t len, bool *ret_valid)
{
    size_t start = at;
    uint32_t cp;

    *ret_valid = utf8_decode(text + at, len - at, &cp) > 0;
    while (at < len) {
        int n = utf8_decode(text + at, len - at, &cp);

        if ((n > 0) != *ret_valid)
            break;
        at += n > 0 ? (size_t)n : 1;
    }
    return at - start;
}

/* The first match in text[at..end), as if that were all there is.  1, 0 for no match, < 0. */
static int match(struct pretokenizer_cut *c, const pcre2_code *code, size_t at, size_t end,
                 size_t *ret_start, size_t *ret_end, struct err *err)
{
    const PCRE2_SIZE *found;
    int r = pcre2_match(code, (PCRE2_SPTR)(c->text + at), end - at, 0, PCRE2_NO_UTF_CHECK, c->match,
                        NULL);

    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r == PCRE2_ERROR_NOMEMORY || r == PCRE2_ERROR_HEAPLIMIT)
        return err_set(err, ERR_NO_MEMORY, "pre-tokenizer");
    if (r < 0)
        return err_set(err, ERR_INTERNAL, "pre-tokenizer: PCRE2 error %d", r);
    found = pcre2_get_ovector_pointer(c->match);
    *ret_start = at + found[0];
    *ret_end = at + found[1];
    return 1;
}

/* Set part_end for the part that starts at 'at', inside of the stretch. */
static int next_part(struct pretokenizer_cut *c, struct err *err)
{
    size_t start, end;
    int r;

    if (c->next_part_end > 0) { /* the digit that ended the part before */
        c->part_end = c->next_part_end;
        c->next_part_end = 0;
        return 0;
    }
    c->part_end = c->stretch_end;
    if (!c->p->first)
        return 0;
    r = match(c, c->p->first, c->at, c->stretch_end, &start, &end, err);
    if (r <= 0)
        return r;
    c->part_end = start == c->at ? end : start;
    c->next_part_end = start == c->at ? 0 : end;
    return 0;
}

int pretokenizer_cut_next(struct pretokenizer_cut *c, const char **ret_word, size_t *ret_len,
                          struct err *err)
{
    size_t start = c->at, end = c->at;
    int r;

    if (c->at == c->len)
        return 0;
    if (c->at == c->stretch_end) {
        bool valid;
        size_t n = same_validity(c->text, c->at, c->len, &valid);

        c->stretch_end = c->at + n;
        if (!valid) {
            c->part_end = c->at = c->stretch_end;
            *ret_word = c->text + start;
            *ret_len = n;
            return 1;
        }
    }
    if (c->at >= c->part_end) {
        r = next_part(c, err);
        if (r < 0)
            return r;
    }
    r = match(c, c->p->words, c->at, c->part_end, &start, &end, err);
    if (r < 0)
        return r;
    if (r == 0 || start != c->at || end <= start)
        return err_set(err, ERR_INTERNAL, "pre-tokenizer: a text that no alternative matches");
    *ret_word = c->text + start;
    *ret_len = end - start;
    c->at = end;
    return 1;
}
