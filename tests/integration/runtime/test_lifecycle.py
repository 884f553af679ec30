# SPDX-License-Identifier: Apache-2.0
"""Starting, leaving, and what is said meanwhile."""

import http.client
import json
import signal
import threading
import time

from server import SMOLLM2, Server, command

LONG = {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 300, "ignore_eos": True,
        "stream": True}


def start_stream(server, results, body=None):
    def read():
        status, _, data = server.request("POST", "/v1/chat/completions", {**LONG, **(body or {})})
        results.append((status, data.decode()))
    thread = threading.Thread(target=read)
    thread.start()
    return thread


def await_running(server, n):
    deadline = time.monotonic() + 10
    while server.metrics()["penstock_requests_running"] < n:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_sigterm_lets_streams_end():
    results = []
    with Server("--drain-grace", "2s", "--drain-timeout", "60s") as s:
        thread = start_stream(s, results)
        await_running(s, 1)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert s.health("/readyz") == (503, "draining")
        assert s.health("/livez")[0] == 200
        # in the grace, requests are still taken, on a connection that closes
        connection = http.client.HTTPConnection("127.0.0.1", s.port)
        connection.request("POST", "/v1/chat/completions",
                           json.dumps({"messages": LONG["messages"], "max_tokens": 1}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.getheader("Connection") == "close"
        thread.join(60)
        assert s.process.wait(10) == 0
    assert results[0][0] == 200 and results[0][1].endswith("data: [DONE]\n\n")
    assert '"finish_reason":"length"' in results[0][1]


def test_after_the_grace_requests_are_refused_and_the_timeout_ends_streams():
    results = []
    with Server("--drain-grace", "0s", "--drain-timeout", "1s") as s:
        thread = start_stream(s, results, {"max_tokens": 4000})
        await_running(s, 1)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        status, headers, data = s.request("POST", "/v1/chat/completions", LONG)
        assert status == 503 and headers["Retry-After"] and json.loads(data)["error"]["code"] == "draining"
        thread.join(30)
        assert s.process.wait(10) == 0
    events = results[0][1].strip().split("\n\n")
    assert events[-1] == "data: [DONE]" and json.loads(events[-2][6:])["error"]["code"] == "canceled"


def test_second_signal_ends_at_once():
    with Server("--drain-grace", "30s") as s:
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(2) == 1


def test_sigterm_while_clients_keep_coming():
    def hammer(server):
        while server.process.poll() is None:
            try:
                server.request("POST", "/v1/chat/completions", {**LONG, "max_tokens": 5})
            except (OSError, http.client.HTTPException):
                pass
    for _ in range(4):
        with Server("--drain-timeout", "0s") as s:
            threads = [threading.Thread(target=hammer, args=(s,)) for _ in range(20)]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(20) == 0
            for thread in threads:
                thread.join()


def test_a_client_that_leaves_frees_its_place():
    with Server("--max-num-seqs", 2) as s:
        for stream in (True, False):
            for _ in range(5):
                connection = http.client.HTTPConnection("127.0.0.1", s.port)
                connection.request("POST", "/v1/chat/completions",
                                   json.dumps({**LONG, "max_tokens": 4000, "stream": stream}),
                                   {"Content-Type": "application/json"})
                await_running(s, 1)
                connection.close()
                metrics = s.await_idle(timeout=10)
        assert metrics["penstock_requests_finished_total"] == 10


def test_wrong_options_name_the_remedy():
    for args, words in [
        (["--model"], "--model needs a value"),
        (["--prot", "80"], "did you mean 'port'"),
        ([], "--model is missing"),
        (["--model", "x", "--max-num-seqs", "0"], "--max-num-seqs: 0 is not in 1..1024"),
        (["--model", "x", "--max-num-seqs", "64", "--max-num-batched-tokens", "32"], "below --max-num-seqs"),
    ]:
        done = command("serve", *args)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_model_that_cannot_be_served_says_why(tmp_path):
    short = tmp_path / "short.gguf"
    short.write_bytes(SMOLLM2.read_bytes()[:1_000_000])
    for model, words in [("/nowhere/x.gguf", "No such file"), (short, "short.gguf"), ("ftp://a/b", "hf://")]:
        with Server(model=model, wait=None) as s:
            assert s.process.wait(20) == 1
            assert words in s.lines()[-1]["error"]
            assert s.lines()[-1]["msg"] == "bye" or s.lines()[-1]["level"] == "error"


def test_memory_too_small_names_the_option():
    with Server("--kv-cache-memory", "2MiB", "--max-model-len", "4096", wait=None) as s:
        assert s.process.wait(60) == 1
        assert "--kv-cache-memory" in s.lines()[-1]["error"]


def test_help_and_config(tmp_path):
    out = command("serve", "--help").stdout
    assert "--max-num-seqs" in out and "PENSTOCK_LOG_LEVEL" in out
    printed = command("serve", "--model", "m", "--port", "1234", "--print-config").stdout
    config = tmp_path / "c.yaml"
    config.write_text(printed)
    again = command("serve", "--config", config, "--print-config").stdout
    assert "port: 1234" in again and again.replace(f'config: "{config}"\n', "# config is not set\n") == printed


def test_bench_serve():
    with Server() as s:
        done = command("bench", "serve", "--url", s.url, "--num-prompts", 12, "--concurrency", 4, "--input-len", 16,
                       "--output-len", 8, "-o", "json")
        report = json.loads(done.stdout)
        assert done.returncode == 0 and report["completed"] == 12 and report["failed"] == 0
        assert report["output_tokens"] == 96 and report["prompt_tokens"] > 12 * 16
        assert 0 < report["ttft_ms"]["p50"] <= report["ttft_ms"]["p99"] <= report["e2e_ms"]["p99"]
        table = command("bench", "serve", "--url", s.url, "--num-prompts", 6, "--request-rate", 20,
                        "--endpoint", "completions", "--output-len", 4)
        assert table.returncode == 0 and "time to first token" in table.stdout
    done = command("bench", "serve", "--url", s.url)
    assert done.returncode == 1 and "127.0.0.1" in done.stderr
