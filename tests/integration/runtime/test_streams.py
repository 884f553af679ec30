# SPDX-License-Identifier: Apache-2.0
"""Real models: a stream's tokens are its own, whoever it is computed with."""

import concurrent.futures
import json

import pytest

from server import GEMMA3, SMOLLM2, Server

N, TOKENS = 16, 48


def body(i):
    """Prompts of 10 to 250 words; even ones greedy, odd ones sampled with a seed."""
    words = ["river", "gate", "stone", "mill", "light", "water"]
    text = " ".join(words[(i * j + j) % len(words)] for j in range(10 + 16 * i))
    return {"prompt": f"{i}: {text}", "max_tokens": TOKENS, "ignore_eos": True, "temperature": i % 2,
            "top_p": 0.9, "seed": i, "stream": True}


def stream(server, i):
    status, _, data = server.request("POST", "/v1/completions", body(i))
    assert status == 200, data
    events = [line[6:] for line in data.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(e) for e in events[:-1]]
    return "".join(c["choices"][0]["text"] for c in chunks)


def together(server):
    with concurrent.futures.ThreadPoolExecutor(N) as pool:
        return list(pool.map(lambda i: stream(server, i), range(N)))


@pytest.mark.parametrize("model", [SMOLLM2, GEMMA3], ids=["smollm2", "gemma3"])
def test_sixteen_streams_equal_each_alone(model):
    with Server("--max-num-batched-tokens", 128, model=model) as server:
        alone = [stream(server, i) for i in range(N)]
        assert together(server) == alone
        assert server.metrics()["penstock_preemptions_total"] == 0
        server.await_idle()
    with Server("--max-num-batched-tokens", 128, "--max-model-len", 512, *small_cache(model),
                model=model) as server:
        assert together(server) == alone
        assert server.metrics()["penstock_preemptions_total"] > 0
        server.await_idle()


def small_cache(model):
    """Room for about two of the sixteen."""
    return ["--kv-cache-memory", "28MiB" if model == SMOLLM2 else "18MiB"]


def test_the_number_of_threads_changes_nothing():
    with Server("--threads", 1) as one, Server("--threads", 2) as two:
        assert [stream(one, i) for i in (3, 8)] == [stream(two, i) for i in (3, 8)]
