/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab.c - tokens, their bytes, and the order in which pairs of them merge.
 *
 * All token bytes lie in one block, decoded once: a byte-level token loses its printable spelling
 * here, so that the rest of the folder deals in real bytes.  A SentencePiece token keeps "▁" in
 * the block that the encoder searches and has a second, final spelling in another.
 *
 * Two vocabularies, one question ("what do these two neighbours become, and how soon?"):
 * - byte level: a list of merges; a merge's rank is its place in the list.
 * - SentencePiece: no list.  Two plain tokens merge if their concatenation is a token, and the
 *   better score goes first.  Of equal scores (one result can come from several pairs, "aa"+"a" and
 *   "a"+"aa") the longer left part goes first, then the longer right one, which is the order in
 *   which the published tokenizer.json of these models lists them.  User-defined tokens, runs of
 *   spaces in practice, go before all others and are equal among themselves.
 *
 * Control, unknown and byte tokens take no part: no text can merge into one.
 */
#include "runtime/text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/byte_level.h"

static const char SPACE_MARK[] = "\xE2\x96\x81"; /* U+2581 */
enum { SPACE_MARK_LEN = 3 };

/* Blocks of bytes cut at offsets: text i is data[at[i] .. at[i + 1]). */
struct texts {
    struct str data;
    uint32_t *at;
};

struct merge {
    int32_t left, right; /* left -1: an empty slot */
    int32_t result;
    uint32_t rank;
};

struct vocab {
    enum vocab_kind kind;
    uint32_t n;
    uint8_t *types;
    struct texts spelled; /* as the encoder meets it */
    struct texts final;   /* as it is shown; SentencePiece only */
    uint32_t *ranks;      /* SentencePiece: place by score, the best is 0 */
    uint16_t *n_chars;    /* SentencePiece: characters of a token */
    int32_t bytes[256];
    uint64_t seed;
    int32_t *slots;       /* open addressing over the plain tokens; -1: empty */
    size_t n_slots;       /* power of two */
    struct merge *merges; /* open addressing; byte level only */
    size_t n_merge_slots;
};

static void texts_release(struct texts *t)
{
    str_release(&t->data);
    mem_free(t->at);
}

static const char *text_of(const struct texts *t, int32_t id, size_t *ret_len)
{
    *ret_len = t->at[id + 1] - t->at[id];
    return str_text(&t->data) + t->at[id];
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 33;
}

static uint64_t hash_bytes(const struct vocab *v, const char *s, size_t len)
{
    uint64_t h = v->seed ^ 0xcbf29ce484222325u; /* FNV-1a */

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return mix(h);
}

