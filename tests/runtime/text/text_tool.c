/* SPDX-License-Identifier: Apache-2.0
 *
 * text_tool.c - the folder runtime/text on a command line, for tests/integration/runtime.
 *
 *   text_tool encode MODEL     each record a text;   answers its ids (special tokens recognised
 * nowhere) text_tool special MODEL    each record a text;   answers its ids (recognised everywhere,
 * BOS/EOS added) text_tool decode MODEL     each record int32 ids; answers the bytes of the tokens,
 * put together text_tool detokenize MODEL each record int32 ids; answers the detokenizer's text,
 * special tokens left out
 *
 * A record is a length (32 bits, little-endian, in bytes) and so many bytes; answers likewise, in
 * order.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/tokenizer.h"

enum { RECORD_MAX = 64 << 20, IDS_MAX = 64 << 20 };

/* 1: a record, 0: the end, -1: broken input */
static int read_record(struct str *record)
{
    uint8_t head[4];
    CLEANUP(mem_freep) char *data = NULL;
    size_t len;

    if (fread(head, 1, 4, stdin) != 4)
        return feof(stdin) ? 0 : -1;
    len = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (len > RECORD_MAX)
        return -1;
    data = mem_calloc(len + 1, 1);
    if (!data || fread(data, 1, len, stdin) != len)
        return -1;
    str_clear(record);
    str_add(record, data, len);
    return 1;
}

static void write_record(const void *data, size_t len)
{
    uint8_t head[4] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                       (uint8_t)(len >> 24)};

    fwrite(head, 1, 4, stdout);
    fwrite(data, 1, len, stdout);
}

static int answer_encode(const struct tokenizer *t, const struct str *in, bool special,
                         struct err *err)
{
    struct token_list ids = {.max = IDS_MAX};
    struct text_span all = {0, in->len};
    int r = tokenizer_encode(t, str_text(in), in->len, &all, special ? 1 : 0, special, &ids, err);

    if (r == 0)
        write_record(ids.n > 0 ? (const void *)ids.ids : "", ids.n * sizeof(*ids.ids));
    token_list_release(&ids);
    return r;
}

static int answer_decode(const struct tokenizer *t, const struct str *in, bool whole,
                         struct err *err)
{
    CLEANUP(str_release) struct str out = STR_INIT(RECORD_MAX);
    struct detokenizer d;
    int r;

    detokenizer_init(&d, t, true);
    for (size_t i = 0; i + 4 <= in->len; i += 4) {
        int32_t id;
        size_t len;
        const char *bytes;

        memcpy(&id, in->data + i, 4);
        bytes = tokenizer_bytes(t, id, &len);
        if (whole)
            str_add(&out, bytes, len);
        else
            detokenizer_add(&d, id, &out);
    }
    if (!whole)
        detokenizer_finish(&d, &out);
    r = str_check(&out, "text", err);
    if (r == 0)
        write_record(str_text(&out), out.len);
    return r;
}

static int answer(const char *mode, const struct tokenizer *t, const struct str *in,
                  struct err *err)
{
    if (strcmp(mode, "encode") == 0 || strcmp(mode, "special") == 0)
        return answer_encode(t, in, mode[0] == 's', err);
    if (strcmp(mode, "decode") == 0 || strcmp(mode, "detokenize") == 0)
        return answer_decode(t, in, strcmp(mode, "decode") == 0, err);
    return err_set(err, ERR_INVALID, "unknown mode '%s'", mode);
}

static int run(const char *mode, const char *model, struct err *err)
{
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    CLEANUP(str_release) struct str record = STR_INIT(RECORD_MAX);
    int r = gguf_open(model, &g, err);
    int more = 1;

    if (r == 0)
        r = tokenizer_new(g, &t, err);
    while (r == 0 && (more = read_record(&record)) > 0)
        r = answer(mode, t, &record, err);
    if (r == 0 && more < 0)
        r = err_set(err, ERR_INVALID, "broken record");
    return r;
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc != 3) {
        fprintf(stderr, "usage: text_tool encode|special|decode|detokenize MODEL < records\n");
        return 2;
    }
    if (run(argv[1], argv[2], &err) < 0) {
        fprintf(stderr, "text_tool: %s\n", err.msg);
        return 1;
    }
    return 0;
}
