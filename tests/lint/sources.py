# SPDX-License-Identifier: Apache-2.0
"""The files of the project, as git knows them (also those not yet added)."""

import functools
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CODE_FOLDERS = ("base", "kernels", "runtime", "operator", "bench", "tests")


@functools.cache
def all_files():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]


def named(*suffixes):
    return [p for p in all_files() if p.suffix in suffixes]


def c_files():
    return named(".c", ".h", ".cc", ".cu", ".cuh")


def product_c_files():
    return [p for p in c_files() if p.relative_to(ROOT).parts[0] not in ("tests",)]


def rel(path):
    return str(path.relative_to(ROOT))


def strip_comments(text):
    """The code alone: comments and string contents blanked, line structure kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
