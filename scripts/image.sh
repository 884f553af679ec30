#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs both binaries, each with the libraries it needs, into image archives without Docker:
#   build/images/penstock-operator.tar   penstock-runtime.tar
# For 'kind load image-archive', 'ctr -n k8s.io images import', 'docker load' or a push by skopeo.
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(penstock VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
build=${PENSTOCK_BUILD:-build/release}
mkdir -p build/images
for name in operator runtime; do
    python3 scripts/image.py "build/images/penstock-$name.tar" \
        --tag "ghcr.io/penstock/$name:$version" \
        --binary "$build/$name/penstock-$name"
done
