# SPDX-License-Identifier: Apache-2.0
"""Runs build/PRESET/.../text_tool (tests/runtime/text/text_tool.c) on batches of records."""

import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache" / "penstock"))
SMOLLM2 = CACHE / "models" / "smollm2-135m-instruct-q4_1.gguf"
GEMMA = CACHE / "models" / "gemma-3-270m-q4_k_m.gguf"
GEMMA_TOKENIZER = CACHE / "tokenizers" / "gemma3"


def binary():
    """PENSTOCK_BUILD names the build folder; without it the newest build of the tree is taken."""
    folders = [pathlib.Path(os.environ["PENSTOCK_BUILD"])] if "PENSTOCK_BUILD" in os.environ else (ROOT / "build").glob("*")
    found = [f / "tests/runtime/text/text_tool" for f in folders]
    found = sorted((f for f in found if f.exists()), key=lambda f: f.stat().st_mtime)
    assert found, "text_tool is not built"
    return str(found[-1])


def run(mode, *args, records):
    """The answers to records, both lists of bytes."""
    stdin = b"".join(struct.pack("<I", len(r)) + r for r in records)
    done = subprocess.run([binary(), mode, *map(str, args)], input=stdin, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    out, at, answers = done.stdout, 0, []
    while at < len(out):
        (size,) = struct.unpack_from("<I", out, at)
        answers.append(out[at + 4 : at + 4 + size])
        at += 4 + size
    assert len(answers) == len(records)
    return answers


def ids(answer):
    return list(struct.unpack(f"<{len(answer) // 4}i", answer))


def pack(token_ids):
    return struct.pack(f"<{len(token_ids)}i", *token_ids)
