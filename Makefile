# SPDX-License-Identifier: Apache-2.0
# The few commands a person needs; each is a script that can be read.  What a target needs is named
# and installed first (root, Debian packages, PyPI, Go modules).

export PENSTOCK_CACHE ?= $(HOME)/.cache/penstock
BUILD := build/release

.PHONY: help build setup setup-cluster image demo demo-down test lint docs clean
.PHONY: check-reference bench-peer check-fuzz check-sanitizers check-cuda
.PHONY: prepare-nvidia check-nvidia bench-nvidia

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: ## name and install what building and testing needs
	scripts/setup.sh build test

setup-cluster:
	scripts/setup.sh build cluster

build: ## build both binaries into build/release
	scripts/setup.sh build
	cmake --preset release
	cmake --build $(BUILD)

image: build ## write image archives (build/images/*.tar) without Docker; CUDA=1: the one for GPUs too
ifdef CUDA
	scripts/setup.sh cuda
	cmake --preset cuda
	cmake --build build/cuda -t penstock-runtime
endif
	scripts/image.sh $(if $(CUDA),cuda)

demo: ## a real one-node Kubernetes, the chart, a model, load, replicas up and down (KEEP=1 keeps it)
	@scripts/demo.sh up

demo-down: ## remove what make demo KEEP=1 left
	@scripts/demo.sh down

test: ## the CI tier: everything that must pass before a change lands
	scripts/setup.sh build test cluster cuda
	python3 tests/run.py

lint: ## the lint tests alone
	scripts/setup.sh build test
	python3 tests/run.py lint

docs: build ## write docs/reference from the option and metric tables
	scripts/reference.sh

check-reference: build ## all prompts against the reference implementation's answers
	scripts/setup.sh test
	python3 tests/run.py reference-full

bench-peer: build ## speed against llama.cpp on this machine
	scripts/setup.sh test
	bench/peer.sh

check-sanitizers: ## the integration suites under the address and thread sanitizers
	scripts/setup.sh build test cluster
	python3 tests/run.py sanitizers

check-cuda: ## the CUDA backend, compiled by nvcc and run on the virtual GPU: the full form
	scripts/setup.sh build test cuda
	python3 tests/run.py gpu-full

prepare-nvidia: ## gather in build/nvidia what a machine with an NVIDIA GPU needs for the next two
	scripts/setup.sh build test cuda
	scripts/nvidia.sh prepare --models

check-nvidia: ## kernels and models on a real GPU, and the bandwidth they reach; needs build/nvidia only
	scripts/nvidia.sh check

bench-nvidia: ## the server under load on a real GPU; needs build/nvidia only
	scripts/nvidia.sh bench

check-fuzz: ## every fuzz target, 10 minutes each
	scripts/setup.sh build test
	FUZZ_SECONDS=600 python3 tests/run.py fuzz

clean:
	rm -rf build
