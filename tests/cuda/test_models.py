# SPDX-License-Identifier: Apache-2.0
"""Real models on a GPU, here the virtual one: the four shortest prompts with 8 tokens of their
answers, teacher-forced, beside the reference answers of tests/golden.

A GPU rounds queries, keys and products of many rows (kernels/cuda/cuda_ops.h), so the bounds are those
of distributions: the mean KL at most that of llama.cpp's integer products, and the reference's best
token wherever its two best are further apart than twice 1e-2 of the largest logit.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
import golden  # noqa: E402

CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache/penstock"))
PROGRAM = ROOT / os.environ.get("PENSTOCK_BUILD", "build/vgpu") / "tests/runtime/reference/reference"


@pytest.mark.parametrize("name", golden.FILES)
def test_a_model_is_the_reference(name, tmp_path):
    answers = tmp_path / f"{name}.golden"
    answers.write_bytes(golden.raw(name))
    done = subprocess.run([PROGRAM, CACHE / "models" / golden.FILES[name], answers, "cuda", "1", "8"],
                          check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "VGPU_MEMORY": "2G"})
    figures = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    print(name, figures)
    assert figures["device"].startswith("cuda")
    assert int(figures["positions"]) > 40
    peer = json.loads((golden.HERE / "peer.json").read_text())[name]
    assert float(figures["mean_kl"]) <= peer["mean_kl"]
    assert float(figures["max_relative"]) <= 1e-2
