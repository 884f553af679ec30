#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-peer: builds llama-cpp-python once into the cache (about 5 minutes), fetches the
# models, and runs bench/bench_peer.py with the program given.
#   scripts/bench-peer.sh ONE_BATCH_PROGRAM [options of bench_peer.py]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv=${PENSTOCK_CACHE:-$HOME/.cache/penstock}/venv-peer-0.3.36

if [ ! -f "$venv/ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    echo "building llama-cpp-python 0.3.36"
    "$venv/bin/pip" install --quiet --no-binary llama-cpp-python llama-cpp-python==0.3.36
    touch "$venv/ready"
fi
"$here/fetch-models.sh"
exec "$venv/bin/python" "$here/../bench/bench_peer.py" "$@"
