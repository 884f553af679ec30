# SPDX-License-Identifier: Apache-2.0
"""A penstock-runtime process on free ports, for tests."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get("PENSTOCK_CACHE") or os.path.expanduser("~/.cache/penstock"))
SMOLLM2 = CACHE / "models/smollm2-135m-instruct-q4_1.gguf"
GEMMA3 = CACHE / "models/gemma-3-270m-q4_k_m.gguf"
BINARY = pathlib.Path(os.environ.get("PENSTOCK_BUILD") or ROOT / "build/release") / "runtime/penstock-runtime"
# the runtime refuses PENSTOCK_ variables it does not know, such as the tests' own
ENV = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}


def command(*args, timeout=120):
    """penstock-runtime with these arguments, to its end."""
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=ENV)


class Server:
    """with Server("--max-num-seqs", "4") as s: s.post("/v1/completions", {...})"""

    def __init__(self, *args, model=SMOLLM2, wait="ready", env=None, name="chat"):
        self.args = ["serve", "--model", str(model), "--port", "0", "--metrics-port", "0",
                     "--served-model-name", name, "--drain-grace", "0s", *map(str, args)]
        self.wait = wait
        self.env = {**ENV, **(env or {})}
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")

    def __enter__(self):
        self.process = subprocess.Popen([BINARY, *self.args], stderr=self.log, env=self.env)
        if self.wait:
            self.port, self.metrics_port = self.await_log("listening", "port", "metrics_port")
        if self.wait == "ready":
            self.await_log("ready", "seconds", timeout=120)
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            # a leak or a race that a sanitizer saw shows here
            assert status == 0, pathlib.Path(self.log.name).read_text()[-8000:]

    def lines(self):
        return [json.loads(line) for line in pathlib.Path(self.log.name).read_text().splitlines()
                if line.startswith("{") and line.endswith("}")]

    def await_log(self, message, *fields, timeout=30):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for line in self.lines():
                if line["msg"] == message:
                    return [line[f] for f in fields]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no '{message}' in the log:\n{pathlib.Path(self.log.name).read_text()}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None, port=None):
        """(status, headers, body bytes) over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        default = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body=body, headers={**default, **(headers or {})})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), data

    def post(self, path, body, **kwargs):
        status, headers, data = self.request("POST", path, body, **kwargs)
        return status, json.loads(data)

    def health(self, path):
        status, _, data = self.request("GET", path, port=self.metrics_port)
        return status, data.decode()

    def metrics(self):
        """{name: sum over series} of all samples."""
        values = {}
        for line in self.health("/metrics")[1].splitlines():
            match = re.match(r"([a-zA-Z_:]+)(\{.*\})? (\S+)$", line)
            if match:
                values[match[1]] = values.get(match[1], 0) + float(match[3])
        return values

    def await_idle(self, timeout=20):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            m = self.metrics()
            if m["penstock_queue_length"] == m["penstock_requests_running"] == m["penstock_kv_blocks_used"] == 0:
                return m
            time.sleep(0.05)
        raise AssertionError(f"not idle: {m}")
