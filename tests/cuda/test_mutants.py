# SPDX-License-Identifier: Apache-2.0
"""The rules that make mutants, and the list of those that are not found: without building any."""

import json

import mutants
import mutation
import pytest


@pytest.mark.parametrize("rule, code, changed", [
    (mutation.barriers, "a; __syncwarp(all); b;", ["a; ; b;"]),
    (mutation.copy_waits, "ptx_cp_async_wait<1>();", [";", "ptx_cp_async_wait<2>();"]),
    (mutation.copy_waits, "ptx_cp_async_commit();", [";"]),
    (mutation.event_waits, "{\n    await(c, e);\n}", ["{\n    ;\n}"]),
    (mutation.event_waits, "static void await(int c)", []),
    (mutation.conditions, "if (i >= n) return;", ["if (false) return;"]),
    (mutation.conditions, "if (i >= n || j) continue;",
     ["if (false || j) continue;", "if (i >= n || false) continue;"]),
    (mutation.conditions, "if (s && n < 2) return;",
     ["if (false) return;", "if (true && n < 2) return;", "if (s && true) return;"]),
    (mutation.conditions, "if (f(n) > 8) return (int)cudaErrorInvalidValue;",
     ["if (false) return (int)cudaErrorInvalidValue;"]),
    (mutation.conditions, "if (i < n && ok) x = 1;", ["if (true && ok) x = 1;"]),
    (mutation.conditions, "if (n > c->most) n = c->most;", ["if (false) n = c->most;"]),
    (mutation.conditions, "if (ok) x = f<int>(y);", []),
    (mutation.conditions, "bool valid = i < n && j;", ["bool valid = true && j;"]),
    (mutation.loops, "for (int i = t; i < n; i++)", ["for (int i = t; i <= n; i++)"]),
    (mutation.loops, "for (int i = t; i > 0; i /= 2)", ["for (int i = t; i > 1; i /= 2)"]),
    (mutation.loops, "for (int i = 0; i < HD / 8; i++)", []),
    (mutation.loops, "while (a <= b)", ["while (a < b)"]),
    (mutation.validities, "ptx_cp_async16(to, f(a, b), valid);", ["ptx_cp_async16(to, f(a, b), true);"]),
    (mutation.clamps, "x = min(f(a), b);", ["x = (f(a));", "x = (b);"]),
    (mutation.clamps, "n = n < most ? n : most;", ["n = n;"]),
    (mutation.clamps, "x = a < b ? c : d;", []),
    (mutation.swaps, "void f()\n{\n    g(lane, warp);\n}\n",
     ["void f()\n{\n    g(warp, warp);\n}\n", "void f()\n{\n    g(lane, lane);\n}\n"]),
    (mutation.swaps, "void f()\n{\n    g(lane, a.warp);\n}\n", []),
    (mutation.swaps, "__device__ int f()\n{\n    return a / b;\n}\n",
     ["__device__ int f()\n{\n    return a % b;\n}\n"]),
    (mutation.swaps, "int f()\n{\n    return a / b;\n}\n", []),
])
def test_rules(rule, code, changed):
    assert [code[:begin] + new + code[end:] for _, begin, end, new in rule(code)] == changed


def test_there_are_enough_of_every_kind():
    found = mutation.all_mutants()
    assert len(found) >= 100
    assert {m.kind for m in found} == set(mutation.KINDS)


def test_comments_and_strings_are_left_alone():
    code = mutation.blanked('/* if (a < b) return; */ x = "min(a, b)"; // for\n#define f\ny;')
    assert code.split() == ["x", "=", ";", "y;"]
    for m in mutation.all_mutants():
        text = mutation.text_of(m.file)
        assert mutation.blanked(text)[m.begin] == text[m.begin], str(m)


def test_every_source_has_a_test():
    for file in {m.file for m in mutation.all_mutants()}:
        assert mutants.plan(file)


def test_the_survivors_are_mutants_and_have_reasons():
    keys = {m.key() for m in mutation.all_mutants()}
    for s in json.loads(mutants.SURVIVORS.read_text()):
        assert (s["file"], s["kind"], s["source"], s["mutated"]) in keys, "not a mutant any more; take it off the list"
        assert len(s["reason"]) > 20
