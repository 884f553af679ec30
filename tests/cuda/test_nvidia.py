# SPDX-License-Identifier: Apache-2.0
"""What is ready for the day a GPU is there, make check-nvidia and bench-nvidia, on the virtual one: the
folder that is carried to it works by itself, away from the tree and without a compiler's PATH."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = os.environ.get("PENSTOCK_BUILD", str(ROOT / "build/vgpu"))
TESTS = len(list((ROOT / "tests/kernels/cuda").glob("test_cuda_*.c"))) + 1  # of kernels, and the models'
BARE = {"PATH": "/usr/bin:/bin", "VGPU_DEVICES": "3", "VGPU_MEMORY": "512M"}


def run(program, *args, env, timeout=1800):
    return subprocess.run([program, *args], env=env, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("nvidia") / "made"
    done = run(ROOT / "scripts/nvidia.sh", "prepare",
               env={**os.environ, "PENSTOCK_BUILD": BUILD, "NVIDIA_FOLDER": str(made)})
    assert done.returncode == 0, done.stderr
    carried = made.with_name("carried")
    shutil.move(made, carried)
    return carried


def test_check_passes_and_prints_the_bandwidth(folder):
    done = run(folder / "nvidia.sh", "check", "--small", env=BARE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{TESTS + 1} passed, 0 failed in \d+ s$", done.stdout, re.MULTILINE)
    rates = re.findall(r"^(.*?) {2,}.* GB/s +([\d.]+) % of copy", done.stdout, re.MULTILINE)
    assert len(rates) >= 15 and rates[0] == ("copy on the device", "100.0")
    assert {f"product {t}, {n} rows" for t in ("bf16", "q8_0", "q4_k") for n in (1, 8, 32, 256)} <= dict(rates).keys()


def test_bench_prints_a_table(folder):
    done = run(folder / "nvidia.sh", "bench", "--small", env=BARE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"device":"cuda' in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d+ ", line)]
    assert [row[0] for row in rows] == ["1", "4"]
    for row in rows:
        first_p50, first_p99, next_p50, next_p99, rate = map(float, row[1:])
        assert 0 < first_p50 <= first_p99 and 0 < next_p50 <= next_p99 and rate > 0


def test_a_machine_without_a_gpu_fails_and_says_so(folder):
    done = run(folder / "nvidia.sh", "check", env={**BARE, "VGPU_DRIVER": "0"})
    assert done.returncode == 1 and done.stdout.count("no GPU that can be used") == TESTS
    assert re.search(rf"^0 passed, {TESTS + 1} failed", done.stdout, re.MULTILINE)
    done = run(folder / "nvidia.sh", "bench", env={**BARE, "VGPU_DRIVER": "0"})
    assert done.returncode == 1 and "no NVIDIA driver" in done.stderr


def test_a_gpu_that_breaks_is_a_failure(folder):
    done = run(folder / "nvidia.sh", "bench", "--small", env={**BARE, "VGPU_FAULT_LAUNCH": "1200"})
    assert done.returncode == 1 and "nvidia.sh: " in done.stderr


def test_without_the_folder_it_says_how_to_make_it(tmp_path):
    done = run(ROOT / "scripts/nvidia.sh", "check", env={**BARE, "NVIDIA_FOLDER": str(tmp_path / "none")})
    assert done.returncode == 1 and "prepare" in done.stderr