static size_t slots_for(size_t n)
{
    size_t slots = 16;

    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

int32_t vocab_find(const struct vocab *v, const char *bytes, size_t len)
{
    if (len > VOCAB_TOKEN_BYTES_MAX)
        return -1;
    for (size_t i = hash_bytes(v, bytes, len) & (v->n_slots - 1); v->slots[i] >= 0;
         i = (i + 1) & (v->n_slots - 1)) {
        size_t have;
        const char *text = text_of(&v->spelled, v->slots[i], &have);

        if (have == len && memcmp(text, bytes, len) == 0)
            return v->slots[i];
    }
    return -1;
}

static bool is_plain(const struct vocab *v, int32_t id)
{
    return v->types[id] == VOCAB_NORMAL || v->types[id] == VOCAB_UNUSED ||
           (v->types[id] == VOCAB_USER_DEFINED && v->kind == VOCAB_SENTENCEPIECE);
}

static int index_tokens(struct vocab *v, struct err *err)
{
    v->n_slots = slots_for(v->n);
    v->slots = mem_calloc(v->n_slots, sizeof(*v->slots));
    if (!v->slots)
        return err_set(err, ERR_NO_MEMORY, "vocabulary of %u tokens", v->n);
    memset(v->slots, 0xff, v->n_slots * sizeof(*v->slots));
    for (int32_t id = 0; id < (int32_t)v->n; id++) {
        size_t len;
        const char *text = text_of(&v->spelled, id, &len);
        size_t i = hash_bytes(v, text, len) & (v->n_slots - 1);

        if (!is_plain(v, id) || vocab_find(v, text, len) >= 0)
            continue; /* of two tokens of one spelling, the first is meant */
        while (v->slots[i] >= 0)
            i = (i + 1) & (v->n_slots - 1);
        v->slots[i] = id;
    }
    return 0;
}

/* Undo what stands for what in the file.  Appends to *out. */
static void add_spelled(const struct vocab *v, uint8_t type, struct gguf_str s, struct str *out)
{
    if (v->kind == VOCAB_BYTE_LEVEL) {
        if (type != VOCAB_NORMAL || !byte_level_decode(s.data, s.len, out))
            str_add(out, s.data, s.len);
        return;
    }
    /* User-defined runs of spaces are written as spaces in a GGUF; the encoder looks for "▁". */
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] == ' ' && type == VOCAB_USER_DEFINED)
            str_add(out, SPACE_MARK, SPACE_MARK_LEN);
        else
            str_addc(out, s.data[i]);
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" is the byte 10; -1: not a byte's name. */
static int byte_of(struct gguf_str s)
{
    int high, low;

    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
        return -1;
    high = hex_digit(s.data[3]);
    low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static int add_final(struct vocab *v, int32_t id, struct gguf_str s, struct err *err)
{
    struct str *out = &v->final.data;
    int byte;

    if (v->types[id] == VOCAB_BYTE) {
        byte = byte_of(s);
        if (byte < 0)
            return err_set(err, ERR_INVALID, "byte token %d is not spelled <0xHH>", id);
        v->bytes[byte] = id;
        str_addc(out, (char)byte);
        return 0;
    }
    for (size_t i = 0; i < s.len;) {
        if (s.len - i >= SPACE_MARK_LEN && memcmp(s.data + i, SPACE_MARK, SPACE_MARK_LEN) == 0) {
            str_addc(out, ' ');
            i += SPACE_MARK_LEN;
        } else {
            str_addc(out, s.data[i++]);
        }
    }
    return 0;
}

static uint16_t count_chars(const char *s, size_t len)
{
    uint16_t n = 0;

    for (size_t i = 0; i < len; n++) {
        uint32_t cp;
        int step = utf8_decode(s + i, len - i, &cp);

        i += step > 0 ? (size_t)step : 1;
    }
    return n;
}

static int add_token(struct vocab *v, int32_t id, struct gguf_str s, struct err *err)
{
    size_t len;
    const char *text;

    if (s.len > VOCAB_TOKEN_BYTES_MAX)
        return err_set(err, ERR_INVALID, "token %d has %zu bytes, at most %d", id, s.len,
                       VOCAB_TOKEN_BYTES_MAX);
    add_spelled(v, v->types[id], s, &v->spelled.data);
    v->spelled.at[id + 1] = (uint32_t)v->spelled.data.len;
    if (v->kind == VOCAB_BYTE_LEVEL)
        return 0;
    text = text_of(&v->spelled, id, &len);
    v->n_chars[id] = count_chars(text, len);
    if (add_final(v, id, s, err) < 0)
        return -ERR_INVALID;
    v->final.at[id + 1] = (uint32_t)v->final.data.len;
    return 0;
}

static int load_types(struct vocab *v, const struct gguf *g, struct err *err)
{
    CLEANUP(mem_freep) int32_t *types = mem_calloc(v->n, sizeof(*types));
    int r;

    v->types = mem_calloc(v->n, sizeof(*v->types));
    if (!types || !v->types)
        return err_set(err, ERR_NO_MEMORY, "vocabulary of %u tokens", v->n);
    memset(v->types, VOCAB_NORMAL, v->n);
    if (!gguf_has(g, "tokenizer.ggml.token_type"))
        return 0;
    r = gguf_array_i32(g, "tokenizer.ggml.token_type", v->n, types, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < v->n; i++) {
        if (types[i] < VOCAB_NORMAL || types[i] > VOCAB_BYTE)
            return err_set(err, ERR_INVALID, "token %u has the unknown type %d", i, types[i]);
        v->types[i] = (uint8_t)types[i];
    }
    return 0;
}

static int load_tokens(struct vocab *v, const struct gguf *g, struct err *err)
{
    CLEANUP(mem_freep) struct gguf_str *strings = mem_calloc(v->n, sizeof(*strings));
    int r;

    v->spelled.at = mem_calloc(v->n + 1u, sizeof(*v->spelled.at));
    v->final.at = mem_calloc(v->n + 1u, sizeof(*v->final.at));
    v->n_chars = mem_calloc(v->n, sizeof(*v->n_chars));
    if (!strings || !v->spelled.at || !v->final.at || !v->n_chars)
        return err_set(err, ERR_NO_MEMORY, "vocabulary of %u tokens", v->n);
    r = gguf_array_strings(g, "tokenizer.ggml.tokens", v->n, strings, err);
    for (uint32_t i = 0; i < v->n && r == 0; i++)
        r = add_token(v, (int32_t)i, strings[i], err);
    if (r == 0)
        r = str_check(&v->spelled.data, "vocabulary", err);
    if (r == 0)
        r = str_check(&v->final.data, "vocabulary", err);
    return r;
}

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Scores to ranks: the priority of a merge has to be an integer to be packed with a length. */
static int load_scores(struct vocab *v, const struct gguf *g, struct err *err)
{
    CLEANUP(mem_freep) float *scores = mem_calloc(v->n, sizeof(*scores));
    CLEANUP(mem_freep) struct scored *order = mem_calloc(v->n, sizeof(*order));
    int r;

    v->ranks = mem_calloc(v->n, sizeof(*v->ranks));
    if (!scores || !order || !v->ranks)
        return err_set(err, ERR_NO_MEMORY, "scores of %u tokens", v->n);
    r = gguf_array_f32(g, "tokenizer.ggml.scores", v->n, scores, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!(scores[i] >= -1e30f && scores[i] <= 1e30f))
            return err_set(err, ERR_INVALID, "token %u has no finite score", i);
        order[i] = (struct scored){
                .score = v->types[i] == VOCAB_USER_DEFINED ? 2e30f : scores[i],
                .id = (int32_t)i,
        };
    }
    qsort(order, v->n, sizeof(*order), by_score);
    for (uint32_t i = 0; i < v->n; i++) {
        bool tie = i > 0 && !(order[i].score < order[i - 1].score);

        v->ranks[order[i].id] = tie ? v->ranks[order[i - 1].id] : i;
    }
    return 0;
}

