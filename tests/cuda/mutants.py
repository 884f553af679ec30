#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts mistakes into the CUDA sources, one at a time, and sees that the tests find them.

    mutants.py                 all of them (mutation.py says what there is)
    mutants.py --every 12      each twelfth: what CI does
    mutants.py --kind swap --file kernels/cuda/gemm.cu
    mutants.py --list

Each mutant is built as the preset vgpu builds it (PENSTOCK_BUILD, build/vgpu by default, whose tests
must be built), linked with the tests of its kernel and run, until one fails, crashes, reports
something or does not end. Index bounds of arrays are checked as in the preset vgpu-asan, since what passes
the end of an array of registers is no error of the virtual GPU's. What does not compile is not counted.

Mutants that the tests do not find are in survivors.json, each with the reason. The exit status is 1 when another
one survives, when one of the list does not, or when fewer than 95 % are found.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

import mutation
from mutation import ROOT

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/vgpu")).resolve()
SURVIVORS = pathlib.Path(__file__).with_name("survivors.json")
SHARE_MIN = 0.95
TIMEOUT = 60  # seconds; a test takes a tenth of that,
SLOWER = 10   # or of what it took without a mutant, if the machine is busy
usual = {}    # seconds of each test as check_unmutated() found them

# Which tests run which sources, the cheapest first.
KERNEL_TESTS = {
    "test_cuda_rows": ("rows", "kv_copy", "weights"),
    "test_cuda_blas": ("round",),
    "test_cuda_adjust": ("adjust",),
    "test_cuda_sample": ("sample",),
    "test_cuda_attention": ("store", "attention_decode", "attention_prefill", "cuda_ops"),
    "test_cuda_matmul": ("gemv", "gemm", "cuda_ops", "weights"),
}
EVERYWHERE = f"{mutation.KERNELS}/launch.cuh"  # included by every kernel
# Orders and delays are those of this seed.
ENVIRONMENT = {"VGPU_SEED": "1"}
MODEL_ENVIRONMENT = {"VGPU_SEED": "1", "VGPU_DEVICES": "3", "VGPU_MEMORY": "64M"}
# The optimiser as the preset has it; no debug information, which takes a third of the time.
FLAGS = ["-g0", "-w", "-fsanitize=bounds-strict,object-size", "-fsanitize-undefined-trap-on-error"]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@functools.cache
def compile_commands():
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {os.path.relpath(e["file"], ROOT): e for e in entries}


@functools.cache
def link_command(test):
    """(the words before and after -o OUTPUT) of the program's link."""
    last = output_of("ninja", "-C", str(BUILD), "-t", "commands", test).rstrip().split("\n")[-1]
    words = shlex.split(last.removeprefix(": && ").removesuffix(" && :"))
    at = words.index("-o")
    return words[:at], words[at + 2:]


@functools.cache
def included(file):
    """The sources among ours that a file includes, directly or not."""
    found = set()
    for name in re.findall(r'#include "([^"]+)"', (ROOT / file).read_text()):
        if (ROOT / name).exists() and name.startswith(mutation.KERNELS):
            found |= {name} | included(name)
    return found


def plan(file):
    """(test program, environment, units to build anew) of a mutated file, in the order to try."""
    if file == mutation.DEVICE:
        return [("test_model_cuda", MODEL_ENVIRONMENT, [file])]
    steps = []
    for test, names in KERNEL_TESTS.items():
        units = [f"{mutation.KERNELS}/{name}.cu" for name in names]
        units = [u for u in units if u == file or file in included(u)]
        if units:
            steps.append((test, ENVIRONMENT, units))
    assert steps, f"add {file} to KERNEL_TESTS"
    return steps


def compile_unit(mutant, unit, folder):
    """The object of a unit whose sources are in folder as far as they are mutated; None: an error."""
    entry = compile_commands()[unit]
    words = shlex.split(entry["command"])
    output = folder / (pathlib.Path(unit).name + ".o")
    source = folder / unit if unit == mutant.file else ROOT / unit
    words[words.index("-o") + 1] = str(output)
    words[words.index("-c") + 1] = str(source)
    words.remove("-Werror")
    words.insert(words.index(f"-I{ROOT}"), f"-I{folder}")
    done = subprocess.run([*words, *FLAGS], cwd=entry["directory"], capture_output=True, text=True)
    return output if done.returncode == 0 else None


