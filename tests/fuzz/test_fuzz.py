# SPDX-License-Identifier: Apache-2.0
"""Runs every fuzz target for FUZZ_SECONDS (60) under the sanitizers, two at a time, and checks that
corpus and run together reach most lines of the parser."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz/tests/fuzz"
SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
LINES_MIN = 85.0

# target: the files whose lines it must reach
PARSERS = {
    "gguf": ["runtime/formats/gguf.c", "runtime/formats/gguf_meta.c", "runtime/formats/gguf_type.c"],
    "chat_template": ["runtime/text/jinja/*.c", "runtime/text/chat_template.c"],
    "tokenizer": ["runtime/text/bpe.c", "runtime/text/byte_level.c", "runtime/text/pretokenizer.c"],
    "json": ["base/json.c"],
    "yaml": ["base/yaml.c"],
    "url": ["base/url.c"],
    "http": ["base/http_guard.c"],
    "params": ["runtime/api/params.c"],
    "watch": ["operator/kube/watch.c"],
    "service": ["operator/api/inference_service.c"],
    "exposition": ["operator/scaling/exposition.c"],
    "selector": ["operator/scaling/selector.c"],
}
slots = threading.Semaphore(2)


def fuzz(name, folder):
    """Returns (exit status, output, executions)."""
    binary = BUILD / f"fuzz_{name}"
    new = folder / "new"
    new.mkdir()
    profile = folder / "profile"
    with slots:
        done = subprocess.run(
            [binary, f"-max_total_time={SECONDS}", "-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=20",
             f"-artifact_prefix={folder}/", new, ROOT / f"tests/fuzz/corpus/{name}"],
            capture_output=True, text=True, errors="replace", timeout=SECONDS + 300, cwd=folder,
            env={**os.environ, "LLVM_PROFILE_FILE": str(profile)})
    executed = re.search(r"number_of_executed_units:\s+(\d+)", done.stderr)
    return done.returncode, done.stderr[-6000:], int(executed[1]) if executed else 0


def covered(name, folder):
    """Percent of lines reached of the target's parser."""
    merged = folder / "merged"
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, folder / "profile"], check=True)
    report = subprocess.run(["llvm-cov-14", "export", "-summary-only", BUILD / f"fuzz_{name}",
                             f"-instr-profile={merged}"], check=True, capture_output=True, text=True).stdout
    lines = [f["summary"]["lines"] for f in json.loads(report)["data"][0]["files"]
             if any(fnmatch.fnmatch(f["filename"].removeprefix("./"), "*" + pattern) for pattern in PARSERS[name])]
    assert lines
    return 100 * sum(n["covered"] for n in lines) / sum(n["count"] for n in lines)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All targets at once, as many at a time as the slots allow."""
    results, threads = {}, []
    for name in PARSERS:
        folder = tmp_path_factory.mktemp(name)
        thread = threading.Thread(target=lambda n=name, f=folder: results.update({n: (*fuzz(n, f), f)}))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return results


def test_every_target_is_listed():
    there = {p.name.removeprefix("fuzz_") for p in BUILD.glob("fuzz_*") if os.access(p, os.X_OK)}
    assert there == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_no_crash(runs, name):
    status, output, executed, _ = runs[name]
    assert status == 0, output
    assert executed > 1000, output


@pytest.mark.parametrize("name", PARSERS)
def test_most_lines_are_reached(runs, name):
    percent = covered(name, runs[name][3])
    assert percent >= LINES_MIN, f"{percent:.1f} %"
