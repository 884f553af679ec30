/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assertion.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "%s:%d: ASSERT(%s)\n", file, line, expr);
    abort();
}
