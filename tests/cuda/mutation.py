# SPDX-License-Identifier: Apache-2.0
"""Mutants of the CUDA sources: single changes of the text, each a mistake that somebody could make.

The rules work on the text with comments, strings and preprocessor lines blanked out, so that a
position in it is one in the source.

    barrier      a __syncthreads() or __syncwarp() is not there
    copy wait    a cp.async commit or wait is not there, or a wait leaves one group more
    event wait   the host does not wait for an event, or does not record it (device_cuda.c)
    guard        `if (...) return;` or continue: a test of it does not fire
    bound        `if (a < b) ...`: a test of it is not there
    loop bound   a loop goes round once too often, or (from 'to the end') once too few
    validity     cp.async reads what is not valid
    clamp        a min() or max() takes one of its sides; `if (n > most) n = most` is not there
    swap         an index, a size or a stride is that of something else

Not among them: loops from 0 to a constant, which walk through an array of registers and are unrolled; and what chooses
into how many pieces a launch is cut.
"""

import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = "kernels/cuda"
DEVICE = "runtime/device/device_cuda.c"
# What the host's compiler takes from tests/vgpu instead.
NOT_BUILT = {f"{KERNELS}/ptx.cuh"}

KINDS = ("barrier", "copy wait", "event wait", "guard", "bound", "loop bound", "validity", "clamp", "swap")

# Names that stand for the like of each other; either may be written for the other.
PAIRS = """
    blockIdx.x/blockIdx.y blockIdx.y/blockIdx.z x/y lane/warp g/t row/column query/dim head/kv_head part/warp
    n_in/n_out n_out/n_rows n_heads/n_kv_heads n_patches/n_groups k_offset/v_offset
    first/last begin/end first_row/first_out keys/values stage/other GROUP_PATCHES/SUPER_PATCHES
    STATES_AT/TOTALS_AT BLOCK_BYTES/STAGE_BYTES WARP_BYTES/TILE_BYTES
""".split()


@functools.cache
def text_of(file):
    return (ROOT / file).read_text()


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str      # from the root
    begin: int     # what is replaced
    end: int
    text: str      # what by
    kind: str
    line: int
    source: str    # the line, stripped
    mutated: str   # what it becomes

    def apply(self):
        whole = text_of(self.file)
        return whole[:self.begin] + self.text + whole[self.end:]

    def key(self):
        """What names it although lines move."""
        return self.file, self.kind, self.source, self.mutated

    def __str__(self):
        return f"{self.file}:{self.line}: {self.kind}: {self.source}  ->  {self.mutated}"


def blanked(text):
    """The code alone, everything else spaces."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S | re.M)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def closing(code, at):
    """The position after the parenthesis that closes the one at 'at'."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("a parenthesis is not closed")


def split(code, begin, end, separators):
    """Spans between the separators (a regular expression) that are in no inner bracket."""
    found, depth, start, i = [], 0, begin, begin
    while i < end:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[i], 0)
        hit = re.compile(separators).match(code, i, end) if depth == 0 else None
        if hit:
            found.append((start, i))
            i = start = hit.end()
        else:
            i += 1
    return [trimmed(code, a, b) for a, b in [*found, (start, end)]]


def trimmed(code, begin, end):
    while begin < end and code[begin].isspace():
        begin += 1
    while begin < end and code[end - 1].isspace():
        end -= 1
    return begin, end


def barriers(code):
    for m in re.finditer(r"__sync(threads|warp)\([^()]*\)", code):
        yield "barrier", m.start(), m.end(), ""


def copy_waits(code):
    for m in re.finditer(r"ptx_cp_async_(commit|wait<(\d+)>)\(\)", code):
        yield "copy wait", m.start(), m.end(), ""
        if m.group(2):
            yield "copy wait", m.start(2), m.end(2), str(int(m.group(2)) + 1)


def cuts_work(code, at):
    """Whether a place is in a function that only chooses into how many pieces a launch is cut, or scratch for them:
    any number is right, as long as scratch has room, and that limit is a clamp of its own."""
    head = re.compile(r"\b(splits_of|parts_of|\w+_scratch_bytes)\([^{]*\)\n\{")
    return any(begin <= at < end and head.search(code, begin, end) for begin, end in functions(code))


def event_waits(code):
    """Calls that wait, and the marks that they wait for, in functions (not their definitions)."""
    for m in re.finditer(r"(?<=\n)[ ]+((await|pinned_wait|pinned_mark|settle)\(|p->in_use = true)", code):
        yield "event wait", m.start(1), code.index(";", m.end()), ""
    for m in re.finditer(r"check\(c, cudaEventRecord\(", code):
        yield "event wait", m.start(), closing(code, m.start() + 5), ""


COMPARISON = re.compile(r"(?<![<>=!\-])(<=?|>=?)(?![<>=])")


def compares(code, begin, end):
    """Whether a term is a comparison of sizes: no template's brackets, no property of a type."""
    found = COMPARISON.finditer(code, begin, end)
    return "traits<" not in code[begin:end] and any(code[m.start() - 1] == code[m.end()] == " " for m in found)


