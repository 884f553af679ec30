/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.c - text to token ids and back.
 *
 * Encoding is: cut out the added tokens (leftmost, then longest), then encode what lies between
 * them, each stretch as one text.  User-defined tokens are ordinary text that the vocabulary's
 * makers wanted whole ("\n\n", "<table>"), so they are cut out everywhere; control tokens only
 * where the caller says that the text is the template's own.
 *
 * A span's border that no control token touches leaves no trace: the text on both sides of it is
 * encoded as one, so a rendered template gives the ids that its whole text would give.
 *
 * Owns the vocabulary, the trie of added tokens and the pre-tokenizer; immutable once made.
 */
#include "runtime/text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/bpe.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/token_trie.h"
#include "runtime/text/vocab.h"

enum { ENDS_MAX = 16, CHARACTER_BYTES_MAX = 4 };

static const char SPACE_MARK[] = "\xE2\x96\x81"; /* U+2581 */

/* Control tokens that end an answer in the templates in use, whatever the metadata says. */
static const char *const end_names[] = {
        "<|im_end|>", "<end_of_turn>", "<|eot_id|>",      "<|eom_id|>",
        "<|end|>",    "<|endoftext|>", "<|end_of_text|>",
};

struct tokenizer {
    struct vocab *vocab;
    struct token_trie *added;
    struct pretokenizer *pre; /* byte level only */
    int32_t bos, eos;
    int32_t ends[ENDS_MAX];
    size_t n_ends;
    size_t longest; /* bytes of a token */
    bool add_bos, add_eos, add_space_prefix;
    char *bos_text, *eos_text;
};

/* One encoding under way. */
struct encoding {
    const struct tokenizer *t;
    const char *text;
    size_t len;
    const struct text_span *spans; /* the next one that may hold a match */
    size_t n_spans;
    struct bpe bpe;
    struct str marked; /* SentencePiece: the stretch with "▁" for spaces */
    struct token_list *out;
};

void token_list_release(struct token_list *l)
{
    mem_free(l->ids);
    *l = (struct token_list){.max = l->max};
}

static int load_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *ret,
                   struct err *err)
{
    uint64_t id;
    int r;

    *ret = -1;
    if (!gguf_has(g, key))
        return 0;
    r = gguf_u64(g, key, vocab_n(t->vocab) - 1, &id, err);
    if (r == 0)
        *ret = (int32_t)id;
    return r;
}

static void add_end(struct tokenizer *t, int32_t id)
{
    if (id >= 0 && !tokenizer_is_end(t, id) && t->n_ends < ENDS_MAX)
        t->ends[t->n_ends++] = id;
}

static bool is_end_name(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(end_names) / sizeof(end_names[0]); i++)
        if (strlen(end_names[i]) == len && memcmp(end_names[i], text, len) == 0)
            return true;
    return false;
}

/* SentencePiece files spell a user-defined run of "▁" with spaces.  Real spaces reach the encoder
 * as "▁" anyway, so what has to be cut out of the text is the mark itself. */
static int add_user_defined(struct tokenizer *t, int32_t id, struct err *err)
{
    CLEANUP(str_release) struct str marks = STR_INIT(3 * VOCAB_TOKEN_BYTES_MAX);
    size_t len;
    const char *text = vocab_bytes(t->vocab, id, &len);
    size_t n_spaces = 0;

    while (n_spaces < len && text[n_spaces] == ' ')
        n_spaces++;
    if (vocab_kind(t->vocab) != VOCAB_SENTENCEPIECE || n_spaces < len)
        return token_trie_add(t->added, text, len, id, err);
    for (size_t i = 0; i < n_spaces; i++)
        str_adds(&marks, SPACE_MARK);
    if (str_check(&marks, "added token", err) < 0)
        return -ERR_NO_MEMORY;
    return token_trie_add(t->added, marks.data, marks.len, id, err);
}

