#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA backend on a real GPU, with files that were made where there is none.
#
#   scripts/nvidia.sh prepare [--models] [--no-nccl]
#       builds the preset cuda and gathers in build/nvidia all that a machine with a GPU needs: the
#       programs, stripped, every library they are linked with (libc too), NCCL, a small model, this
#       script.  --models adds SmolLM2 and its reference answers, --no-nccl leaves out 330 MB that
#       one GPU does not need.
#   build/nvidia/nvidia.sh check [--small]
#       kernels and seeded models against the reference, then what the kernels reach of the memory's
#       bandwidth; under 8 minutes.  Any x86-64 Linux with NVIDIA's driver will do: no compiler, no
#       network, no root.  The last line counts.
#   build/nvidia/nvidia.sh bench [--small] [MODEL.gguf]
#       the server under load: SmolLM2 if it was prepared, or the model given.
#
# --small is for the virtual GPU (tests/cuda/test_nvidia.py), with PENSTOCK_BUILD=build/vgpu for
# prepare; its times mean nothing.  NVIDIA_FOLDER is another place than build/nvidia.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ -d "$here/bin" ] && [ -d "$here/lib" ]; then
    folder=$here
else
    folder=${NVIDIA_FOLDER:-$here/../build/nvidia}
fi

# short names of the programs, and where a build has them; prepare adds the tests of kernels
programs="penstock-runtime:runtime gpu_kernels:bench test_model_cuda:tests/runtime/model
reference:tests/runtime/reference"

say() { echo "nvidia.sh: $*"; }
die() {
    echo "nvidia.sh: $*" >&2
    exit 1
}

# prepare

# Every library of a program as the loader finds it here, and the loader as ld.so.  libdl and the
# like are parts of libc by now, but the driver still asks for them by name.
copy_libraries() {
    local path libc
    ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r path; do
        cp -Lu "$path" "$folder/lib/"
    done
    libc=$(ldd "$1" | sed -n 's/.*libc\.so\.6 => \(\/[^ ]*\) .*/\1/p')
    for path in libdl.so.2 libpthread.so.0 librt.so.1; do
        cp -Lu "$(dirname "$libc")/$path" "$folder/lib/"
    done
    cp -Lu "$(ldd "$1" | sed -n 's/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p')" "$folder/lib/ld.so"
}

# A build on the virtual GPU has twins of NVIDIA's libraries.
copy_nvidia() { # BUILD WITH_NCCL
    local toolkit twin
    if [ -d "$1/tests/vgpu" ]; then
        for twin in "$1"/tests/vgpu/lib*.so.*; do
            cp -L "$twin" "$folder/lib/"
        done
        return
    fi
    toolkit=$("$here/cuda.sh")
    [ ! -d "$toolkit/licences" ] || cp -r "$toolkit/licences" "$folder/"
    [ "$2" = no ] || cp -L "$toolkit/nccl/lib/libnccl.so.2" "$folder/lib/"
}

# SmolLM2, its reference answers, and the mean KL that a GPU may have
copy_models() {
    "$here/fetch-models.sh" smollm2
    cp "${PENSTOCK_CACHE:-$HOME/.cache/penstock}/models/smollm2-135m-instruct-q4_1.gguf" "$folder/models/smollm2.gguf"
    python3 - "$here/../tests/golden" "$folder/models" <<'END'
import json, lzma, pathlib, sys
golden, models = map(pathlib.Path, sys.argv[1:])
(models / "smollm2.golden").write_bytes(lzma.decompress((golden / "smollm2.golden.xz").read_bytes()))
(models / "smollm2.mean_kl").write_text(f'{json.loads((golden / "peer.json").read_text())["smollm2"]["mean_kl"]}\n')
END
}

prepare() {
    local models=no nccl=yes build=${PENSTOCK_BUILD:-$here/../build/cuda} entry
    for entry in "$@"; do
        case $entry in
        --models) models=yes ;;
        --no-nccl) nccl=no ;;
        *) die "prepare: unknown option '$entry'" ;;
        esac
    done
    for entry in "$here"/../tests/kernels/cuda/test_cuda_*.c; do
        programs="$programs $(basename "$entry" .c):tests/kernels/cuda"
    done
    if [ -z "${PENSTOCK_BUILD:-}" ]; then
        (cd "$here/.." && cmake --preset cuda >/dev/null)
    fi
    # shellcheck disable=SC2046,SC2086  # lists of words
    cmake --build "$build" -t $(for entry in $programs; do echo "${entry%:*}"; done) >/dev/null
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/lib" "$folder/models"
    for entry in $programs; do
        strip -o "$folder/bin/${entry%:*}" "$build/${entry#*:}/${entry%:*}"
        copy_libraries "$folder/bin/${entry%:*}"
    done
    copy_nvidia "$build" "$nccl"
    python3 "$here/../tests/cluster/tiny_model.py" "$folder/models/tiny.gguf"
    [ "$models" = no ] || copy_models
    cp "$here/nvidia.sh" "$folder/"
    say "$(cd "$folder" && pwd): $(du -sm "$folder" | cut -f1) MiB, $(du -sm "$folder/bin" | cut -f1) of them programs"
}

# check and bench

# The program with the libraries it came with; the driver's are found where the system has them.
start() {
    local name=$1
    shift
    exec "$folder/lib/ld.so" --library-path "$folder/lib" "$folder/bin/$name" "$@"
}

needs_folder() {
    [ -x "$folder/lib/ld.so" ] || die "there is no $folder; 'scripts/nvidia.sh prepare' makes it, also without a GPU"
    # the runtime refuses variables of its prefix that it does not know
    # shellcheck disable=SC2086  # a list of names
    unset ${!PENSTOCK_@}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=index,name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader
    else
        say "there is no nvidia-smi here"
    fi
}

