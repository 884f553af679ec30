#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/gpu.md: what a decode step of Llama-3.1-8B must read and compute, and how
long each GPU needs for it at least. No figure here is measured.

A kernel class takes max(bytes / memory bandwidth, flops / rate of the unit it uses); classes run one
after another, so a step takes their sum. Peaks are those of the data sheets, dense; what kernels
reach of them is for a GPU to tell.
"""

from dataclasses import dataclass

# Llama-3.1-8B: config.json of the model
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 32, 4096, 32, 8, 128, 14336, 128256
CONTEXT = 1024               # tokens that each sequence of a batch attends to
BATCHES = (1, 32, 256)
FLOAT, KV = 4, 2             # bytes: activations are float32, keys and values float16
# Bits a weight as kernels/cuda/packed.cuh keeps them; Q4_K's 6-bit scales are spread to 8.
BITS = {"bf16": 16, "q8_0": 8.5, "q4_k": 4.625}
GEMV_ROWS = 8                # up to so many rows products are made by float32 units (gemv.cu)
STREAM_FLOPS = 10            # a value of norms, gates, rotation: their essays say "under 10"


@dataclass
class Gpu:
    name: str
    bandwidth: float         # bytes/s
    rates: dict              # flops/s of float32, tf32 and float16 units


GPUS = (Gpu("A100 SXM 80 GB", 2.039e12, {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12}),
        Gpu("H100 SXM 80 GB", 3.35e12, {"fp32": 67e12, "tf32": 494.7e12, "fp16": 989.4e12}),
        Gpu("H200 141 GB", 4.8e12, {"fp32": 67e12, "tf32": 494.7e12, "fp16": 989.4e12}))


@dataclass
class Work:
    """A kernel class in one step: bytes once a step, bytes and flops a token."""
    name: str
    shared: float
    token: float
    flops: float
    unit: str                # "product": float32 or tensor cores, by the number of rows

    def bytes_a_token(self, batch):
        return self.shared / batch + self.token

    def seconds(self, gpu, batch):
        """(time, what limits it)"""
        unit = self.unit if self.unit != "product" else "fp32" if batch <= GEMV_ROWS else "tf32"
        memory = batch * self.bytes_a_token(batch) / gpu.bandwidth
        compute = batch * self.flops / gpu.rates[unit]
        return (memory, "memory") if memory >= compute else (compute, unit)


def products(name, shapes, bits):
    """Matrices of (inputs, outputs): weights once, activations in and out for each token."""
    weights = sum(i * o for i, o in shapes)
    return Work(name, weights * bits / 8, FLOAT * sum(i + o for i, o in shapes), 2 * weights, "product")


def layer_shapes():
    query, keys = HEADS * HEAD, KV_HEADS * HEAD
    return LAYERS * [(WIDTH, query + 2 * keys), (query, WIDTH), (WIDTH, 2 * FFN), (FFN, WIDTH)]


def matrices(kind):
    return [products(f"layers' matrices, {kind}", layer_shapes(), BITS[kind]),
            products(f"output matrix, {kind}", [(WIDTH, VOCAB)], BITS[kind])]


def others():
    cache = 2 * LAYERS * KV_HEADS * HEAD * KV
    query = LAYERS * HEADS * HEAD
    turned = LAYERS * (HEADS + KV_HEADS) * HEAD
    values = (2 * LAYERS + 1) * WIDTH
    return [Work("attention", 0, CONTEXT * cache + 2 * FLOAT * query, 4 * query * CONTEXT, "fp16"),
            Work("rotation and cache write", 0, FLOAT * 2 * turned + cache, STREAM_FLOPS * turned, "fp32"),
            Work("norms", FLOAT * values, 3 * FLOAT * values, STREAM_FLOPS * values, "fp32"),
            Work("gates", 0, 3 * FLOAT * LAYERS * FFN, STREAM_FLOPS * LAYERS * FFN, "fp32"),
            Work("embedding", 0, WIDTH * (2 + FLOAT), WIDTH, "fp32"),
            Work("sampling, one pass", 0, FLOAT * VOCAB, STREAM_FLOPS * VOCAB, "fp32")]


def short(value):
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def all_works():
    return [w for kind in BITS for w in matrices(kind)] + others()


def work_table():
    head = ["kernel class", "flops a token"] + [f"bytes a token, batch {b}" for b in BATCHES] + \
           ["flops a byte, batch 256"]
    return table(head, [[w.name, short(w.flops)] + [short(w.bytes_a_token(b)) for b in BATCHES] +
                        [f"{w.flops / w.bytes_a_token(256):.3g}"] for w in all_works()])


def class_table(gpu):
    head = ["kernel class"] + [f"batch {b}: us" for b in BATCHES] + [f"limit, batch {b}" for b in BATCHES]
    rows = []
    for work in all_works():
        found = [work.seconds(gpu, b) for b in BATCHES]
        rows.append([work.name] + [f"{t * 1e6:,.3g}" if t < 1e-3 else f"{t * 1e6:,.0f}" for t, _ in found] +
                    [limit for _, limit in found])
    return table(head, rows)


def step_table():
    head = ["weights", "batch"] + [f"{g.name}: ms, tokens/s" for g in GPUS]
    rows = []
    for kind in BITS:
        for batch in BATCHES:
            steps = [sum(w.seconds(g, batch)[0] for w in matrices(kind) + others()) for g in GPUS]
            rows.append([kind, str(batch)] + [f"{s * 1e3:.2f}, {batch / s:,.0f}" for s in steps])
    return table(head, rows)


def main():
    print(f"Work of one decode step a token, every sequence {CONTEXT} tokens long:\n\n{work_table()}\n")
    print(f"The shortest possible step:\n\n{step_table()}\n")
    for gpu in GPUS:
        rates = ", ".join(f"{unit} {rate / 1e12:g}" for unit, rate in gpu.rates.items())
        print(f"{gpu.name} ({gpu.bandwidth / 1e12:g} TB/s; Tflop/s: {rates}), the least time of each class "
              f"in a step:\n\n{class_table(gpu)}\n")


if __name__ == "__main__":
    main()
