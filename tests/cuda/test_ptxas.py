# SPDX-License-Identifier: Apache-2.0
"""What the CUDA assembler says of each kernel, against what the kernel's source says of itself.

Every .cu states in its essay, a line a kernel,

    occupancy: NAME threads=256 shared=49152 blocks=2

the threads of a block, the dynamic shared memory it asks for at most, and how many such blocks a
multiprocessor holds at once. The build leaves ptxas's report beside each object
(build/cuda/kernels/cuda/*.ptxas); here the two are compared for every architecture: nothing is
spilled, and registers and shared memory allow what is stated.
"""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REPORTS = pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/cuda")) / "kernels/cuda"

# Per multiprocessor (CUDA programming guide, "Technical specifications per compute capability"):
# shared memory, of which the system takes 1 KiB a block; the most a block may ask for; warps.
ARCHITECTURES = {"sm_80": (164 << 10, 163 << 10, 64),
                 "sm_90": (228 << 10, 227 << 10, 64),
                 "sm_100": (228 << 10, 227 << 10, 64)}
REGISTERS, BLOCKS_MAX, SYSTEM_SHARED = 65536, 32, 1024

STATED = re.compile(r"occupancy:\s+(\w+)\s+threads=(\d+)\s+shared=(\d+)\s+blocks=(\d+)")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
STATIC_SHARED = re.compile(r"(\d+) bytes smem")


def stated(source):
    """{kernel: (threads, shared, blocks)} of a .cu's text."""
    return {name: tuple(map(int, figures)) for name, *figures in STATED.findall(source)}


def kernels(source):
    """Names of the __global__ functions of a .cu's text."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)
    code = re.sub(r"__launch_bounds__\s*\([^()]*(\([^()]*\)[^()]*)*\)", "", code)
    return set(re.findall(r"__global__[^;{(]*?(\w+)\s*\(", code))


def name_of(symbol, names):
    """Which of names a symbol is: itself, or the last part of a mangled one (_Z5scale..., also of a
    template, in a namespace, or static)."""
    parts = [symbol]
    mangled = re.match(r"_Z[NL]*", symbol)
    rest = symbol[mangled.end():] if mangled else ""
    while length := re.match(r"L?(\d+)", rest):
        end = length.end() + int(length.group(1))
        parts.append(rest[length.end():end])
        rest = rest[end:]
        if not symbol.startswith("_ZN"):
            break
    return parts[-1] if parts[-1] in names else None


def entries(report):
    """[(symbol, architecture, registers, spilled bytes, static shared bytes)] of ptxas's report."""
    found = []
    parts = re.split(r"(?=ptxas info\s+: Compiling entry function)", report)
    for part in parts:
        entry = ENTRY.search(part)
        if not entry:
            continue
        # what follows may hold functions that were not inlined: their spills count too
        spilled = sum(int(a) + int(b) for _, a, b in FRAME.findall(part))
        static = STATIC_SHARED.search(part)
        found.append((*entry.groups(), int(USED.search(part).group(1)), spilled,
                      int(static.group(1)) if static else 0))
    return found


