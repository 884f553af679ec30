/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.c - content to a short name.
 *
 * The API server and clients order keys as they like, so a digest of the text would change with
 * the weather and roll pods.  Keys are sorted; numbers are printed the one way json_writer prints
 * them.
 */
#include "operator/api/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_writer.h"
#include "base/mem.h"

enum { CANONICAL_MAX = 4 << 20 };

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static void add_object(const cJSON *v, struct str *out)
{
    size_t n = (size_t)cJSON_GetArraySize(v), i = 0;
    CLEANUP(mem_freep) const cJSON **members = mem_calloc(n ? n : 1, sizeof(*members));
    const cJSON *child;

    if (!members) {
        out->failed = true;
        return;
    }
    cJSON_ArrayForEach(child, v) members[i++] = child;
    qsort(members, n, sizeof(*members), by_key);
    str_addc(out, '{');
    for (i = 0; i < n; i++) {
        if (i)
            str_addc(out, ',');
        json_escape(out, members[i]->string, strlen(members[i]->string));
        str_addc(out, ':');
        json_canonical(members[i], out);
    }
    str_addc(out, '}');
}

/* Recursion is bounded by the parser's depth limit. */
void json_canonical(const cJSON *v, struct str *out)
{
    struct json_writer w = json_writer_start(out);
    const cJSON *child;

    if (cJSON_IsObject(v)) {
        add_object(v, out);
    } else if (cJSON_IsArray(v)) {
        str_addc(out, '[');
        cJSON_ArrayForEach(child, v)
        {
            if (child != v->child)
                str_addc(out, ',');
            json_canonical(child, out);
        }
        str_addc(out, ']');
    } else if (cJSON_IsString(v)) {
        json_text(&w, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        json_f64(&w, v->valuedouble);
    } else if (cJSON_IsBool(v)) {
        json_boolean(&w, cJSON_IsTrue(v) != 0);
    } else {
        json_null(&w);
    }
}

int digest_bytes(const void *data, size_t len, char ret[DIGEST_BYTES], struct err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (EVP_Digest(data, len, sum, &n, EVP_sha256(), NULL) != 1 || n < 8)
        return err_set(err, ERR_NO_MEMORY, "SHA-256");
    for (unsigned i = 0; i < 8; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", sum[i]);
    return 0;
}

int digest_json(const cJSON *v, char ret[DIGEST_BYTES], struct err *err)
{
    CLEANUP(str_release) struct str text = STR_INIT(CANONICAL_MAX);
    int r;

    json_canonical(v, &text);
    r = str_check(&text, "canonical JSON", err);
    return r ? r : digest_bytes(str_text(&text), text.len, ret, err);
}
