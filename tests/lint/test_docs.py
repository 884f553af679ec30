# SPDX-License-Identifier: Apache-2.0
"""Documents that repeat what a program knows."""

import subprocess
import sys

from sources import ROOT


def test_the_roofline_of_the_gpu_page_is_what_its_script_prints():
    printed = subprocess.run([sys.executable, ROOT / "scripts/roofline.py"], check=True, capture_output=True,
                             text=True).stdout
    page = (ROOT / "docs/gpu.md").read_text()
    assert page.split("<!-- roofline -->\n")[1].split("<!-- /roofline -->")[0] == printed, \
        "put the output of scripts/roofline.py between the marks of docs/gpu.md"
    assert printed.count("\n| ") > 60
