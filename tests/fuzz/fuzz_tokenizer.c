/* SPDX-License-Identifier: Apache-2.0 */

/* The first byte chooses: a vocabulary to encode the rest with, or the rest as a GGUF file with a
 * vocabulary.  With a vocabulary that has all bytes, tokens put together are the text again, and
 * the detokenizer's text is UTF-8. */
#include <stdint.h>
#include <string.h>

#include "base/assertion.h"
#include "base/str.h"
#include "base/utf8.h"
#include "runtime/text/detokenizer.h"
#include "tests/runtime/text/tiny_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { IDS_MAX = 1 << 20 };

static const char MARK[] = "\xE2\x96\x81"; /* U+2581, which SentencePiece shows as a space */

static void add_shown(struct str *out, const char *text, size_t len, bool sentencepiece)
{
    for (size_t i = 0; i < len; i++) {
        if (sentencepiece && len - i >= 3 && memcmp(text + i, MARK, 3) == 0) {
            str_addc(out, ' ');
            i += 2;
        } else {
            str_addc(out, text[i]);
        }
    }
}

static void round_trip(const struct tokenizer *t, const char *text, size_t len, bool sentencepiece)
{
    CLEANUP(str_release) struct str bytes = STR_INIT(1 << 22);
    CLEANUP(str_release) struct str shown = STR_INIT(1 << 22);
    CLEANUP(str_release) struct str want = STR_INIT(1 << 22);
    struct token_list ids = {.max = IDS_MAX};
    struct text_span spans[2] = {{len / 8, len / 3}, {len / 2, len}};
    struct detokenizer d;
    struct err err;

    detokenizer_init(&d, t, false);
    if (tokenizer_encode(t, text, len, spans, 2, false, &ids, &err) == 0) {
        for (size_t i = 0; i < ids.n; i++) {
            size_t n, before = shown.len;
            const char *b = tokenizer_bytes(t, ids.ids[i], &n);

            str_add(&bytes, b, n);
            detokenizer_add(&d, ids.ids[i], &shown);
            ASSERT(utf8_valid(str_text(&shown) + before, shown.len - before));
        }
        detokenizer_finish(&d, &shown);
        add_shown(&want, text, len, sentencepiece);
        ASSERT(bytes.len == want.len);
        ASSERT(memcmp(str_text(&bytes), str_text(&want), want.len) == 0);
    }
    token_list_release(&ids);
}

/* Made once: most of a run would be spent on it. */
static const struct tokenizer *tiny(int kind)
{
    static struct tokenizer *made[3];
    struct gguf_builder file;
    struct gguf *g = NULL;
    struct err err;

    if (made[kind])
        return made[kind];
    if (kind == 0)
        tiny_vocab_byte_level(&file, "gpt-2");
    else if (kind == 1)
        tiny_vocab_byte_level(&file, "smollm");
    else
        tiny_vocab_sentencepiece(&file, false);
    ASSERT(gguf_parse(file.file.data, file.file.len, &g, &err) == 0);
    ASSERT(tokenizer_new(g, &made[kind], &err) == 0);
    gguf_free(g);
    gguf_builder_release(&file);
    return made[kind];
}

static void load(const char *data, size_t len)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    struct token_list ids = {.max = IDS_MAX};
    struct err err;

    if (gguf_parse(data, len, &g, &err) < 0 || tokenizer_new(g, &t, &err) < 0)
        return;
    (void)!tokenizer_encode(t, data, len, NULL, 0, true, &ids, &err);
    token_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    int kind = len > 0 ? data[0] % 4 : 3;

    if (len == 0)
        return 0;
    if (kind == 3)
        load((const char *)data + 1, len - 1);
    else
        round_trip(tiny(kind), (const char *)data + 1, len - 1, kind == 2);
    return 0;
}