static int load_added(struct tokenizer *t, struct err *err)
{
    int r = token_trie_new(&t->added, err);

    for (int32_t id = 0; id < (int32_t)vocab_n(t->vocab) && r == 0; id++) {
        size_t len;
        const char *text = vocab_bytes(t->vocab, id, &len);
        enum vocab_type type = vocab_type(t->vocab, id);

        if (len == 0 || (type != VOCAB_CONTROL && type != VOCAB_USER_DEFINED))
            continue;
        if (type == VOCAB_CONTROL && is_end_name(text, len))
            add_end(t, id);
        r = type == VOCAB_CONTROL ? token_trie_add(t->added, text, len, id, err)
                                  : add_user_defined(t, id, err);
    }
    return r;
}

static char *text_dup(const struct tokenizer *t, int32_t id)
{
    size_t len;
    const char *text = vocab_bytes(t->vocab, id, &len);

    return mem_strndup(text, len);
}

static void find_longest(struct tokenizer *t)
{
    t->longest = CHARACTER_BYTES_MAX; /* an unknown character is a token, too */
    for (uint32_t i = 0; i < vocab_n(t->vocab); i++) {
        size_t len;

        (void)vocab_bytes(t->vocab, (int32_t)i, &len);
        t->longest = len > t->longest ? len : t->longest;
    }
}

static int load_special(struct tokenizer *t, const struct gguf *g, struct err *err)
{
    bool is_sp = vocab_kind(t->vocab) == VOCAB_SENTENCEPIECE;
    int32_t eot;
    int r = load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err);

    if (r == 0)
        r = load_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err);
    if (r == 0)
        r = load_id(t, g, "tokenizer.ggml.eot_token_id", &eot, err);
    if (r < 0)
        return r;
    add_end(t, t->eos);
    add_end(t, eot);
    t->add_bos = gguf_bool(g, "tokenizer.ggml.add_bos_token", is_sp) && t->bos >= 0;
    t->add_eos = gguf_bool(g, "tokenizer.ggml.add_eos_token", false) && t->eos >= 0;
    t->add_space_prefix = is_sp && gguf_bool(g, "tokenizer.ggml.add_space_prefix", true);
    t->bos_text = text_dup(t, t->bos);
    t->eos_text = text_dup(t, t->eos);
    if (!t->bos_text || !t->eos_text)
        return err_set(err, ERR_NO_MEMORY, "tokenizer");
    return load_added(t, err);
}

static int load_pre(struct tokenizer *t, const struct gguf *g, struct err *err)
{
    struct gguf_str name;
    int r;

    if (vocab_kind(t->vocab) != VOCAB_BYTE_LEVEL)
        return 0;
    r = gguf_string(g, "tokenizer.ggml.pre", &name, err);
    return r < 0 ? r : pretokenizer_new(name.data, name.len, &t->pre, err);
}

int tokenizer_new(const struct gguf *g, struct tokenizer **ret, struct err *err)
{
    CLEANUP(tokenizer_freep) struct tokenizer *t = mem_calloc(1, sizeof(*t));
    int r;

    if (!t)
        return err_set(err, ERR_NO_MEMORY, "tokenizer");
    r = vocab_new(g, &t->vocab, err);
    if (r == 0)
        r = load_special(t, g, err);
    if (r == 0)
        r = load_pre(t, g, err);
    if (r < 0)
        return r;
    find_longest(t);
    *ret = TAKE_PTR(t);
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    pretokenizer_free(t->pre);
    token_trie_free(t->added);
    vocab_free(t->vocab);
    mem_free(t->bos_text);
    mem_free(t->eos_text);
    mem_free(t);
}

static int encode_words(struct encoding *e, const char *text, size_t len, struct err *err)
{
    CLEANUP(pretokenizer_cut_freep) struct pretokenizer_cut *cut = NULL;
    const char *word;
    size_t word_len;
    int r = pretokenizer_cut_new(e->t->pre, text, len, &cut, err);

    while (r == 0) {
        r = pretokenizer_cut_next(cut, &word, &word_len, err);
        if (r == 0)
            return 0;
        if (r > 0)
            r = bpe_encode(&e->bpe, word, word_len, e->out, err);
    }
    return r;
}

