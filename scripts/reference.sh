#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes docs/reference (or another folder) from the binaries' tables and the CRD.
#   scripts/reference.sh [OUT]
set -eu
cd "$(dirname "$0")/.."
build=${PENSTOCK_BUILD:-build/release}
"$(scripts/venv.sh)/bin/python" scripts/reference.py "${1:-docs/reference}" "$build/runtime/penstock-runtime" \
    "$build/operator/penstock-operator"
