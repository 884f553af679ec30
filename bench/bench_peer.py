#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench-peer: prefill and decode beside llama.cpp, same machine, same minutes.

  bench/bench_peer.py ONE_BATCH_PROGRAM [--pairs 5] [--threads 2] [-o FILE.json]

Both run in turn, pair by pair, so that a change of the machine meets both; medians are compared.
Exits non-zero below half of the peer's prefill or decode on any model, and when our process needs
more memory than the model file, its KV cache and 150 MB.  bench/peer.sh prepares the peer.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import llama_cpp

CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE", pathlib.Path.home() / ".cache/penstock"))
MODELS = ["smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]
PROMPT, GENERATE = 512, 128
EXTRA_BYTES = 150 << 20


class Peer:
    def __init__(self, path, threads):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 1024
        params.n_batch = params.n_ubatch = PROMPT
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.prompt = (llama_cpp.llama_token * PROMPT)(*[(10 + i * 37) % vocabulary for i in range(PROMPT)])

    def decode(self, tokens, n):
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, n)) != 0:
            raise RuntimeError("the peer cannot decode")
        llama_cpp.llama_synchronize(self.context)

    def run(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        start = time.perf_counter()
        self.decode(self.prompt, PROMPT)
        middle = time.perf_counter()
        one = (llama_cpp.llama_token * 1)(10)
        for _ in range(GENERATE):
            self.decode(one, 1)
        return PROMPT / (middle - start), GENERATE / (time.perf_counter() - middle)


class Ours:
    def __init__(self, program, path, threads):
        self.process = subprocess.Popen(
            [program, str(path), "cpu", str(threads), str(PROMPT), str(GENERATE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return float(words[1]), float(words[3])

    def memory(self):
        """(peak bytes, bytes of its KV cache)"""
        out, _ = self.process.communicate()
        words = out.split()
        return int(words[1]) << 10, int(words[3]) << 10


def bench(program, path, pairs, threads):
    ours, peer = Ours(program, path, threads), Peer(path, threads)
    ours.run(), peer.run()
    rows = []
    for i in range(pairs):
        pair = (ours.run, peer.run) if i % 2 == 0 else (peer.run, ours.run)
        results = []
        for run in pair:
            time.sleep(0.3)
            results.append(run())
        rows.append(results if i % 2 == 0 else results[::-1])
        print(f"  pair {i + 1}: ours {rows[-1][0][0]:8.1f} {rows[-1][0][1]:7.1f}   "
              f"peer {rows[-1][1][0]:8.1f} {rows[-1][1][1]:7.1f}   prefill, decode tokens/s", flush=True)
    peak, kv = ours.memory()
    return {
        "model": path.name,
        "ours": [statistics.median(row[0][i] for row in rows) for i in range(2)],
        "peer": [statistics.median(row[1][i] for row in rows) for i in range(2)],
        "peak_bytes": peak,
        "allowed_bytes": path.stat().st_size + kv + EXTRA_BYTES,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    results = []
    failed = False
    for name in MODELS:
        print(f"{name}, {args.threads} threads, prompt {PROMPT}, generate {GENERATE}:", flush=True)
        result = bench(args.program, CACHE / "models" / name, args.pairs, args.threads)
        results.append(result)
        for i, what in enumerate(("prefill", "decode")):
            ratio = result["ours"][i] / result["peer"][i]
            failed |= ratio < 0.5
            print(f"  {what}: median {result['ours'][i]:.1f}, peer {result['peer'][i]:.1f}, ratio {ratio:.2f} (want >= 0.5)")
        failed |= result["peak_bytes"] > result["allowed_bytes"]
        print(f"  memory: {result['peak_bytes'] >> 20} MiB, allowed {result['allowed_bytes'] >> 20} MiB")
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
