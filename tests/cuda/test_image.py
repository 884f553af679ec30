# SPDX-License-Identifier: Apache-2.0
"""The image for GPUs, as scripts/image.sh cuda packed it: complete but for the driver's libraries, which
the node brings, and with NVIDIA's licences."""

import json
import pathlib
import re
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ARCHIVE = ROOT / "build/images/penstock-runtime-cuda.tar"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The folder it unpacks to."""
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(ARCHIVE) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        assert manifest["RepoTags"][0].endswith("-cuda")
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                files.extractall(folder)
    return folder


def needs(path):
    """The libraries that a program or library is linked with."""
    done = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))


def test_nothing_is_missing_but_the_driver(image):
    libraries = {p.name: p for p in image.rglob("*.so*")}
    assert {"libnccl.so.2", "libcublasLt.so.13"} <= set(libraries)
    assert not {n for n in libraries if n.startswith(("libcuda.", "libcudart", "libnvidia", "libcublas."))}
    for path in [image / "usr/bin/penstock-runtime", *libraries.values()]:
        assert needs(path) <= set(libraries), path.name


def test_licences_are_there(image):
    found = image.glob("usr/share/doc/*/License.txt")
    texts = {p.parent.name.split("-")[0]: p.read_text(errors="replace") for p in found}
    assert set(texts) == {"nvidia_nccl_cu13", "nvidia_cuda_runtime", "nvidia_cublas"}
    assert "NVIDIA CORPORATION" in texts["nvidia_nccl_cu13"] and "LICENSE" in texts["nvidia_cuda_runtime"].upper()
