# SPDX-License-Identifier: Apache-2.0
"""House rules that a program can check: see docs/architecture.md."""

import re
import shutil
import statistics
import subprocess

import pytest
from sources import ROOT, all_files, c_files, named, product_c_files, rel, strip_comments

FILE_LINES_MAX, FILE_MEDIAN_MAX = 800, 300
FUNCTION_LINES_MAX, FUNCTION_P90_MAX = 80, 50

BANNED = ["strcpy", "strcat", "sprintf", "vsprintf", "strtok", "atoi", "atol", "atof", "gets", "alloca",
          "localtime", "gmtime", "system", "popen", "mktemp", "rand", "srand"]
# the one file each that wraps them
ONLY_IN = {"malloc": "base/mem.c", "calloc": "base/mem.c", "realloc": "base/mem.c",
           "free": "base/mem.c", "strdup": "base/mem.c", "strndup": "base/mem.c",
           "strtol": "base/str.c", "strtoll": "base/str.c", "strtoul": "base/str.c",
           "strtoull": "base/str.c", "strtod": "base/str.c base/json.c"}


def functions(path):
    """(name, lines) of each function: a brace at column 0 opens, one closes."""
    lines = strip_comments(path.read_text()).split("\n")
    start = None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start is not None:
            head = " ".join(lines[max(0, start - 4):start])
            name = re.findall(r"(\w+)\(", head)
            yield (name[-1] if name else "?"), number - start - 1
            start = None


def goes_over(path):
    """A kernel or a table may be long, and says why."""
    return "size: why" in path.read_text()


def test_files_are_short():
    sizes = {rel(p): len(p.read_text().splitlines()) for p in product_c_files()}
    long = {name: n for name, n in sizes.items()
            if n > FILE_LINES_MAX and not goes_over(ROOT / name)}
    assert not long
    assert statistics.median(sizes.values()) < FILE_MEDIAN_MAX


def test_functions_are_short():
    lengths, long = [], {}
    for path in product_c_files():
        for name, n in functions(path):
            lengths.append(n)
            if n > FUNCTION_LINES_MAX and not goes_over(path):
                long[f"{rel(path)}:{name}"] = n
    assert not long
    assert len(lengths) > 500
    assert sorted(lengths)[len(lengths) * 9 // 10] < FUNCTION_P90_MAX


def test_no_banned_function_is_called():
    found = []
    for path in product_c_files():
        code = strip_comments(path.read_text())
        for name in BANNED:
            if re.search(rf"(?<![\w.>]){name}\s*\(", code):
                found.append(f"{rel(path)}: {name}()")
        for name, homes in ONLY_IN.items():
            if rel(path) not in homes.split() and re.search(rf"(?<![\w.>]){name}\s*\(", code):
                found.append(f"{rel(path)}: {name}(), use {homes.split()[0]}'s")
    assert not found


def test_every_file_names_its_licence():
    kinds = {".c", ".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake"}
    bare = [rel(p) for p in all_files()
            if p.stat().st_size and (p.suffix in kinds or p.name in ("CMakeLists.txt", "Makefile", "Dockerfile"))
            and "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:400]]
    assert not bare


def test_c_is_formatted():
    files = [str(p) for p in c_files()]
    done = subprocess.run(["clang-format-14", "--dry-run", "--Werror", *files], capture_output=True,
                          text=True, cwd=ROOT)
    bad = sorted(set(re.findall(r"^(\S+?):\d+", done.stderr, re.M)))
    assert done.returncode == 0, f"run clang-format-14 -i on {' '.join(bad)}"


def test_shell_is_clean():
    scripts = [str(p) for p in all_files()
               if p.suffix == ".sh" or p.read_bytes()[:20].startswith((b"#!/bin/sh", b"#!/usr/bin/env bash"))]
    assert scripts
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_headers_stand_alone():
    """Each header compiles by itself: it includes what it uses."""
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", "-I.", "-x", "c", "-"]
    headers = [p for p in named(".h") if not rel(p).startswith("tests/")
               and "#include K_LANES" not in p.read_text()]  # built once a variant
    text = {rel(p): f'#include "{rel(p)}"\n' for p in headers}
    broken = []
    for name, source in text.items():
        done = subprocess.run(["gcc", *flags], input=source, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            broken.append(f"{name}: {done.stderr.splitlines()[0]}")
    assert not broken


TRACES = [
    r"/work/", r"/root/", r"/home/\w", r"/var/tmp/(?!penstock)",                   # a build machine's paths
    r"pypi\.org", r"registry\.npmjs", r"proxy\.golang", r"deb\.debian",    # registries' hosts
]


@pytest.mark.parametrize("pattern", TRACES)
def test_no_trace_of_a_build_machine(pattern):
    hits = []
    for path in all_files():
        if rel(path) == "tests/lint/test_style.py" or path.suffix in (".bin", ".gz", ".xz", ".zst"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        hits += [f"{rel(path)}: {line.strip()[:100]}" for line in text.splitlines()
                 if re.search(pattern, line)]
    assert not hits


def test_tools_are_there():
    for tool in ("clang-format-14", "shellcheck", "gcc"):
        assert shutil.which(tool), f"{tool} is missing; run scripts/setup.sh test"
