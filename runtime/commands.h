/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sub-commands of penstock-runtime.  argv[0] is the first argument after the command's name.
 * Each returns the process's exit code: 0 done, 1 failed, 2 wrong usage. */
int command_serve(int argc, char **argv);
int command_bench(int argc, char **argv);
/* Writes docs/reference pages: "options" or "metrics". */
int command_reference(int argc, char **argv);
