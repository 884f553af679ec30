/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/json.h"

/* One YAML document as a JSON tree, by libyaml: mappings, sequences, scalars by YAML 1.2's core
 * schema (plain null/true/false/numbers typed, quoted scalars are strings).  Refused: anchors and
 * aliases (no billion laughs), tags, duplicate keys, keys that are not scalars, a second document,
 * over the limits. */
int yaml_parse(const char *text, size_t len, const struct json_limits *limits, cJSON **ret,
               struct err *err) MUST_CHECK;
