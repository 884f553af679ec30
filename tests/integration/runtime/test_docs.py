# SPDX-License-Identifier: Apache-2.0
"""The generated pages are what the binaries say today; the README's links lead somewhere."""

import pathlib
import re
import subprocess

from server import ROOT


def test_reference_is_current(tmp_path):
    subprocess.run([ROOT / "scripts/reference.sh", tmp_path], check=True)
    pages = sorted(p.name for p in tmp_path.iterdir())
    assert pages == sorted(p.name for p in (ROOT / "docs/reference").iterdir())
    for name in pages:
        assert (tmp_path / name).read_text() == (ROOT / "docs/reference" / name).read_text(), f"run make docs: {name}"


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_suite_is_documented():
    listed = subprocess.run([ROOT / "tests/run.py", "--list"], check=True, capture_output=True, text=True).stdout.split()
    page = pathlib.Path(ROOT / "docs/testing.md").read_text()
    assert [name for name in listed if f"`{name}`" not in page] == []
