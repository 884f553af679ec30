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

#include "base/json.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/chat_template.h"
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

static int encode_rendered(const struct tokenizer *t, const struct chat_rendered *r,
                           struct json_writer *w, struct err *err)
{
    struct token_list ids = {.max = IDS_MAX};
    int ret = tokenizer_encode(t, str_text(r->text), r->text->len, r->spans, r->n_spans, false,
                               &ids, err);

    json_kv_text(w, "text", str_text(r->text));
    json_key(w, "spans");
    json_arr(w);
    for (size_t i = 0; i < r->n_spans; i++) {
        json_arr(w);
        json_u64(w, r->spans[i].start);
        json_u64(w, r->spans[i].end);
        json_end(w);
    }
    json_end(w);
    json_key(w, "ids");
    json_arr(w);
    for (size_t i = 0; i < ids.n; i++)
        json_i64(w, ids.ids[i]);
    json_end(w);
    token_list_release(&ids);
    return ret;
}

static int render(const struct gguf *g, const struct tokenizer *t, const cJSON *record,
                  struct json_writer *w, struct err *err)
{
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    CLEANUP(str_release) struct str text = STR_INIT(RECORD_MAX);
    CLEANUP(chat_rendered_release) struct chat_rendered out = {.text = &text};
    const char *own = json_str(record, "template", NULL);
    struct gguf_str source = {.data = own, .len = own ? strlen(own) : 0};
    int r = own ? 0 : gguf_string(g, "tokenizer.chat_template", &source, err);

    if (r == 0)
        r = chat_template_new(source.data, source.len,
                              json_str(record, "bos", tokenizer_bos_text(t)),
                              json_str(record, "eos", tokenizer_eos_text(t)), &template, err);
    if (r == 0)
        r = chat_template_render(template, json_get(record, "messages"),
                                 json_bool(record, "add_generation_prompt", false), &out, err);
    return r < 0 ? r : encode_rendered(t, &out, w, err);
}

static int answer_render(const struct gguf *g, const struct tokenizer *t, const struct str *in,
                         struct err *err)
{
    CLEANUP(json_freep) cJSON *record = NULL;
    CLEANUP(str_release) struct str out = STR_INIT(RECORD_MAX);
    struct json_writer w = json_writer_start(&out);
    struct err refused;
    int r = json_parse(str_text(in), in->len, &JSON_LIMITS_DEFAULT, &record, err);

    if (r < 0)
        return r;
    json_obj(&w);
    if (render(g, t, record, &w, &refused) < 0)
        json_kv_text(&w, "error", refused.msg);
    json_end(&w);
    r = str_check(&out, "answer", err);
    if (r == 0)
        write_record(out.data, out.len);
    return r;
}

static int answer(const char *mode, const struct gguf *g, const struct tokenizer *t,
                  const struct str *in, struct err *err)
{
    if (strcmp(mode, "render") == 0)
        return answer_render(g, t, in, err);
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
        r = answer(mode, g, t, &record, err);
    if (r == 0 && more < 0)
        r = err_set(err, ERR_INVALID, "broken record");
    return r;
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc != 3) {
        fprintf(stderr,
                "usage: text_tool encode|special|decode|detokenize|render MODEL < records\n");
        return 2;
    }
    if (run(argv[1], argv[2], &err) < 0) {
        fprintf(stderr, "text_tool: %s\n", err.msg);
        return 1;
    }
    return 0;
}
