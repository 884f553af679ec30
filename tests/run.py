#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites and counts them: 'make test' is this without arguments.

    run.py                  all suites of the CI tier
    run.py NAME ...         only these
    run.py --list           what there is

Each suite is a list of steps; a step is a command whose result counts as one test, or a ctest or
pytest run whose tests are counted one by one. The last line is "N passed, N failed"; any failure
makes the exit status 1. Output of a step is shown when it fails.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOBS = str(os.cpu_count() or 2)


class Step:
    """A command; passes by its exit status."""

    def __init__(self, name, command, env=None, timeout=1800):
        self.name, self.command, self.timeout = name, command, timeout
        self.env = env or {}

    def run(self):
        """Returns (passed, failed, output)."""
        code, output = self.execute(self.command)
        return (1, 0, output) if code == 0 else (0, 1, output)

    def execute(self, command):
        env = {**os.environ, **self.env}
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True,
                                  errors="replace", stderr=subprocess.STDOUT, timeout=self.timeout,
                                  stdin=subprocess.DEVNULL)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            return 124, f"{late.stdout or ''}\nstill running after {self.timeout} s"


class JUnit(Step):
    """A runner that writes a JUnit file; every test in it counts."""

    def __init__(self, name, command, flag, **kwargs):
        super().__init__(name, command, **kwargs)
        self.flag = flag

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.xml"
            code, output = self.execute([*self.command, self.flag, str(report)])
            passed, failed = count(report)
        if code != 0 and failed == 0:
            failed = 1  # it broke before or after its tests
        if passed + failed == 0:
            failed = 1  # a suite without tests proves nothing
        return passed, failed, output


def count(report):
    """Passed and failed of a JUnit file. A skipped test is a failure: nothing is skipped here."""
    if not report.exists():
        return 0, 0
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    bad = [c for c in cases if any(c.find(tag) is not None for tag in ("failure", "error", "skipped"))]
    return len(cases) - len(bad), len(bad)


