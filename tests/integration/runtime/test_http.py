# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a 4xx that names the field; the server lives; nothing leaks."""

import json
import socket
import time

import pytest

from server import Server

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def with_fields(**fields):
    return {**CHAT, **fields}


BAD = [
    ({"messages": []}, "messages"), ({}, "messages"), ({"messages": "hi"}, "messages"),
    ({"messages": [1]}, "messages"), ({"messages": [{"role": "king", "content": "x"}]}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    (with_fields(temperature=-1), "temperature"), (with_fields(temperature="hot"), "temperature"),
    (with_fields(top_p=0), "top_p"), (with_fields(top_p=1.5), "top_p"), (with_fields(min_p=2), "min_p"),
    (with_fields(top_k=-2), "top_k"), (with_fields(top_k=1.5), "top_k"),
    (with_fields(seed=1.5), "seed"), (with_fields(seed=1e300), "seed"),
    (with_fields(max_tokens=0), "max_tokens"), (with_fields(max_tokens=-1), "max_tokens"),
    (with_fields(max_tokens=2**63), "max_tokens"), (with_fields(max_tokens=1.5), "max_tokens"),
    (with_fields(max_tokens="many"), "max_tokens"), (with_fields(max_tokens=10**6), "max_tokens"),
    (with_fields(max_completion_tokens=0), "max_completion_tokens"),
    (with_fields(stop=[""]), "stop"), (with_fields(stop=[5]), "stop"), (with_fields(stop=["x"] * 17), "stop"),
    (with_fields(stop="x" * 2000), "stop"),
    (with_fields(n=2), "n"), (with_fields(n=10**9), "n"), (with_fields(best_of=3), "best_of"),
    (with_fields(logprobs=True), "logprobs"), (with_fields(top_logprobs=5), "top_logprobs"),
    (with_fields(tools=[{"type": "function"}]), "tools"), (with_fields(logit_bias={"5": 1}), "logit_bias"),
    (with_fields(presence_penalty=1), "presence_penalty"),
    (with_fields(response_format={"type": "json_object"}), "response_format"),
    (with_fields(stream="yes"), "stream"), (with_fields(stream_options={}), "stream_options"),
    (with_fields(stream=True, stream_options=5), "stream_options"),
    (with_fields(stream=True, stream_options={"include_usage": 1}), "stream_options.include_usage"),
    (with_fields(model=5), "model"), (with_fields(ignore_eos=1), "ignore_eos"),
]


@pytest.mark.parametrize("body,param", BAD, ids=[f"{p}-{i}" for i, (_, p) in enumerate(BAD)])
def test_bad_fields_are_named(chat, body, param):
    status, answer = chat.post("/v1/chat/completions", body)
    assert status == 400, answer
    assert answer["error"]["param"] == param
    assert answer["error"]["type"] == "invalid_request_error"
    assert param.split(".")[-1] in answer["error"]["message"] or "max_tokens" in answer["error"]["message"]


@pytest.mark.parametrize("prompt", ["", [], [[]], ["a", "b"], [-1], [10**9], [1.5], 5, {}, [None], [["a"]]])
def test_bad_prompts(chat, prompt):
    status, answer = chat.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    assert status == 400 and answer["error"]["param"] == "prompt", answer


NULLS = ["model", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream", "stream_options", "n",
         "logprobs", "tools", "response_format", "logit_bias", "user", "max_completion_tokens"]


def test_null_is_absent_and_unknown_is_ignored(chat):
    status, answer = chat.post("/v1/chat/completions",
                               with_fields(**{n: None for n in NULLS}, metadata={"a": 1}, nonsense=[{}]))
    assert status == 200, answer


def test_of_a_repeated_key_the_last_counts(chat):
    body = (b'{"max_tokens": 1, "messages": [{"role": "developer", "role": "developer", "content": "a",'
            b' "content": [{"type": "text", "text": "hello"}]}]}')
    status, _, data = chat.request("POST", "/v1/chat/completions", body)
    plain = {"max_tokens": 1, "messages": [{"role": "system", "content": "hello"}]}
    assert status == 200, data
    assert json.loads(data)["usage"] == chat.post("/v1/chat/completions", plain)[1]["usage"]


BODIES = [b"", b"{", b"[]", b"null", b'"x"', b"\xb0\xa1", b'{"messages": "\xff"}', b'{"a": 1e999}',
          b'{"a": NaN}', b"[" * 100000, b'{"a":' * 5000, b"\xef\xbb\xbf{}", b'{"a": "\\ud800"}',
          b'{"messages": [{"role": "user", "content": "\\u0000"}]}', b"{}\x00"]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_bodies_that_are_no_json_object(chat, body):
    status, _, data = chat.request("POST", "/v1/chat/completions", body)
    assert status == 400
    assert json.loads(data)["error"]["message"]


def test_paths_methods_and_types(chat):
    def status(*args, **kwargs):
        return chat.request(*args, **kwargs)[0]
    assert status("GET", "/nope") == 404
    assert status("POST", "/v1/chat/completions/", "{}") == 404
    assert status("GET", "/v1/models") == 200 and status("HEAD", "/v1/models") == 200
    code, headers, _ = chat.request("GET", "/v1/chat/completions")
    assert code == 405 and headers["Allow"] == "POST"
    code, headers, _ = chat.request("POST", "/v1/models", "{}")
    assert code == 405 and headers["Allow"] == "GET, HEAD"
    assert status("POST", "/v1/completions", "x", headers={"Content-Type": "text/plain"}) == 415
    assert status("POST", "/v1/completions", "x", headers={"Content-Encoding": "gzip"}) == 415
    assert status("POST", "/v1/completions", b"x" * (9 << 20)) == 413


def test_health_on_both_ports(chat):
    for port in (chat.port, chat.metrics_port):
        for path in ("/livez", "/readyz", "/healthz", "/metrics"):
            assert chat.request("GET", path, port=port)[0] == 200, path
    status, text = chat.health("/startupz")
    assert status == 200 and json.loads(text)["phase"] == "ready" and json.loads(text)["percent"] == 100


def test_api_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("key-one\nkey-two\n")
    with Server("--api-key-file", keys, "--api-key", "key-three") as s:
        def status(key, path="/v1/models"):
            return s.request("GET", path, headers={"Authorization": key} if key else {})[0]
        assert [status(f"Bearer {k}") for k in ("key-one", "key-two", "key-three")] == [200] * 3
        assert [status(k) for k in (None, "Bearer wrong", "Bearer ", "key-one", "Basic key-one")] == [401] * 5
        assert status(None, "/readyz") == 200
        log = "\n".join(str(line) for line in s.lines())
        assert "key-" not in log


def test_a_full_queue_is_429_with_retry_after():
    body = with_fields(max_tokens=200, ignore_eos=True)
    with Server("--max-num-seqs", 1, "--max-queue-requests", 2) as s:
        sockets = []
        for _ in range(3):
            sock = socket.create_connection(("127.0.0.1", s.port))
            data = json.dumps({**body, "stream": True}).encode()
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(data) + data)
            sockets.append(sock)
            time.sleep(0.2)
        assert s.metrics()["penstock_queue_length"] == 2
        start = time.monotonic()
        status, headers, data = s.request("POST", "/v1/chat/completions", body)
        assert status == 429 and time.monotonic() - start < 0.5
        assert int(headers["Retry-After"]) >= 1 and int(headers["retry-after-ms"]) > 0
        assert json.loads(data)["error"]["code"] == "queue_full"
        for sock in sockets:
            sock.close()
        metrics = s.await_idle(timeout=10)
        assert metrics["penstock_admission_rejected_total"] == 1


