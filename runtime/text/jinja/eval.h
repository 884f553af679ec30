/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "runtime/text/chat_template.h"
#include "runtime/text/jinja/ast.h"

/* Runs a parsed template.  Private to runtime/text. */

/* globals: what the template finds by name.  Appends to out. */
int jinja_render(struct jinja_run *run, const struct jinja_node *body,
                 const struct jinja_dict *globals, struct chat_rendered *out) MUST_CHECK;

/* a op b, for JINJA_OP_ADD .. JINJA_OP_MOD. */
int jinja_arithmetic(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                     struct jinja_value b, struct jinja_value *ret) MUST_CHECK;
int jinja_negate(struct jinja_run *run, struct jinja_value v, struct jinja_value *ret) MUST_CHECK;