def run_test(program, environment):
    """What was wrong, or None; ended at the first thing that is."""
    name = pathlib.Path(program).name
    limit = max(TIMEOUT, SLOWER * usual.get(name, 0))
    process = subprocess.Popen([program], cwd=ROOT, env={**os.environ, **environment}, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               start_new_session=True)
    late = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
    late.start()
    start = time.monotonic()
    what = next((line.strip() for line in process.stderr if re.search(r"ERROR|FAILED|^vgpu:", line)), None)
    if what:
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    late.cancel()
    process.stderr.close()
    took = time.monotonic() - start
    usual.setdefault(name, took)
    if what is None and took >= limit:
        return f"does not end in {limit:.0f} s"
    return what or (f"exit status {code}" if code else None)


def try_mutant(mutant, folder):
    """('killed' | 'survived' | 'not compiled', what the test said)."""
    copy = folder / mutant.file
    copy.parent.mkdir(parents=True)
    copy.write_text(mutant.apply())
    objects = {}
    for test, environment, units in plan(mutant.file):
        for unit in units:
            if unit not in objects:
                objects[unit] = compile_unit(mutant, unit, folder)
            if objects[unit] is None:
                return "not compiled", ""
        before, after = link_command(test)
        program = folder / test
        subprocess.run([*before, *(str(objects[u]) for u in units), "-o", str(program), *after], cwd=BUILD, check=True)
        what = run_test(program, environment)
        if what:
            return "killed", what
    return "survived", ""


def timed(mutant):
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        result, what = try_mutant(mutant, pathlib.Path(folder))
    print(f"{time.monotonic() - start:5.1f} s {result:12} {mutant}" + (f"\n        {what[:150]}" if what else ""),
          flush=True)
    return mutant, result


def check_unmutated(files):
    """The tests pass as built here, or every mutant would be 'found'."""
    for file in files:
        nothing = mutation.Mutant(file, 0, 0, "", "none", 1, "", "")
        assert timed(nothing)[1] == "survived", "the tests fail without a mutant"


def table(results):
    """Counts a kind, as docs/testing.md has them."""
    rows = ["| kind | mutants | found | share |", "| --- | ---: | ---: | ---: |"]
    for kind in (*mutation.KINDS, "all"):
        chosen = [r for m, r in results if kind in (m.kind, "all") and r != "not compiled"]
        if chosen:
            found = chosen.count("killed")
            rows.append(f"| {kind} | {len(chosen)} | {found} | {100 * found / len(chosen):.1f} % |")
    return "\n".join(rows)


def complaints(results, everything):
    """What differs from survivors.json, as far as these results tell."""
    listed = {(s["file"], s["kind"], s["source"], s["mutated"]) for s in json.loads(SURVIVORS.read_text())}
    survived = {m.key() for m, r in results if r == "survived"}
    open_yet = {m.key() for m in set(everything) - {m for m, _ in results}}
    counted = [r for _, r in results if r != "not compiled"]
    found = [f"survives, and is not in {SURVIVORS.name}: {key}" for key in sorted(survived - listed)]
    found += [f"does not survive, take it out of {SURVIVORS.name}: {key}"
              for key in sorted(listed - survived - open_yet)]
    if not open_yet and counted.count("killed") < SHARE_MIN * len(counted):
        found.append(f"fewer than {100 * SHARE_MIN:.0f} % are found")
    return found


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=int, default=1, metavar="N")
    options.add_argument("--kind", choices=mutation.KINDS)
    options.add_argument("--file")
    options.add_argument("--line", type=int)
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--list", action="store_true")
    a = options.parse_args()
    everything = mutation.all_mutants()
    chosen = [m for m in everything if a.kind in (None, m.kind) and a.file in (None, m.file)
              and a.line in (None, m.line)][a.every // 2::a.every]
    if a.list:
        print("\n".join(map(str, chosen)))
        return 0
    start = time.monotonic()
    if len(chosen) == len(everything):
        check_unmutated([EVERYWHERE, mutation.DEVICE])
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        results = list(pool.map(timed, chosen))
    print(f"\n{table(results)}\n\n{collections.Counter(r for _, r in results)['not compiled']} do not compile; "
          f"{(time.monotonic() - start) / 60:.1f} min")
    wrong = complaints(results, everything)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
