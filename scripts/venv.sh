#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment of the tests in the cache, once a version of the requirements, and
# prints its path.
#   scripts/venv.sh [REQUIREMENTS]        default: tests/requirements.txt
set -eu

requirements=${1:-$(dirname "$0")/../tests/requirements.txt}
cache=${PENSTOCK_CACHE:-$HOME/.cache/penstock}
key=$(sha256sum "$requirements" | cut -c1-12)
venv=$cache/venv-$key

if [ ! -e "$venv/.done" ]; then
    echo "making the Python environment $venv" >&2
    mkdir -p "$cache"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    touch "$venv/.done"
fi
echo "$venv"
