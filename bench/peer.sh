#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-peer: builds the peer once into the cache (about 5 minutes), fetches the models, and
# runs bench_peer.py with the release build.  Options go to bench_peer.py.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
"$root/scripts/fetch-models.sh"
venv=$("$root/scripts/venv.sh" "$here/peer_requirements.txt")
exec "$venv/bin/python" "$here/bench_peer.py" "$root/build/release/bench/one_batch" "$@"