def blocks_that_fit(architecture, threads, registers, shared):
    """Blocks of a kernel that one multiprocessor holds."""
    shared_sm, shared_block, warps_max = ARCHITECTURES[architecture]
    warps = (threads + 31) // 32
    if shared > shared_block:
        return 0
    a_warp = (registers * 32 + 255) // 256 * 256  # registers are given out by 256 a warp
    # and warps by quarters of the multiprocessor, each with a quarter of the registers
    by_registers = REGISTERS // 4 // a_warp * 4 // warps
    return min(by_registers, warps_max // warps, BLOCKS_MAX,
               shared_sm // ((shared + 127) // 128 * 128 + SYSTEM_SHARED))


def faults(source, report):
    """What is wrong with one .cu, in words."""
    claims, names, found, seen = stated(source), kernels(source), [], set()
    found += [f"{n}: states no occupancy" for n in sorted(names - set(claims))]
    found += [f"{n}: states an occupancy but is no kernel" for n in sorted(set(claims) - names)]
    for symbol, architecture, registers, spilled, static in entries(report):
        name = name_of(symbol, names)
        seen.add((name, architecture))
        where = f"{name or symbol} ({symbol}, {architecture})"
        if name is None:
            found.append(f"{where}: no such kernel in the source")
            continue
        if spilled:
            found.append(f"{where}: {spilled} bytes are spilled")
        if name not in claims:
            continue
        threads, shared, blocks = claims[name]
        fit = blocks_that_fit(architecture, threads, registers, shared + static)
        if fit < blocks:
            found.append(f"{where}: {registers} registers and {shared + static} bytes of shared memory "
                         f"allow {fit} blocks of {threads} threads, {blocks} are stated")
    found += [f"{n}: not in the report for {a}" for n in sorted(names) for a in ARCHITECTURES
              if (n, a) not in seen]
    return found


def sources():
    return sorted((ROOT / "kernels/cuda").glob("*.cu"))


def test_there_are_kernels():
    assert sources()


@pytest.mark.parametrize("source", sources(), ids=lambda p: p.name)
def test_kernel_is_as_stated(source):
    report = REPORTS / f"{source.stem}.ptxas"
    assert report.exists(), "build it: cmake --preset cuda && cmake --build build/cuda -t kernels_cuda"
    assert report.stat().st_mtime >= source.stat().st_mtime, "older than the source; build again"
    found = faults(source.read_text(), report.read_text())
    assert not found, "\n".join(found)


# the checker itself

SOURCE = """/* occupancy: scale threads=256 shared=4096 blocks=4 */
template <int N> __global__ __launch_bounds__(256, 4) static void scale(float *x) { }
"""
REPORT = "".join(f"""ptxas info    : Compiling entry function '_Z5scaleILi3EEvPf' for '{a}'
ptxas info    : Function properties for _Z5scaleILi3EEvPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 364 bytes cmem[0]
""" for a in ARCHITECTURES)


def test_what_is_stated_passes():
    assert not faults(SOURCE, REPORT)


@pytest.mark.parametrize("symbol, name", [
    ("scale", "scale"), ("_Z5scaleILi3EEvPf", "scale"), ("_Z5scale6k_normii", "scale"), ("_Z5scaleii", "scale"),
    ("_ZN12_GLOBAL__N_19scale_addEPf", "scale_add"), ("_Z9scale_addPf", "scale_add"), ("_ZL5scalePf", "scale"), ("_Z7rescalePf", None)])
def test_names_are_found_in_symbols(symbol, name):
    assert name_of(symbol, {"scale", "scale_add"}) == name


@pytest.mark.parametrize("old, new, complaint", [
    ("0 bytes spill loads", "16 bytes spill loads", "16 bytes are spilled"),
    ("Used 64 registers", "Used 80 registers", "allow 3 blocks of 256 threads"),
    ("1 barriers", "1 barriers, 45056 bytes smem", "allow 3 blocks of 256 threads"),
    ("scaleILi3EEvPf' for 'sm_90'", "scaleILi3EEvPf' for 'sm_91'", "not in the report for sm_90"),
])
def test_a_fault_of_the_report_is_seen(old, new, complaint):
    report = REPORT.replace(old, new)
    assert report != REPORT
    ARCHITECTURES.setdefault("sm_91", ARCHITECTURES["sm_90"])
    try:
        assert any(complaint in fault for fault in faults(SOURCE, report))
    finally:
        del ARCHITECTURES["sm_91"]


@pytest.mark.parametrize("line, complaint", [
    ("", "scale: states no occupancy"),
    ("/* occupancy: scaled threads=1 shared=0 blocks=1 */", "scaled: states an occupancy but is no kernel"),
    ("/* occupancy: scale threads=256 shared=167936 blocks=1 */", "allow 0 blocks"),
])
def test_a_fault_of_the_source_is_seen(line, complaint):
    source = line + "\n" + SOURCE.split("\n", 1)[1]
    assert any(complaint in fault for fault in faults(source, REPORT))
