/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/runtime/reference/golden.h"

#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { FILE_MAX = 64 << 20, HEADER_BYTES = 20, PROMPTS_MAX = 1000 };

struct golden {
    struct str file;
    uint32_t n_vocab;
    uint32_t top;
    uint32_t n_prompts;
    struct golden_prompt *prompts;
    uint32_t n_text;
    const int32_t *text;
    const float *probabilities;
};

static size_t position_bytes(const struct golden *g)
{
    return 12 + (size_t)g->top * 6;
}

/* The next n x size bytes, NULL beyond the end. */
static const void *take(const struct golden *g, size_t *at, size_t n, size_t size)
{
    const char *p = g->file.data + *at;

    if (n > (g->file.len - *at) / size)
        return NULL;
    *at += n * size;
    return p;
}

static bool take_prompt(const struct golden *g, size_t *at, struct golden_prompt *p)
{
    const uint32_t *sizes = take(g, at, 2, 4);

    if (!sizes || sizes[0] == 0 || sizes[1] < sizes[0])
        return false;
    p->n_prompt = sizes[0];
    p->n_total = sizes[1];
    p->tokens = take(g, at, p->n_total, 4);
    p->positions = take(g, at, p->n_total, position_bytes(g));
    return p->tokens && p->positions;
}

static bool take_text(struct golden *g, size_t *at)
{
    const uint32_t *n = take(g, at, 1, 4);

    if (!n || *n < 2)
        return false;
    g->n_text = *n;
    g->text = take(g, at, *n, 4);
    g->probabilities = g->text ? take(g, at, *n - 1, 4) : NULL;
    return g->probabilities && *at == g->file.len;
}

/* All fields are multiples of 4 bytes but 'below', and top is even: everything stays aligned. */
static bool parse(struct golden *g)
{
    size_t at = HEADER_BYTES;
    uint32_t header[4];

    if (g->file.len < HEADER_BYTES || memcmp(g->file.data, "PGLD", 4) != 0)
        return false;
    memcpy(header, g->file.data + 4, sizeof(header));
    g->n_vocab = header[1];
    g->top = header[2];
    if (header[0] != 1 || g->top == 0 || g->top % 2 != 0 || g->top > 4096 ||
        header[3] > PROMPTS_MAX)
        return false;
    g->prompts = mem_calloc(header[3], sizeof(*g->prompts));
    for (; g->prompts && g->n_prompts < header[3]; g->n_prompts++)
        if (!take_prompt(g, &at, &g->prompts[g->n_prompts]))
            return false;
    return g->prompts && take_text(g, &at);
}

int golden_open(const char *path, struct golden **ret, struct err *err)
{
    CLEANUP(golden_freep) struct golden *g = mem_calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_set(err, ERR_NO_MEMORY, "golden file");
    g->file = (struct str)STR_INIT(FILE_MAX);
    r = file_read(path, &g->file, err);
    if (r < 0)
        return r;
    if (!parse(g))
        return err_set(err, ERR_INVALID, "'%s' is not a whole golden file", path);
    *ret = TAKE_PTR(g);
    return 0;
}

void golden_free(struct golden *g)
{
    if (!g)
        return;
    str_release(&g->file);
    mem_free(g->prompts);
    mem_free(g);
}

uint32_t golden_n_vocab(const struct golden *g)
{
    return g->n_vocab;
}

uint32_t golden_top(const struct golden *g)
{
    return g->top;
}

uint32_t golden_n_prompts(const struct golden *g)
{
    return g->n_prompts;
}

const struct golden_prompt *golden_prompt_at(const struct golden *g, uint32_t i)
{
    return &g->prompts[i];
}

struct golden_position golden_position_at(const struct golden *g, const struct golden_prompt *p,
                                          uint32_t i)
{
    const uint8_t *at = p->positions + i * position_bytes(g);
    struct golden_position ret;

    memcpy(&ret.log_sum_exp, at, 4);
    memcpy(&ret.maximum, at + 4, 4);
    memcpy(&ret.magnitude, at + 8, 4);
    ret.ids = (const uint32_t *)(const void *)(at + 12);
    ret.below = (const uint16_t *)(const void *)(at + 12 + (size_t)g->top * 4);
    return ret;
}

uint32_t golden_text(const struct golden *g, const int32_t **tokens, const float **probabilities)
{
    *tokens = g->text;
    *probabilities = g->probabilities;
    return g->n_text;
}
