/* SPDX-License-Identifier: Apache-2.0 */

/* Runs every file of a folder through a fuzz target once, for builds without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    unsigned n = 0;

    if (!dir) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        CLEANUP(str_release) struct str path = STR_INIT(4096);
        CLEANUP(str_release) struct str bytes = STR_INIT(1 << 20);
        struct err err;

        if (d->d_name[0] == '.')
            continue;
        str_addf(&path, "%s/%s", argv[1], d->d_name);
        if (file_read(str_text(&path), &bytes, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        (void)LLVMFuzzerTestOneInput((const uint8_t *)str_text(&bytes), bytes.len);
        n++;
    }
    closedir(dir);
    printf("%u inputs\n", n);
    return n == 0;
}
