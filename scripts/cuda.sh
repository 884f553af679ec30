#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Finds a CUDA toolkit to compile with and prints its folder (bin/nvcc, include/, the libraries): a
# system's, when its nvcc is 13 or later; else one made of NVIDIA's Python wheels in the cache, once
# a version of the list below.  No GPU and no driver are needed.
#   scripts/cuda.sh          the toolkit
#   scripts/cuda.sh blas     a folder with libcublasLt.so.13 and its licence: nothing is compiled or
#                            linked with it, the image for GPUs carries it
set -eu

# nvcc, crt and nvvm are one compiler and carry one version; the rest is of the same release.
compiler=13.0.88
wheels="nvidia-cuda-nvcc==$compiler nvidia-cuda-crt==$compiler nvidia-nvvm==$compiler
nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-nvml-dev==13.0.87 nvidia-nccl-cu13==2.32.3"
cache=${PENSTOCK_CACHE:-$HOME/.cache/penstock}
toolkit=$cache/cuda-$compiler-$(echo "$wheels" | sha256sum | cut -c1-8)

say() { echo "cuda.sh: $*" >&2; }

# NVCC: the major version that it says it is
major_of() {
    "$1" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p'
}

blas=13.0.2.14
if [ "${1:-}" = blas ]; then
    folder=$cache/cublas-$blas
    if [ ! -d "$folder" ]; then
        say "getting cuBLAS $blas, about 420 MB"
        mkdir -p "$cache"
        work=$(mktemp -d "$cache/cublas-new.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        python3 -m venv --without-pip "$work/venv"
        python3 -m pip --python "$work/venv/bin/python" install --quiet --disable-pip-version-check --no-deps \
            "nvidia-cublas==$blas" >&2
        mkdir "$work/blas"
        mv "$work"/venv/lib/python3*/site-packages/nvidia/cu13/lib/libcublasLt.so.13 "$work/blas/"
        cp "$work"/venv/lib/python3*/site-packages/nvidia_cublas-*.dist-info/licenses/License.txt "$work/blas/"
        mv -T "$work/blas" "$folder" 2>/dev/null || [ -d "$folder" ]
    fi
    echo "$folder"
    exit 0
fi
if system=$(command -v nvcc) && [ "$(major_of "$system")" -ge 13 ]; then
    system=$(readlink -f "$system")
    echo "${system%/bin/nvcc}"
    exit 0
fi
if [ -x "$toolkit/bin/nvcc" ]; then
    echo "$toolkit"
    exit 0
fi

say "getting the CUDA $compiler compiler, about 200 MB"
mkdir -p "$cache"
work=$(mktemp -d "$cache/cuda-new.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv --without-pip "$work/venv"
# shellcheck disable=SC2086  # a list of words
python3 -m pip --python "$work/venv/bin/python" install --quiet --disable-pip-version-check $wheels >&2
site=$(echo "$work"/venv/lib/python3*/site-packages)
mv "$site/nvidia/cu13" "$work/toolkit"
mv "$site/nvidia/nccl" "$work/toolkit/nccl"
mkdir "$work/toolkit/licences"
for wheel in "$site"/nvidia_*.dist-info; do
    [ ! -d "$wheel/licenses" ] || cp -r "$wheel/licenses" "$work/toolkit/licences/$(basename "$wheel" .dist-info)"
done
"$work/toolkit/bin/nvcc" --version >/dev/null
# Appears whole or not at all; whoever was faster has made the same.
mv -T "$work/toolkit" "$toolkit" 2>/dev/null || [ -x "$toolkit/bin/nvcc" ]
echo "$toolkit"
