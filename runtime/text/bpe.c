/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe.c - byte-pair encoding in O(n log n).
 *
 * A word is a doubly linked list of symbols in an array.  Every pair of neighbours that merges sits
 * in a heap; the best one (lowest priority, then leftmost) is taken, its right half unlinked, and
 * the two new pairs around it are added.  Pairs whose symbols have changed meanwhile stay in the
 * heap and are dropped when they come up.  Searching the best pair anew for every merge would be
 * quadratic, and a SentencePiece "word" is a whole line.
 *
 * A symbol that is in the vocabulary only as bytes (an unknown character's, or an invalid byte) is
 * kept as ~id: it is put out like others but never merges.  A byte that has no token at all
 * disappears, and its neighbours then touch, as in the reference implementation.
 */
#include "runtime/text/bpe.h"

#include <stdbool.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/vocab.h"

enum { WORD_BYTES_MAX = 1 << 30 };
static const uint32_t NONE = UINT32_MAX;

struct bpe_symbol {
    int32_t id;       /* < 0: never merges */
    uint32_t at, len; /* bytes of the word */
    uint32_t prev, next;
};

struct bpe_pair {
    uint64_t priority;
    uint32_t left; /* index of the left symbol */
    int32_t left_id, right_id, result;
};

void bpe_release(struct bpe *b)
{
    mem_free(b->symbols);
    mem_free(b->heap);
    *b = (struct bpe){.vocab = b->vocab};
}

int token_list_add(struct token_list *l, int32_t id, struct err *err)
{
    if (l->n >= l->max)
        return err_set(err, ERR_INVALID, "text has more than %zu tokens", l->max);
    if (l->n == l->cap) {
        size_t cap = l->cap < 64 ? 64 : l->cap * 2;
        int32_t *ids = mem_realloc(l->ids, cap * sizeof(*ids));

        if (!ids)
            return err_set(err, ERR_NO_MEMORY, "token list of %zu", cap);
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

static bool before(const struct bpe_pair *a, const struct bpe_pair *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->left < b->left;
}

static int heap_push(struct bpe *b, struct bpe_pair p, struct err *err)
{
    size_t i = b->n_heap;

    if (b->n_heap == b->cap_heap) {
        size_t cap = b->cap_heap < 64 ? 64 : b->cap_heap * 2;
        struct bpe_pair *heap = mem_realloc(b->heap, cap * sizeof(*heap));

        if (!heap)
            return err_set(err, ERR_NO_MEMORY, "%zu pairs of a text", cap);
        b->heap = heap;
        b->cap_heap = cap;
    }
    b->n_heap++;
    for (; i > 0 && before(&p, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = p;
    return 0;
}

static struct bpe_pair heap_pop(struct bpe *b)
{
    struct bpe_pair top = b->heap[0];
    struct bpe_pair last = b->heap[--b->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= b->n_heap)
            break;
        if (child + 1 < b->n_heap && before(&b->heap[child + 1], &b->heap[child]))
            child++;
        if (!before(&b->heap[child], &last))
            break;
        b->heap[i] = b->heap[child];
        i = child;
    }
    b->heap[i] = last;
    return top;
}

static int add_symbol(struct bpe *b, int32_t id, size_t at, size_t len, struct err *err)
{
    uint32_t i = (uint32_t)b->n_symbols;

    if (b->n_symbols == b->cap_symbols) {
        size_t cap = b->cap_symbols < 64 ? 64 : b->cap_symbols * 2;
        struct bpe_symbol *symbols = mem_realloc(b->symbols, cap * sizeof(*symbols));

        if (!symbols)
            return err_set(err, ERR_NO_MEMORY, "%zu characters of a text", cap);
        b->symbols = symbols;
        b->cap_symbols = cap;
    }
    b->symbols[i] = (struct bpe_symbol){
            .id = id,
            .at = (uint32_t)at,
            .len = (uint32_t)len,
            .prev = i > 0 ? i - 1 : NONE,
            .next = NONE,
    };
    if (i > 0)
        b->symbols[i - 1].next = i;
    b->n_symbols++;
    return 0;
}

/* The symbols that a word starts from: characters for SentencePiece, bytes for byte level. */
static int add_symbols(struct bpe *b, const char *word, size_t len, struct err *err)
{
    bool by_character = vocab_kind(b->vocab) == VOCAB_SENTENCEPIECE;

    b->n_symbols = b->n_heap = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = by_character ? utf8_decode(word + i, len - i, &cp) : 0;
        int32_t id = n > 0 ? vocab_find(b->vocab, word + i, (size_t)n) : -1;
        size_t step = n > 0 ? (size_t)n : 1;

        if (id >= 0 && add_symbol(b, id, i, step, err) < 0)
            return -ERR_NO_MEMORY;
        for (size_t k = 0; k < step && id < 0; k++) {
            int32_t byte = vocab_byte(b->vocab, (unsigned char)word[i + k]);

            if (byte >= 0 && add_symbol(b, by_character ? ~byte : byte, i + k, 1, err) < 0)
                return -ERR_NO_MEMORY;
        }
        i += step;
    }
    return 0;
}

/* Offer the pair (left, its right neighbour) to the heap. */
static int offer(struct bpe *b, const char *word, uint32_t left, struct err *err)
{
    const struct bpe_symbol *l = &b->symbols[left];
    const struct bpe_symbol *r;
    struct bpe_pair p = {.left = left};

    if (l->next == NONE)
        return 0;
    r = &b->symbols[l->next];
    p.left_id = l->id;
    p.right_id = r->id;
    p.result = vocab_merge(b->vocab, l->id, r->id, word + l->at, l->len + r->len, &p.priority);
    return p.result < 0 ? 0 : heap_push(b, p, err);
}

static bool is_stale(const struct bpe *b, const struct bpe_pair *p)
{
    const struct bpe_symbol *l = &b->symbols[p->left];

    return l->len == 0 || l->id != p->left_id || l->next == NONE ||
           b->symbols[l->next].id != p->right_id;
}

static void merge(struct bpe *b, const struct bpe_pair *p)
{
    struct bpe_symbol *l = &b->symbols[p->left];
    struct bpe_symbol *r = &b->symbols[l->next];

    l->id = p->result;
    l->len += r->len;
    l->next = r->next;
    if (r->next != NONE)
        b->symbols[r->next].prev = p->left;
    r->len = 0; /* gone: pairs that start at it are stale */
}

static int merge_all(struct bpe *b, const char *word, struct err *err)
{
    int r = 0;

    for (uint32_t i = 0; i < b->n_symbols && r == 0; i++)
        r = offer(b, word, i, err);
    while (b->n_heap > 0 && r == 0) {
        struct bpe_pair p = heap_pop(b);

        if (is_stale(b, &p))
            continue;
        merge(b, &p);
        r = offer(b, word, p.left, err);
        if (r == 0 && b->symbols[p.left].prev != NONE)
            r = offer(b, word, b->symbols[p.left].prev, err);
    }
    return r;
}

int bpe_encode(struct bpe *b, const char *word, size_t len, struct token_list *out, struct err *err)
{
    int r;

    if (len > WORD_BYTES_MAX)
        return err_set(err, ERR_INVALID, "text of %zu bytes, at most %d", len, WORD_BYTES_MAX);
    r = add_symbols(b, word, len, err);
    if (r == 0)
        r = merge_all(b, word, err);
    for (uint32_t i = b->n_symbols > 0 ? 0 : NONE; i != NONE && r == 0; i = b->symbols[i].next) {
        int32_t id = b->symbols[i].id;

        r = token_list_add(out, id < 0 ? ~id : id, err);
    }
    return r;
}