def venv():
    done = subprocess.run([ROOT / "scripts/venv.sh"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(done.stdout.strip())


def configure_and_build(preset, targets=()):
    build = ["cmake", "--build", f"build/{preset}", "-j", JOBS]
    return [Step(f"{preset} configure", ["cmake", "--preset", preset]),
            Step(f"{preset} build", build + [a for t in targets for a in ("-t", t)])]


def ctest(preset, *args, timeout=1800, env=None):
    return JUnit(f"{preset} unit tests",
                 ["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "-j", JOBS, *args],
                 "--output-junit", timeout=timeout, env=env)


def pytest(name, *args, timeout=1800, env=None):
    return JUnit(name, [venv() / "bin/python", "-m", "pytest", "-q", "--no-header",
                        "-p", "no:cacheprovider", *args], "--junitxml", timeout=timeout, env=env)


# suites

def release():
    return [*configure_and_build("release"), ctest("release")]


def clang():
    return configure_and_build("clang")


def asan():
    return [*configure_and_build("asan"), ctest("asan"), *models(),
            pytest("asan integration", "tests/integration/runtime/test_http.py",
                   "tests/integration/runtime/test_lifecycle.py", env={"PENSTOCK_BUILD": str(ROOT / "build/asan")})]


def tsan():
    """Everything that has threads; the rest cannot race."""
    return [*configure_and_build("tsan"),
            ctest("tsan", "-R", "http|core|metrics|gpu|api|pool|device|engine|invariance|ranks|communicator|operator")]


GPU_TESTS = "test_vgpu|test_cuda|test_model_cuda"


def cuda_build():
    return [*configure_and_build("cuda", ["kernels_cuda"]),
            pytest("ptxas", "tests/cuda/test_ptxas.py", env={"PENSTOCK_BUILD": str(ROOT / "build/cuda")})]


def soak(preset, seconds):
    return pytest("soak", "tests/cuda/test_soak.py",
                  env={"PENSTOCK_BUILD": str(ROOT / f"build/{preset}"), "SOAK_SECONDS": str(seconds)})


def gpu():
    """The CUDA kernels by NVIDIA's compiler, and everything above them on the virtual GPU: a cut."""
    return [*cuda_build(), *configure_and_build("vgpu"), ctest("vgpu", "-R", GPU_TESTS), soak("vgpu", 10)]


def gpu_full():
    """Every call failed, both real models; kernels, models and 5 minutes of traffic under the sanitizers."""
    every = {"CUDA_FAULT_STRIDE": "1"}
    return [*cuda_build(), *configure_and_build("vgpu"), *models(),
            ctest("vgpu", "-R", GPU_TESTS, "--timeout", "7200", timeout=14400, env=every),
            pytest("real models", "tests/cuda/test_models.py", timeout=3600),
            *configure_and_build("vgpu-asan"),
            ctest("vgpu-asan", "-R", GPU_TESTS, "--timeout", "7200", timeout=14400), soak("vgpu-asan", 300),
            pytest("ready for a real GPU", "tests/cuda/test_nvidia.py", env={"PENSTOCK_BUILD": str(ROOT / "build/vgpu")}),
            *configure_and_build("release"), *configure_and_build("cuda", ["penstock-runtime"]),
            Step("images", ["scripts/image.sh", "cuda"]), pytest("image", "tests/cuda/test_image.py")]


def lint():
    return [pytest("lint", "tests/lint")]


def fuzz():
    return [*configure_and_build("fuzz", ["fuzzers"]),
            pytest("fuzz", "tests/fuzz", timeout=7200)]


def models():
    return [Step("models", ["scripts/fetch-models.sh"]),
            Step("tokenizers", ["scripts/fetch-tokenizers.sh"])]


def runtime():
    return [*models(), pytest("runtime integration", "tests/integration/runtime")]


def reference():
    return [*models(), pytest("reference", "tests/integration/reference")]


def reference_full():
    return [*models(), pytest("reference, all prompts", "tests/integration/reference", timeout=7200,
                              env={"REFERENCE_FULL": "1"})]


def operator():
    return [Step("Kubernetes binaries", ["scripts/kubernetes.sh"], timeout=3600),
            pytest("operator integration", "tests/integration/operator")]


def sanitizers():
    """What asan and tsan of the CI tier leave out: the operator on a real API server, and the runtime's
    whole integration suite, under both (the runtime under tsan only where a tiny model will do)."""
    def env(preset):
        return {"PENSTOCK_BUILD": str(ROOT / f"build/{preset}")}
    return [*configure_and_build("asan"), *configure_and_build("tsan"), *models(),
            Step("Kubernetes binaries", ["scripts/kubernetes.sh"], timeout=3600),
            pytest("operator under asan", "tests/integration/operator", env=env("asan"), timeout=3600),
            pytest("operator under tsan", "tests/integration/operator", env=env("tsan"), timeout=3600),
            pytest("runtime under asan", "tests/integration/runtime", "--ignore",
                   "tests/integration/runtime/test_streams.py", env=env("asan"), timeout=7200)]


def cluster():
    return [Step("Kubernetes binaries", ["scripts/kubernetes.sh"], timeout=3600), *models(),
            Step("images", ["scripts/image.sh"]),
            *configure_and_build("vgpu", ["penstock-runtime", "vgpu_nccl", "vgpu_nvidia-ml"]),
            pytest("cluster", "tests/e2e")]


CI = {"lint": lint, "release": release, "clang": clang, "asan": asan, "tsan": tsan,
      "gpu": gpu, "runtime": runtime, "reference": reference, "cluster": cluster,
      "operator": operator, "fuzz": fuzz}
# the operator's tests wait for controllers most of the time, and the fuzzers run for a fixed time
SIDE_BY_SIDE = {"operator", "fuzz"}
FULL = {"reference-full": reference_full, "sanitizers": sanitizers, "gpu-full": gpu_full}


def run_suite(name, make):
    """Returns (passed, failed); stops the suite at the first failed step."""
    start, passed, failed = time.monotonic(), 0, 0
    print(f"== {name}", flush=True)
    for step in make():
        p, f, output = step.run()
        passed, failed = passed + p, failed + f
        if f:
            print(f"{output}\n   {step.name}: {f} failed", flush=True)
            break
    print(f"   {name}: {passed} passed, {failed} failed in {(time.monotonic() - start) / 60:.1f} min",
          flush=True)
    return passed, failed


def main(names):
    suites = {**CI, **FULL}
    if names == ["--list"]:
        print("\n".join(suites))
        return 0
    unknown = [n for n in names if n not in suites]
    if unknown:
        print(f"run.py: no suite '{unknown[0]}'; there are {', '.join(suites)}", file=sys.stderr)
        return 2
    names = names or list(CI)
    results = [run_suite(n, suites[n]) for n in names if n not in SIDE_BY_SIDE]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results += pool.map(lambda n: run_suite(n, suites[n]), [n for n in names if n in SIDE_BY_SIDE])
    passed, failed = (sum(counts) for counts in zip(*results))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
