/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Figures out of a Prometheus text exposition.  A value that is no finite number >= 0 counts as
 * unreadable, and so do all figures made of it. */

struct exposition_series {
    double value;
    const char *labels; /* from '{' to '}' as they stand in the text; length 0: none */
    size_t labels_len;
};

/* The next series of 'name' from *text on, which moves behind it.  1: *ret is it; 0: there is none
 * any more; -1: it is unreadable. */
int exposition_next(const char **text, const char *end, const char *name,
                    struct exposition_series *ret);
/* The value of a label; false: it is not there, does not fit, or holds a backslash (ours do not).
 */
bool exposition_label(const struct exposition_series *s, const char *name, char *out, size_t size);

/* Over all series of 'name', whatever their labels.  false: there is none, or one is unreadable. */
bool exposition_sum(const char *text, size_t len, const char *name, double *ret);
bool exposition_mean(const char *text, size_t len, const char *name, double *ret);
