/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* JSON trees, over cJSON.  json_parse() first checks the text against RFC 8259 with our limits
 * (cJSON itself is lenient and recurses), then lets cJSON build the tree.  Refused: invalid
 * UTF-8, NUL (raw or as \u0000), lone surrogates, numbers that are not finite, a byte-order
 * mark, anything after the value.  Of duplicate keys the last stays in the tree.  Keys match by
 * exact case. */

struct json_limits {
    size_t bytes_max;
    unsigned depth_max;
    size_t values_max; /* values in all: bounds the tree's memory (about 80 bytes each) */
};

extern const struct json_limits JSON_LIMITS_DEFAULT; /* 8 MiB, depth 64, 1 M values */

/* Errors are ERR_INVALID "line 3 column 7: ..." or ERR_NO_MEMORY. */
int json_parse(const char *text, size_t len, const struct json_limits *limits, cJSON **ret,
               struct err *err) MUST_CHECK;
/* The check alone: no tree is built. */
int json_check(const char *text, size_t len, const struct json_limits *limits,
               struct err *err) MUST_CHECK;
static inline void json_freep(cJSON **p)
{
    cJSON_Delete(*p);
}

/* Look-ups that accept a NULL or non-object 'obj' and answer NULL / the default. */
const cJSON *json_get(const cJSON *obj, const char *key);
/* Steps through nested objects, "metadata.name"; keys with dots need json_get(). */
const cJSON *json_path(const cJSON *obj, const char *dotted);
const char *json_str(const cJSON *obj, const char *key, const char *fallback);
double json_num(const cJSON *obj, const char *key, double fallback);
int64_t json_int(const cJSON *obj, const char *key, int64_t fallback);
bool json_bool(const cJSON *obj, const char *key, bool fallback);
const char *json_path_str(const cJSON *obj, const char *dotted, const char *fallback);

/* Compact text of a tree; mem_free() it.  NULL: out of memory. */
char *json_print(const cJSON *v);
/* Same type and value; object keys in any order. */
bool json_equal(const cJSON *a, const cJSON *b);
