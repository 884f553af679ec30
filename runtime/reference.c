/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "runtime/commands.h"
#include "runtime/options.h"
#include "runtime/telemetry/runtime_metrics.h"

static void write_metrics(struct str *out)
{
    size_t n;
    const struct metric_desc *table = runtime_metrics_table(&n);

    metrics_markdown(table, n, out);
}

int command_reference(int argc, char **argv)
{
    CLEANUP(str_release) struct str out = STR_INIT(1u << 20);

    if (argc == 1 && strcmp(argv[0], "options") == 0) {
        config_markdown(SERVE_OPTIONS, SERVE_OPTIONS_COUNT, &out);
    } else if (argc == 1 && strcmp(argv[0], "metrics") == 0) {
        write_metrics(&out);
    } else {
        (void)fprintf(stderr, "usage: penstock-runtime reference options|metrics\n");
        return 2;
    }
    (void)fputs(str_text(&out), stdout);
    return out.failed ? 1 : 0;
}
