#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 'make demo' and 'make demo-down': installs what is needed, then scripts/demo.py does the work.
#   scripts/demo.sh up|down      KEEP=1 keeps the cluster
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
    echo "demo: needs root, for network namespaces, containerd and the kubelet" >&2
    exit 1
fi
if [ "${1:-}" = up ]; then
    scripts/setup.sh build cluster
fi
exec python3 scripts/demo.py "$@"
