#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the CUDA compiler and keeps what it reports (registers, spills) in a file; shows it when the
# compilation failed.
#   scripts/nvcc.sh REPORT NVCC ARGUMENTS...
set -u
report=$1
shift
"$@" >"$report" 2>&1 && exit 0
code=$?
cat "$report" >&2
rm -f "$report"
exit "$code"
