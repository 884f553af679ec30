#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Names and installs the Debian 12 packages that a purpose needs; quiet when all are there.
#   scripts/setup.sh build|cuda|test|cluster ...
set -eu

build="gcc cmake ninja-build pkg-config libmicrohttpd-dev libcurl4-openssl-dev libcjson-dev libyaml-dev
libssl-dev libgnutls28-dev libpcre2-dev
libcmocka-dev ca-certificates"
cuda="g++ python3-venv python3-pip"
test="libcmocka-dev ccache clang-14 clang-format-14 libclang-rt-14-dev llvm-14 shellcheck python3-venv python3-pip
prometheus git"
cluster="containerd runc containernetworking-plugins iptables conntrack iproute2 ethtool socat
busybox-static python3-venv python3-pip procps openssl curl"

wanted=
for purpose in "$@"; do
    case $purpose in
    build) wanted="$wanted $build" ;;
    cuda) wanted="$wanted $cuda" ;;
    test) wanted="$wanted $test" ;;
    cluster) wanted="$wanted $cluster" ;;
    *) echo "setup.sh: unknown purpose '$purpose'" >&2; exit 2 ;;
    esac
done

missing=
for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing Debian packages:$missing"
if [ "$(id -u)" != 0 ]; then
    echo "setup.sh: run this as root, or install them yourself: apt-get install$missing" >&2
    exit 1
fi
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
