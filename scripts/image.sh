#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs both binaries, each with the libraries it needs, into image archives without Docker:
#   scripts/image.sh         build/images/penstock-operator.tar   penstock-runtime.tar
#   scripts/image.sh cuda    the same, and penstock-runtime-cuda.tar from build/cuda: it has NCCL and
#                            cuBLASLt too, and NVIDIA's licences of what is in it
# For 'kind load image-archive', 'ctr -n k8s.io images import', 'docker load' or a push by skopeo.
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(penstock VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
build=${PENSTOCK_BUILD:-build/release}
cuda_build=${PENSTOCK_CUDA_BUILD:-build/cuda}
mkdir -p build/images

# NVIDIA's container runtime brings the driver's libraries and tells the loader, except where it
# only mounts them: the folders of distributions with lib64, and of GKE.
pack_cuda() {
    local toolkit blas doc=/usr/share/doc licence
    toolkit=$(scripts/cuda.sh)
    blas=$(scripts/cuda.sh blas)
    set -- --file "$blas/License.txt:$doc/nvidia_cublas/License.txt"
    for licence in "$toolkit"/licences/nvidia_nccl_* "$toolkit"/licences/nvidia_cuda_runtime-*; do
        set -- "$@" --file "$licence/License.txt:$doc/$(basename "$licence")/License.txt"
    done
    python3 scripts/image.py build/images/penstock-runtime-cuda.tar \
        --tag "ghcr.io/penstock/runtime:$version-cuda" \
        --binary "$cuda_build/runtime/penstock-runtime" \
        --library "$toolkit/nccl/lib/libnccl.so.2" --library "$blas/libcublasLt.so.13" "$@" \
        --env LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64
}

case ${1:-} in
"" | cuda) ;;
*) echo "image.sh: unknown image '$1'" >&2; exit 2 ;;
esac
for name in operator runtime; do
    python3 scripts/image.py "build/images/penstock-$name.tar" \
        --tag "ghcr.io/penstock/$name:$version" \
        --binary "$build/$name/penstock-$name"
done
[ -z "${1:-}" ] || pack_cuda
