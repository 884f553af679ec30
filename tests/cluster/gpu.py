# SPDX-License-Identifier: Apache-2.0
"""GPUs for a Node that has none: the node advertises them as a resource, and an image holds the runtime
on the virtual GPU (build/vgpu) with the twins of NCCL and NVML. A folder that pods mount has a small
model, and a script of what the GPUs say, which is read again all the time: see tests/vgpu/nvml.cc.
"""

import subprocess
import sys
import time

from tests.cluster import tiny_model
from tests.cluster.node import ROOT

RESOURCE = "nvidia.com/gpu"
IMAGE = "localhost/runtime-vgpu:1"
BUILD = ROOT / "build/vgpu"
MODEL, SCRIPT = "tiny.gguf", "nvml"
MOUNT = "/var/lib/penstock/model"  # where a pvc:// source is seen in the pod


def image(folder):
    """The archive of IMAGE."""
    out = folder / "runtime-vgpu.tar"
    subprocess.run([sys.executable, ROOT / "scripts/image.py", out, "--tag", IMAGE,
                    "--binary", BUILD / "runtime/penstock-runtime",
                    "--library", BUILD / "tests/vgpu/libnccl.so.2",
                    "--library", BUILD / "tests/vgpu/libnvidia-ml.so.1"], check=True, capture_output=True)
    return out


def advertise(cluster, n, timeout=30):
    """As https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/ describes it."""
    patch = [{"op": "add", "path": f"/status/capacity/{RESOURCE.replace('/', '~1')}", "value": str(n)}]
    status, node = cluster.api("PATCH", "/api/v1/nodes/n1/status", patch, "application/json-patch+json")
    deadline = time.monotonic() + timeout
    while status != 200 or node["status"]["allocatable"].get(RESOURCE) != str(n):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node does not offer {n} GPUs: {node}")
        time.sleep(0.2)
        status, node = cluster.api("GET", "/api/v1/nodes/n1")


class Folder:
    """The model, and what the GPUs of all pods that mount the folder say."""

    def __init__(self, path):
        self.path = path
        path.mkdir(mode=0o755)
        tiny_model.write(path / MODEL)
        self.say()

    def say(self, *lines):
        """Appears whole: a pod never reads half of it."""
        new = self.path / "new"
        new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        new.rename(self.path / SCRIPT)


def env(n):
    """Of a container that was given n GPUs: what a device plugin would do."""
    return [{"name": "VGPU_DEVICES", "value": str(n)}, {"name": "VGPU_MEMORY", "value": "64M"},
            {"name": "VGPU_NVML", "value": f"{MOUNT}/{SCRIPT}"}]