def test_requests_that_wait_hold_no_bodies():
    body = json.dumps(with_fields(max_tokens=900, ignore_eos=True, stream=True, junk=[1] * 200000)).encode()
    # a sanitizer's quarantine is not the server's memory
    with Server("--max-num-seqs", 1, "--max-model-len", 1024, env={"ASAN_OPTIONS": "quarantine_size_mb=1"}) as s:
        before = s.metrics()["process_resident_memory_bytes"]
        sockets = []
        for i in range(12):
            sock = socket.create_connection(("127.0.0.1", s.port))
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(body) + body)
            sockets.append(sock)
            time.sleep(0.2)
        metrics = s.metrics()
        assert metrics["penstock_queue_length"] >= 10
        for sock in sockets:
            sock.close()
        # one body as parsed has 16 MB
        assert metrics["process_resident_memory_bytes"] - before < 150e6


def test_metrics_are_well_formed(chat):
    from prometheus_client.parser import text_string_to_metric_families
    chat.post("/v1/chat/completions", CHAT)
    _, headers, data = chat.request("GET", "/metrics", port=chat.metrics_port)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {f.name for f in text_string_to_metric_families(data.decode())}
    assert {"penstock_queue_length", "penstock_requests_running", "penstock_kv_cache_usage_ratio", "penstock_tokens",
            "penstock_time_to_first_token_seconds", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
            "openllm_requests", "process_cpu_seconds", "process_resident_memory_bytes"} <= names


def test_client_strings_make_no_series(chat):
    def n_lines():
        return len(chat.health("/metrics")[1].splitlines())
    chat.request("GET", "/warm")
    before = n_lines()
    for i in range(50):
        chat.request("GET", f"/path-{i}")
        chat.post("/v1/chat/completions", with_fields(model=f"m{i}"))
    assert n_lines() == before


def test_slow_clients_harm_nobody():
    with Server("--max-connections", 400) as s:
        slow = []
        for _ in range(300):
            sock = socket.create_connection(("127.0.0.1", s.port))
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-")
            slow.append(sock)
        start = time.monotonic()
        assert s.health("/livez")[0] == 200
        assert time.monotonic() - start < 0.2
        assert s.post("/v1/chat/completions", CHAT)[0] == 200
        deadline = time.monotonic() + 20  # the header deadline of 10 s ends them
        while slow and time.monotonic() < deadline:
            slow = [c for c in slow if not closed(c)]
            time.sleep(0.2)
        assert not slow


def closed(sock):
    sock.setblocking(False)
    try:
        return sock.recv(4096) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