static int encode_marked(struct encoding *e, const char *text, size_t len, struct err *err)
{
    str_clear(&e->marked);
    if (e->t->add_space_prefix)
        str_adds(&e->marked, SPACE_MARK);
    for (size_t i = 0; i < len; i++) {
        const char *space = memchr(text + i, ' ', len - i);
        size_t n = space ? (size_t)(space - (text + i)) : len - i;

        str_add(&e->marked, text + i, n);
        if (space)
            str_adds(&e->marked, SPACE_MARK);
        i += n;
    }
    if (str_check(&e->marked, "text", err) < 0)
        return -ERR_NO_MEMORY;
    return bpe_encode(&e->bpe, e->marked.data, e->marked.len, e->out, err);
}

/* What lies between two added tokens. */
static int encode_stretch(struct encoding *e, size_t start, size_t end, struct err *err)
{
    if (start == end)
        return 0;
    if (e->t->pre)
        return encode_words(e, e->text + start, end - start, err);
    return encode_marked(e, e->text + start, end - start, err);
}

/* The longest added token that may stand at 'at': -1, or its id. */
static int32_t added_at(struct encoding *e, size_t at, size_t *ret_len)
{
    struct token_trie_walk walk = {0};
    int32_t best = -1;
    int32_t id;

    while (e->n_spans > 0 && e->spans->end <= at) {
        e->spans++;
        e->n_spans--;
    }
    while ((id = token_trie_next(e->t->added, &walk, e->text + at, e->len - at)) >= 0) {
        bool in_span = e->n_spans > 0 && e->spans->start <= at && at + walk.len <= e->spans->end;

        if (in_span || vocab_type(e->t->vocab, id) != VOCAB_CONTROL) {
            best = id;
            *ret_len = walk.len;
        }
    }
    return best;
}

static int encode_all(struct encoding *e, struct err *err)
{
    size_t start = 0;
    size_t token_len = 0;
    int r;

    for (size_t at = 0; at < e->len;) {
        int32_t id = added_at(e, at, &token_len);

        if (id < 0) {
            at++;
            continue;
        }
        r = encode_stretch(e, start, at, err);
        if (r == 0)
            r = token_list_add(e->out, id, err);
        if (r < 0)
            return r;
        at += token_len;
        start = at;
    }
    return encode_stretch(e, start, e->len, err);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     const struct text_span *spans, size_t n_spans, bool add_special,
                     struct token_list *out, struct err *err)
{
    struct encoding e = {
            .t = t,
            .text = text,
            .len = len,
            .spans = spans,
            .n_spans = n_spans,
            .bpe = {.vocab = t->vocab},
            .marked = STR_INIT(SIZE_MAX / 2),
            .out = out,
    };
    int r = 0;

    /* a token too many whatever the text is: not worth the seconds that a long one takes */
    if (len / t->longest > out->max)
        return err_set(err, ERR_INVALID, "text of %zu bytes has more than %zu tokens", len,
                       out->max);
    if (add_special && t->add_bos)
        r = token_list_add(out, t->bos, err);
    if (r == 0)
        r = encode_all(&e, err);
    if (r == 0 && add_special && t->add_eos)
        r = token_list_add(out, t->eos, err);
    bpe_release(&e.bpe);
    str_release(&e.marked);
    return r;
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return vocab_n(t->vocab);
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return vocab_type(t->vocab, id) == VOCAB_CONTROL;
}

bool tokenizer_adds_space_prefix(const struct tokenizer *t)
{
    return t->add_space_prefix;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    return vocab_bytes(t->vocab, id, ret_len);
}

const char *tokenizer_bos_text(const struct tokenizer *t)
{
    return t->bos_text;
}

const char *tokenizer_eos_text(const struct tokenizer *t)
{
    return t->eos_text;
}
