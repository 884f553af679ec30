# SPDX-License-Identifier: Apache-2.0
# The images of both binaries, for those who have Docker; scripts/image.sh makes the same without.
#   docker build --target operator -t ghcr.io/penstock/operator:0.1.0 .
#   docker build --target runtime -t ghcr.io/penstock/runtime:0.1.0 .
#   docker build --target runtime-cuda -t ghcr.io/penstock/runtime:0.1.0-cuda .
FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/setup.sh scripts/setup.sh
RUN scripts/setup.sh build
COPY . .
RUN cmake --preset release \
    && cmake --build build/release -t penstock-operator -t penstock-runtime

FROM debian:12-slim AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libcjson1 libcurl4 libgnutls30 \
        libmicrohttpd12 libpcre2-8-0 libssl3 libyaml-0-2 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd -g 65532 penstock \
    && useradd -u 65532 -g 65532 -d / -s /usr/sbin/nologin penstock
USER 65532:65532
WORKDIR /tmp

FROM base AS operator
COPY --from=build /src/build/release/operator/penstock-operator /usr/bin/
ENTRYPOINT ["/usr/bin/penstock-operator"]

FROM base AS runtime
COPY --from=build /src/build/release/runtime/penstock-runtime /usr/bin/
ENTRYPOINT ["/usr/bin/penstock-runtime"]

FROM build AS build-cuda
RUN scripts/setup.sh cuda \
    && cmake --preset cuda && cmake --build build/cuda -t penstock-runtime \
    && toolkit=$(scripts/cuda.sh) && blas=$(scripts/cuda.sh blas) \
    && mkdir -p /nvidia/lib /nvidia/doc/nvidia_cublas \
    && cp "$toolkit/nccl/lib/libnccl.so.2" "$blas/libcublasLt.so.13" /nvidia/lib/ \
    && cp "$blas/License.txt" /nvidia/doc/nvidia_cublas/ \
    && cp -r "$toolkit"/licences/nvidia_nccl_* "$toolkit"/licences/nvidia_cuda_runtime-* /nvidia/doc/

FROM base AS runtime-cuda
COPY --from=build-cuda /nvidia/lib/ /usr/local/lib/
COPY --from=build-cuda /nvidia/doc/ /usr/share/doc/
COPY --from=build-cuda /src/build/cuda/runtime/penstock-runtime /usr/bin/
# as scripts/image.sh says, and where NCCL is
ENV LD_LIBRARY_PATH=/usr/local/lib:/usr/local/nvidia/lib64:/usr/lib64
ENTRYPOINT ["/usr/bin/penstock-runtime"]
