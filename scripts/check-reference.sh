#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make check-reference: fetches the models and compares them with the committed answers.
#   scripts/check-reference.sh REFERENCE_PROGRAM [smollm2] [gemma3]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
"$here/fetch-models.sh"
exec python3 "$here/../tests/golden/check_reference.py" "$@"
