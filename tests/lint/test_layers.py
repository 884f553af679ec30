# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: read from the table in docs/architecture.md, checked on every #include."""

import re

from sources import ROOT, product_c_files, rel

# files that wire everything together
WIRING = re.compile(r"^(runtime|operator)/\w+\.[ch]$|^bench/")


def table():
    """{folder or file prefix: set of allowed prefixes}, from the rows between the markers."""
    text = (ROOT / "docs/architecture.md").read_text()
    rows = text.split("<!-- layers -->")[1].split("<!-- /layers -->")[0]
    allowed = {}
    for row in rows.splitlines():
        cells = [c.strip() for c in row.strip().strip("|").split("|")]
        if len(cells) != 2 or cells[0] in ("part", "---"):
            continue
        targets = re.findall(r"`([\w/.]+)`", cells[1])
        for part in re.findall(r"`([\w/.]+)`", cells[0]):
            allowed[part] = set(targets)
    return allowed


def layer_of(path, allowed):
    """The longest table entry that the path lies under."""
    fitting = [part for part in allowed if path == part or path.startswith(part + "/") or
               path.startswith(part + ".")]
    return max(fitting, key=len, default=None)


def violations(path, text, allowed):
    own = layer_of(path, allowed)
    for target in re.findall(r'^#include "([^"]+)"', text, re.M):
        other = layer_of(target, allowed)
        if other is None:
            yield f"{path} includes {target}, which is in no layer"
        elif other != own and other != "base" and other not in allowed[own]:
            yield f"{path} ({own}) includes {target} ({other})"


def test_includes_follow_the_table():
    allowed = table()
    assert len(allowed) > 15
    found = []
    for path in product_c_files():
        name = rel(path)
        if WIRING.match(name):
            continue
        if layer_of(name, allowed) is None:
            found.append(f"{name} is in no layer")
            continue
        found += violations(name, path.read_text(), allowed)
    assert not found


def test_a_violation_is_seen():
    allowed = table()
    assert list(violations("runtime/api/x.c", '#include "runtime/engine/engine.h"\n', allowed))
    assert list(violations("kernels/ref/x.c", '#include "runtime/device/device.h"\n', allowed))
    assert list(violations("operator/reconcile/plan.c", '#include "operator/kube/client.h"\n', allowed))
    assert not list(violations("runtime/api/x.c", '#include "runtime/text/tokenizer.h"\n', allowed))


def test_the_binaries_share_base_alone():
    for path in product_c_files():
        name, text = rel(path), path.read_text()
        if name.startswith("operator/"):
            assert not re.search(r'#include "(runtime|kernels)/', text), name
        if name.startswith(("runtime/", "kernels/")):
            assert not re.search(r'#include "operator/', text), name