def conditions(code):
    """Guards and bounds.  A refusal (an error is returned) is a guard, too, and `if (n > most) n = most` a clamp."""
    for m in re.finditer(r"\bif \(", code):
        begin, end = m.end(), closing(code, m.end() - 1) - 1
        refuses = re.match(r"\)\s*return \(int\)cudaError", code[end:]) is not None
        leaves = refuses or re.match(r"\)\s*(return|continue);", code[end:]) is not None
        if leaves and "&&" in code[begin:end]:
            yield "guard", begin, end, "false"
        for a, b in split(code, begin, end, r"\|\||&&"):
            if re.match(r"(\w+) [<>] ", code[a:b]) and re.match(rf"\)\s*{code[a:b].split()[0]} = ", code[end:]):
                yield "clamp", a, b, "false"
            elif leaves:
                yield "guard", a, b, "true" if "&&" in code[begin:end] else "false"
            elif compares(code, a, b):
                yield "bound", a, b, "false" if "||" in code[begin:end] else "true"
    for m in re.finditer(r"\bbool \w+ = ([^;?]*);", code):
        for a, b in split(code, m.start(1), m.end(1), r"&&"):
            if compares(code, a, b):
                yield "bound", a, b, "true"


def loop_conditions(code):
    for m in re.finditer(r"\bwhile \(", code):
        yield m.end(), closing(code, m.end() - 1) - 1
    for m in re.finditer(r"\bfor \(", code):
        parts = split(code, m.end(), closing(code, m.end() - 1) - 1, ";")
        if len(parts) == 3:
            yield parts[1]


def is_constant(bound):
    """Made of numbers and names of constants, possibly a type's."""
    return re.fullmatch(r"(\s|[\d*/+()]|(\w+(<\w+>)?::)?[A-Z][A-Z_\d]*\b)+", bound) is not None


def loops(code):
    for span in loop_conditions(code):
        for c in COMPARISON.finditer(code, *span):
            if re.search(r"[=] [01]; \w+ $", code[:c.start()]) and is_constant(code[c.end():span[1]]):
                continue
            if c.group() in ("<", "<="):
                yield "loop bound", c.start(), c.end(), "<=" if c.group() == "<" else "<"
            elif c.group() == ">" and code.startswith(" 0", c.end()):
                yield "loop bound", c.end() + 1, c.end() + 2, "1"


def validities(code):
    for m in re.finditer(r"\bptx_cp_async16\(", code):
        arguments = split(code, m.end(), closing(code, m.end() - 1) - 1, ",")
        yield "validity", *arguments[2], "true"


def clamps(code):
    """min(a, b) as a, and as b; a < b ? a : b as a. Maxima of floats are softmax's, and bound nothing."""
    for m in re.finditer(r"\b(min|max)\(", code):
        end = closing(code, m.end() - 1)
        for a, b in split(code, m.end(), end - 1, ","):
            yield "clamp", m.start(), end, f"({code[a:b]})"
    for m in re.finditer(r"(?<=[=n] )([\w.>\-]+) [<>] ([^?:;]+) \? ([^:;?]+) : ([^:;?,]+)(?=;)", code):
        if m.group(1) in m.group(3, 4):
            yield "clamp", m.start(), m.end(), m.group(1)


@functools.cache
def functions(code):
    """Spans from a function's head to its last brace."""
    found, last = [], 0
    for m in re.finditer(r"^\{.*?^\}", code, re.S | re.M):
        found.append((max(last, code.rfind("\n\n", 0, m.start())), m.end()))
        last = m.end()
    return found


def is_device(function):
    return re.search(r"__(device|global)__", function) is not None


def occurrences(code, name):
    """Places of a name: (position, what it is a member of, such as 'a.kv.'; '': of nothing)."""
    for m in re.finditer(rf"((?:[\w\])>]+(?:\.|->|::))*){re.escape(name)}(?![\w(<])", code):
        at = m.start() + len(m.group(1))
        if not re.match(r"\w", code[m.start() - 1]) or m.group(1):
            yield at, m.group(1)


def swaps(code):
    """A name for its like, where there is one: in the same function, or of the same thing."""
    spans = functions(code)
    for pair in PAIRS:
        one, other = pair.split("/")
        for a, b in ((one, other), (other, one)):
            for at, whose in occurrences(code, a):
                function = next((code[begin:end] for begin, end in spans if begin <= at < end), "")
                declared = re.search(r"(\w+_t|float|bool|char|__half|int|struct \w+) [*&]*$", code[:at])
                known = a.startswith("blockIdx") or any(w == whose for _, w in occurrences(
                    function if whose in ("", "a.", "p.", "l.", "s.", "e.", "d.", "t.") else code, b))
                if known and not declared:
                    yield "swap", at, at + len(a), b
    for m in re.finditer(r" ([/%]) (?!sizeof|\(float|sqrtf|2\b)", code):
        if not any(begin <= m.start() < end and is_device(code[begin:end]) for begin, end in spans):
            continue  # the host's are sizes, not indices
        yield "swap", m.start(1), m.end(1), "%" if m.group(1) == "/" else "/"


def mutants_of(file):
    text = text_of(file)
    code = blanked(text)
    rules = [event_waits] if file == DEVICE else [barriers, copy_waits, conditions, loops, validities, clamps,
                                              swaps]
    found = {}
    for rule in rules:
        for kind, begin, end, new in rule(code):
            if cuts_work(code, begin) and new != "false":
                continue
            first = text.rfind("\n", 0, begin) + 1
            last = text.find("\n", end)
            lines = (text[first:last], text[first:begin] + new + text[end:last])
            source, mutated = (" ".join(s.split()) for s in lines)
            if source != mutated:
                found.setdefault((begin, end, new), Mutant(file, begin, end, new, kind, text.count("\n", 0, begin) + 1,
                                                           source, mutated))
    return sorted(found.values(), key=lambda m: (m.begin, m.end, m.text))


def all_mutants():
    sources = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / KERNELS).glob("*.cu*"))
    return [m for file in [*sources, DEVICE] if file not in NOT_BUILT for m in mutants_of(file)]
