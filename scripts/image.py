#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a docker-archive image of one binary and the shared libraries it needs.

    image.py OUT.tar --tag NAME:TAG --binary PATH [--library PATH ...] [--file SOURCE:DEST ...]
             [--env NAME=VALUE ...] [--entrypoint PATH]

The image holds /usr/bin/NAME, its libraries (as the dynamic loader finds them here), those given
because they are opened by name at run time, the CA certificates, /etc/passwd with the user 65532, and
an empty /tmp. Two layers: libraries, which seldom change, and the binary. Times and owners are fixed,
so the same input gives the same bytes.
"""

import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

USER = 65532
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# opened by name at run time, so the loader's list does not show them
RUNTIME_LIBRARIES = ["libnss_dns.so.2", "libnss_files.so.2"]


class Layer:
    """A tar in memory with everything about its members but names and content fixed."""

    def __init__(self):
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.GNU_FORMAT)
        self.folders = set()

    def _folders_of(self, dest):
        for parent in reversed(pathlib.PurePosixPath(dest).parents):
            name = str(parent).lstrip("/")
            if name and name not in self.folders:
                self.folders.add(name)
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                self.tar.addfile(info)

    def add(self, dest, data, mode=0o644):
        self._folders_of(dest)
        info = tarfile.TarInfo(dest.lstrip("/"))
        info.size, info.mode = len(data), mode
        self.tar.addfile(info, io.BytesIO(data))

    def add_folder(self, dest, mode):
        self._folders_of(dest)
        info = tarfile.TarInfo(dest.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, mode
        self.tar.addfile(info)

    def bytes(self):
        self.tar.close()
        return self.buffer.getvalue()


def libraries(binary):
    """Paths of the shared libraries, the loader included."""
    done = subprocess.run(["ldd", binary], capture_output=True, text=True)
    out = done.stdout
    if "not a dynamic executable" in done.stderr:
        return []
    if done.returncode or "not found" in out:
        sys.exit(f"image.py: {binary} lacks a library:\n{out}")
    found = sorted(set(re.findall(r"(/[^ ]+) \(0x", out)))
    folder = next((pathlib.Path(p).parent for p in found if "libc.so" in p), None)
    if folder:
        found += [str(folder / name) for name in RUNTIME_LIBRARIES if (folder / name).exists()]
    return found


def base_layer(binary, opened):
    """opened: libraries that nothing is linked with; they lie beside libc, and what they need comes too."""
    layer = Layer()
    needed = {path for b in [binary, *opened] for path in libraries(b)}
    for path in sorted(needed):
        layer.add(path, pathlib.Path(path).read_bytes(), 0o755)
    for path in opened:
        folder = next(pathlib.Path(p).parent for p in needed if "/libc.so" in p)
        layer.add(str(folder / path.name), path.read_bytes(), 0o755)
    if pathlib.Path(CERTIFICATES).exists():
        layer.add(CERTIFICATES, pathlib.Path(CERTIFICATES).read_bytes())
    layer.add("/etc/passwd", f"penstock:x:{USER}:{USER}::/:/sbin/nologin\n".encode())
    layer.add("/etc/group", f"penstock:x:{USER}:\n".encode())
    layer.add_folder("/tmp", 0o1777)
    return layer.bytes()


def binary_layer(binary, files):
    layer = Layer()
    layer.add(f"/usr/bin/{binary.name}", binary.read_bytes(), 0o755)
    for pair in files:
        source, dest = pair.split(":")
        layer.add(dest, pathlib.Path(source).read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
    return layer.bytes()


def write_archive(out, tag, layers, entrypoint, env):
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [entrypoint], "User": f"{USER}:{USER}", "Env": ["PATH=/usr/bin", *env],
                   "WorkingDir": "/tmp"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for d in digests]},
        "history": [{"created_by": "image.py"} for _ in layers],
    }, sort_keys=True).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    names = [f"{d}/layer.tar" for d in digests]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": names}]).encode()
    archive = Layer()
    archive.add(config_name, config)
    for name, layer in zip(names, layers):
        archive.add(name, layer)
    archive.add("manifest.json", manifest)
    pathlib.Path(out).write_bytes(archive.bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--tag", required=True)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--library", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--file", action="append", default=[], metavar="SOURCE:DEST")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--entrypoint")
    args = parser.parse_args()
    for path in [args.binary, *args.library]:
        if not path.exists():
            sys.exit(f"image.py: there is no {path}; build it first")
    layers = [base_layer(args.binary, args.library), binary_layer(args.binary, args.file)]
    write_archive(args.out, args.tag, layers, args.entrypoint or f"/usr/bin/{args.binary.name}", args.env)
    print(f"{args.out}: {args.tag}, {pathlib.Path(args.out).stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
