# SPDX-License-Identifier: Apache-2.0
"""However its owner ends, nothing of a cluster stays."""

import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, until
from tests.cluster import sandbox

OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.cluster.sandbox import Sandbox
s = Sandbox(keep=sys.argv[2] == "keep")
s.open()
s.cgroups.make()
process = s.spawn("busy", ["sh", "-c", "ip link add left0 type bridge; exec sleep 1000"])
group = s.cgroups.folders()[0]
(group / "cgroup.procs").write_text(str(s.pid("busy"))) if "cpuset" not in str(group) else None
print(s.dir, s.pid("busy"), flush=True)
sys.stdin.read()
s.close()
"""


@pytest.mark.parametrize("keep,end", [("", "close"), ("", "kill"), ("keep", "kill")])
def test_nothing_is_left(keep, end):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, ROOT, keep], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    folder, pid = owner.stdout.readline().split()
    folder, groups = pathlib.Path(folder), sandbox.Cgroups(f"penstock-{pathlib.Path(folder).name}")
    assert groups.folders() and sandbox.start_time(pid)
    assert not sandbox.mounts_under(folder) and not pathlib.Path("/sys/class/net/left0").exists()

    if end == "close":
        owner.communicate("", timeout=30)
        assert owner.returncode == 0
    else:
        owner.send_signal(signal.SIGKILL)
        owner.communicate(timeout=30)
        if keep:
            assert folder.name not in sandbox.sweep() and sandbox.start_time(pid)
        else:  # the kernel ends it, without anybody's help
            until(lambda: sandbox.start_time(pid) is None, 5)
        assert groups.folders() and folder.exists()
        # What others keep on purpose is not ours to remove.
        state = dict(sandbox.runs())[folder]
        sandbox.destroy(folder, state) if keep else sandbox.sweep()
    assert not folder.exists() and not groups.folders() and sandbox.start_time(pid) is None