static struct merge *merge_slot(const struct vocab *v, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = mix(key ^ v->seed) & (v->n_merge_slots - 1);

    while (v->merges[i].left >= 0 && (v->merges[i].left != left || v->merges[i].right != right))
        i = (i + 1) & (v->n_merge_slots - 1);
    return &v->merges[i];
}

/* "Ġt he": two spellings with one space between them. */
static int add_merge(struct vocab *v, uint32_t rank, struct gguf_str s, struct err *err)
{
    CLEANUP(str_release) struct str both = STR_INIT(2 * VOCAB_TOKEN_BYTES_MAX);
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    size_t left_len;
    struct merge m = {.rank = rank};
    struct merge *slot;

    if (!space || !byte_level_decode(s.data, (size_t)(space - s.data), &both))
        return err_set(err, ERR_INVALID, "merge %u is not two byte-level tokens", rank);
    left_len = both.len;
    if (!byte_level_decode(space + 1, s.len - (size_t)(space + 1 - s.data), &both))
        return err_set(err, ERR_INVALID, "merge %u is not two byte-level tokens", rank);
    if (str_check(&both, "merge", err) < 0)
        return -ERR_NO_MEMORY;
    m.left = vocab_find(v, both.data, left_len);
    m.right = vocab_find(v, both.data + left_len, both.len - left_len);
    m.result = vocab_find(v, both.data, both.len);
    if (m.left < 0 || m.right < 0 || m.result < 0)
        return err_set(err, ERR_INVALID, "merge %u names a token that is not in the vocabulary",
                       rank);
    slot = merge_slot(v, m.left, m.right);
    if (slot->left < 0)
        *slot = m;
    return 0;
}

static int load_merges(struct vocab *v, const struct gguf *g, struct err *err)
{
    CLEANUP(mem_freep) struct gguf_str *strings = NULL;
    size_t n;
    int r = gguf_array_len(g, "tokenizer.ggml.merges", &n, err);

    if (r < 0)
        return r;
    if (n > VOCAB_TOKENS_MAX)
        return err_set(err, ERR_INVALID, "%zu merges, at most %d", n, VOCAB_TOKENS_MAX);
    v->n_merge_slots = slots_for(n);
    v->merges = mem_calloc(v->n_merge_slots, sizeof(*v->merges));
    strings = mem_calloc(n + 1, sizeof(*strings));
    if (!v->merges || !strings)
        return err_set(err, ERR_NO_MEMORY, "%zu merges", n);
    for (size_t i = 0; i < v->n_merge_slots; i++)
        v->merges[i].left = -1;
    r = gguf_array_strings(g, "tokenizer.ggml.merges", n, strings, err);
    for (size_t i = 0; i < n && r == 0; i++)
        r = add_merge(v, (uint32_t)i, strings[i], err);
    return r;
}