# judge NAME SECONDS COMMAND...: one test; its output is shown when it fails
judge() {
    local name=$1 seconds=$2 began=$SECONDS code=0
    shift 2
    set -m # a process group, so that all of it can be ended
    ("$@") >"$work/out" 2>&1 &
    set +m
    wait_for $! "$seconds" || code=$?
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
        echo "PASS $name, $((SECONDS - began)) s"
        return
    fi
    failed=$((failed + 1))
    tail -40 "$work/out"
    case $code in
    77) echo "FAIL $name: no GPU that can be used" ;;
    124) echo "FAIL $name: not done after $seconds s" ;;
    *) echo "FAIL $name: exit status $code" ;;
    esac
}

# Its exit status; 124 when it had to be killed.
wait_for() { # PID SECONDS
    local until=$((SECONDS + $2))
    while kill -0 "$1" 2>/dev/null; do
        if [ "$SECONDS" -ge "$until" ]; then
            kill -KILL -- "-$1"
            wait "$1" || return 124
        fi
        sleep 0.1
    done
    wait "$1"
}

# the server's answers to four prompts, beside the reference's
smollm2() {
    (start reference "$folder/models/smollm2.gguf" "$folder/models/smollm2.golden" cuda 1 8) | tee "$work/figures"
    awk -v bound="$(cat "$folder/models/smollm2.mean_kl")" '
        $1 == "mean_kl" { kl = $2 <= bound } $1 == "max_relative" { relative = $2 <= 0.01 }
        END { exit !(kl && relative) }' "$work/figures"
}

check() {
    local slower=1 name began=$SECONDS
    local -a size=()
    case ${1:-} in
    "") ;;
    --small) size=(--small) slower=10 ;;
    *) die "check: unknown option '$1'" ;;
    esac
    needs_folder
    passed=0 failed=0
    for name in "$folder"/bin/test_cuda_*; do
        judge "kernels, ${name##*/test_cuda_}" $((40 * slower)) start "$(basename "$name")"
    done
    judge "seeded models" $((60 * slower)) start test_model_cuda
    [ ! -e "$folder/models/smollm2.golden" ] || judge SmolLM2 $((60 * slower)) smollm2
    judge "bandwidth" $((100 * slower)) start gpu_kernels "${size[@]}"
    grep -e multiprocessors -e 'of copy' "$work/out" || true
    echo "$passed passed, $failed failed in $((SECONDS - began)) s"
    [ "$failed" = 0 ]
}

# field JSON OBJECT KEY
field() { sed -n "s/.*\"$2\":{[^}]*\"$3\":\([^,}]*\).*/\1/p" "$1"; }
plain() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1"; }

await_ready() { # PID SECONDS
    local until=$((SECONDS + $2))
    until grep -q '"msg":"ready"' "$work/log"; do
        if [ "$SECONDS" -ge "$until" ] || ! kill -0 "$1" 2>/dev/null; then
            cat "$work/log" >&2
            die "the server does not start"
        fi
        sleep 0.1
    done
}

load() { # URL CONCURRENCY WORDS TOKENS
    (start penstock-runtime bench serve --url "$1" --endpoint completions --concurrency "$2" \
        --num-prompts $((4 * $2)) --input-len "$3" --output-len "$4" --quiet -o json) >"$work/report" ||
        die "concurrency $2: $(cat "$work/report")"
    [ "$(plain "$work/report" failed)" = 0 ] || die "concurrency $2: $(cat "$work/report")"
    printf '%11s %10.1f %10.1f %10.2f %10.2f %12.1f\n' "$2" \
        "$(field "$work/report" ttft_ms p50)" "$(field "$work/report" ttft_ms p99)" \
        "$(field "$work/report" itl_ms p50)" "$(field "$work/report" itl_ms p99)" \
        "$(plain "$work/report" output_throughput)"
}

bench() {
    local levels="1 8 32 64" words=128 tokens=128 model=$folder/models/smollm2.gguf pid port n
    [ -e "$model" ] || model=$folder/models/tiny.gguf
    if [ "${1:-}" = --small ]; then
        levels="1 4" words=4 tokens=4 model=$folder/models/tiny.gguf
        shift
    fi
    [ $# -le 1 ] || die "bench: one model at most"
    model=${1:-$model}
    [ "$(basename "$model")" != tiny.gguf ] || words=4 # it has a token for each byte
    needs_folder
    set -m
    (start penstock-runtime serve --model "$model" --device cuda --port 0 --metrics-port 0 --drain-grace 0s \
        --log-level info) 2>"$work/log" &
    pid=$!
    set +m
    trap 'kill -KILL -- -$pid 2>/dev/null || true; rm -rf "$work"' EXIT
    await_ready "$pid" 600
    sed -n 's/.*"msg":"ready",\(.*\)}$/\1/p' "$work/log"
    port=$(sed -n 's/.*"msg":"listening".*"port":\([0-9]*\).*/\1/p' "$work/log")
    load "http://127.0.0.1:$port" 1 "$words" 4 >/dev/null # the first touch of everything
    echo "$words words in, $tokens tokens out; milliseconds to the first token and between two:"
    printf '%11s %10s %10s %10s %10s %12s\n' concurrency "first p50" "first p99" "next p50" "next p99" "tokens/s"
    for n in $levels; do
        load "http://127.0.0.1:$port" "$n" "$words" "$tokens"
    done
    kill -TERM "$pid"
    wait_for "$pid" 30 || die "the server left with exit status $?"
    trap 'rm -rf "$work"' EXIT
}

case ${1:-} in
prepare | check | bench) "$@" ;;
*) sed -n '3,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
