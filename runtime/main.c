/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/http_client.h"
#include "runtime/commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
        {"serve", command_serve, "serve a model over the OpenAI API"},
        {"bench", command_bench, "measure a server: bench serve --url http://127.0.0.1:8000"},
        {"reference", command_reference, "print the reference of options or metrics"},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_usage(FILE *to)
{
    (void)fprintf(to,
                  "penstock-runtime %s: serves language models\n\n"
                  "usage: penstock-runtime COMMAND [options]\n\n",
                  PENSTOCK_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    (void)fprintf(to, "\nA first try:\n"
                      "  penstock-runtime serve --model ./model.gguf\n"
                      "  curl localhost:8000/v1/chat/completions -H 'Content-Type: "
                      "application/json' \\\n"
                      "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n\n"
                      "penstock-runtime COMMAND --help tells about its options.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("penstock-runtime %s\n", PENSTOCK_VERSION);
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            http_client_global_init();
            return commands[i].run(argc - 2, argv + 2);
        }
    }
    (void)fprintf(stderr, "penstock-runtime: unknown command '%s'; see --help\n", name);
    return 2;
}
