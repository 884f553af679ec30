# SPDX-License-Identifier: Apache-2.0
"""Reads the files that make_golden.py writes (its comment has the format)."""
import lzma
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILES = {"smollm2": "smollm2-135m-instruct-q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
UNIT = 1 / 2048
FAR = 65535


def raw(name):
    return lzma.decompress((HERE / f"{name}.golden.xz").read_bytes())


def read(name):
    """(top, prompts, text): prompts are (tokens, positions), a position (log_sum_exp, maximum,
    magnitude, ids, below), text (tokens, log_probabilities); numpy arrays."""
    import numpy

    data = raw(name)
    assert data[:4] == b"PGLD"
    version, _, top, count = struct.unpack_from("<IIII", data, 4)
    assert version == 1
    at = 20
    prompts = []
    kind = numpy.dtype(
        [("log_sum_exp", "<f4"), ("maximum", "<f4"), ("magnitude", "<f4"), ("ids", "<u4", top), ("below", "<u2", top)]
    )
    for _ in range(count):
        _, total = struct.unpack_from("<II", data, at)
        tokens = numpy.frombuffer(data, "<i4", total, at + 8)
        at += 8 + 4 * total
        prompts.append((tokens, numpy.frombuffer(data, kind, total, at)))
        at += kind.itemsize * total
    (n,) = struct.unpack_from("<I", data, at)
    text = numpy.frombuffer(data, "<i4", n, at + 4)
    return top, prompts, (text, numpy.frombuffer(data, "<f4", n - 1, at + 4 + 4 * n))