static int load_kind(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct gguf_str model;
    size_t n;
    int r = gguf_string(g, "tokenizer.ggml.model", &model, err);

    if (r < 0)
        return r;
    if (model.len == 4 && memcmp(model.data, "gpt2", 4) == 0)
        v->kind = VOCAB_BYTE_LEVEL;
    else if (model.len == 5 && memcmp(model.data, "llama", 5) == 0)
        v->kind = VOCAB_SENTENCEPIECE;
    else
        return err_set(err, ERR_INVALID, "tokenizer.ggml.model '%.*s' is neither gpt2 nor llama",
                       (int)(model.len < 64 ? model.len : 64), model.data);
    r = gguf_array_len(g, "tokenizer.ggml.tokens", &n, err);
    if (r < 0)
        return r;
    if (n == 0 || n > VOCAB_TOKENS_MAX)
        return err_set(err, ERR_INVALID, "%zu tokens, want 1..%d", n, VOCAB_TOKENS_MAX);
    v->n = (uint32_t)n;
    return 0;
}

int vocab_new(const struct gguf *g, struct vocab **ret, struct err *err)
{
    CLEANUP(vocab_freep) struct vocab *v = mem_calloc(1, sizeof(*v));
    int r;

    if (!v)
        return err_set(err, ERR_NO_MEMORY, "vocabulary");
    v->spelled.data.max = v->final.data.max = 64u << 20;
    memset(v->bytes, 0xff, sizeof(v->bytes));
    (void)!getrandom(&v->seed, sizeof(v->seed), GRND_NONBLOCK);
    r = load_kind(v, g, err);
    if (r == 0)
        r = load_types(v, g, err);
    if (r == 0)
        r = load_tokens(v, g, err);
    if (r == 0)
        r = index_tokens(v, err);
    if (r == 0)
        r = v->kind == VOCAB_BYTE_LEVEL ? load_merges(v, g, err) : load_scores(v, g, err);
    if (r < 0)
        return r;
    for (int b = 0; b < 256 && v->kind == VOCAB_BYTE_LEVEL; b++)
        v->bytes[b] = vocab_find(v, (char[]){(char)b}, 1);
    *ret = TAKE_PTR(v);
    return 0;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    texts_release(&v->spelled);
    texts_release(&v->final);
    mem_free(v->types);
    mem_free(v->ranks);
    mem_free(v->n_chars);
    mem_free(v->slots);
    mem_free(v->merges);
    mem_free(v);
}

enum vocab_kind vocab_kind(const struct vocab *v)
{
    return v->kind;
}

uint32_t vocab_n(const struct vocab *v)
{
    return v->n;
}

enum vocab_type vocab_type(const struct vocab *v, int32_t id)
{
    return id >= 0 && (uint32_t)id < v->n ? (enum vocab_type)v->types[id] : VOCAB_UNKNOWN;
}

const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *ret_len)
{
    *ret_len = 0;
    if (id < 0 || (uint32_t)id >= v->n)
        return "";
    return text_of(v->kind == VOCAB_SENTENCEPIECE ? &v->final : &v->spelled, id, ret_len);
}

int32_t vocab_byte(const struct vocab *v, unsigned char byte)
{
    return v->bytes[byte];
}

int32_t vocab_merge(const struct vocab *v, int32_t left, int32_t right, const char *bytes,
                    size_t len, uint64_t *ret_priority)
{
    int32_t id;

    if (left < 0 || right < 0)
        return -1;
    if (v->kind == VOCAB_BYTE_LEVEL) {
        const struct merge *m = merge_slot(v, left, right);

        *ret_priority = m->rank;
        return m->left < 0 ? -1 : m->result;
    }
    id = vocab_find(v, bytes, len);
    if (id >= 0)
        *ret_priority = (uint64_t)v->ranks[id] << 32 |
                        (uint64_t)(0xffffu - v->n_chars[left]) << 16 |
                        (0xffffu - v->n_chars[right]);
    return id;
}
