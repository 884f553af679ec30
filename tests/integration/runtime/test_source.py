# SPDX-License-Identifier: Apache-2.0
"""Downloads: resumed after a kill, checked, once, and honest when they fail."""

import hashlib
import http.server
import pathlib
import re
import signal
import socket
import threading
import time

import pytest

from server import SMOLLM2, Server

DATA = SMOLLM2.read_bytes()
SUM = hashlib.sha256(DATA).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """A file server with ranges and a hub's HEAD answer; 'slow' and 'cut_after' misbehave on demand."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.slow = 0.0       # seconds a MiB
        self.cut_after = None  # bytes of each answer
        self.status = None     # answer everything with this
        self.etag = '"v1"'
        self.sum = SUM
        self.token = None
        self.log = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def refused(self):
        hub = self.server
        status = hub.status
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            status = 401
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        return bool(status)

    def do_HEAD(self):
        self.server.log.append(("HEAD", self.path, None))
        if self.refused():
            return
        self.send_response(302)
        self.send_header("X-Linked-ETag", f'"{self.server.sum}"')
        self.send_header("Location", "/store")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        hub, wanted = self.server, self.headers.get("Range")
        hub.log.append(("GET", self.path, wanted))
        if self.refused():
            return
        if "/resolve/" in self.path:
            self.send_response(302)
            self.send_header("Location", "/store")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        if wanted and self.headers.get("If-Range") in (None, hub.etag):
            start = int(re.match(r"bytes=(\d+)-", wanted)[1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", hub.etag)
        self.send_header("Content-Length", str(len(DATA) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        self.end_headers()
        self.send_body(start)

    def send_body(self, start):
        hub, sent = self.server, 0
        while start + sent < len(DATA):
            if hub.cut_after and sent >= hub.cut_after:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            piece = DATA[start + sent:start + sent + (1 << 20)]
            try:
                self.wfile.write(piece)
            except OSError:
                return
            sent += len(piece)
            time.sleep(hub.slow)


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.shutdown()


def serve(hub, cache, *args, source="hf://org/repo/file.gguf", env=None, **kwargs):
    return Server("--cache-dir", cache, "--allow-private-sources", *args, model=source,
                  env={"HF_ENDPOINT": hub.url, **(env or {})}, **kwargs)


def gets(hub):
    return [r for m, p, r in hub.log if m == "GET" and p == "/store" or m == "GET" and p.endswith("x.gguf")]


def test_hub_download_is_checked_and_kept(hub, tmp_path):
    with serve(hub, tmp_path) as s:
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        percents = [line["percent"] for line in s.lines() if line["msg"] == "downloading"]
        assert percents == sorted(percents) and len(percents) >= 9
    files = [p.name for p in tmp_path.iterdir()]
    assert any(n.endswith("-file.gguf") for n in files) and not any(".part" in n for n in files)
    n = len(hub.log)
    with serve(hub, tmp_path):
        assert len(hub.log) == n  # nothing is asked for again


def test_resumed_after_a_kill(hub, tmp_path):
    hub.slow = 0.02
    with serve(hub, tmp_path, wait="listening") as s:
        deadline = time.monotonic() + 20
        while not any(p.stat().st_size > 20 << 20 for p in tmp_path.glob("*.part")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        status, text = s.health("/startupz")
        assert status == 503 and '"phase":"downloading"' in text
        assert s.health("/readyz")[0] == 503
        assert s.post("/v1/completions", {"prompt": "a"})[0] == 503
        assert "penstock_queue_length" not in s.metrics()  # a loading pod is not an idle one
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
    hub.slow = 0
    with serve(hub, tmp_path):
        pass
    assert int(gets(hub)[-1].split("=")[1][:-1]) > 10 << 20
    assert next(tmp_path.glob("*.gguf")).read_bytes() == DATA


def test_another_version_is_not_mixed_in(hub, tmp_path):
    hub.slow = 0.02
    with serve(hub, tmp_path, wait="listening") as s:
        while not any(p.stat().st_size > 5 << 20 for p in tmp_path.glob("*.part")):
            time.sleep(0.02)
        s.process.kill()
        s.process.wait()
    hub.etag, hub.slow = '"v2"', 0
    with serve(hub, tmp_path):
        pass
    assert next(tmp_path.glob("*.gguf")).read_bytes() == DATA


def test_cut_connections_are_taken_up(hub, tmp_path):
    hub.cut_after = 30 << 20
    with serve(hub, tmp_path):
        pass
    assert len(gets(hub)) == 4
    assert next(tmp_path.glob("*.gguf")).read_bytes() == DATA


@pytest.mark.parametrize("status,words", [(401, "HF_TOKEN"), (403, "gated"), (404, "spelling")])
def test_refusals_name_the_remedy(hub, tmp_path, status, words):
    hub.status = status
    with serve(hub, tmp_path, wait=None) as s:
        assert s.process.wait(20) == 1
        assert words in s.lines()[-1]["error"] and str(status) in s.lines()[-1]["error"]


def test_a_token_is_sent_and_not_logged(hub, tmp_path):
    hub.token = "hf_secret"
    with serve(hub, tmp_path, env={"HF_TOKEN": "hf_secret"}) as s:
        assert "hf_secret" not in str(s.lines())
    with serve(hub, tmp_path / "other", env={"HF_TOKEN": "wrong"}, wait=None) as s:
        assert s.process.wait(20) == 1 and "refused" in s.lines()[-1]["error"]


def test_wrong_checksum_is_refused(hub, tmp_path):
    hub.sum = "0" * 64
    with serve(hub, tmp_path, wait=None) as s:
        assert s.process.wait(60) == 1 and "expected 000" in s.lines()[-1]["error"]
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.gguf"))


def test_private_addresses_need_leave(hub, tmp_path):
    with Server("--cache-dir", tmp_path, model=f"https://127.0.0.1:{hub.server_address[1]}/x.gguf", wait=None) as s:
        assert s.process.wait(20) == 1 and "private address" in s.lines()[-1]["error"]
    with Server("--cache-dir", tmp_path, model=f"{hub.url}/x.gguf", wait=None) as s:
        assert s.process.wait(20) == 1 and "https" in s.lines()[-1]["error"]


def test_a_query_is_in_no_log(hub, tmp_path):
    hub.status = 404
    with serve(hub, tmp_path, source=f"{hub.url}/x.gguf?signature=s3cret", wait=None) as s:
        assert s.process.wait(20) == 1
        assert "x.gguf" in s.lines()[-1]["error"] and "s3cret" not in str(s.lines())


def test_two_processes_fetch_once(hub, tmp_path):
    hub.slow = 0.005
    with serve(hub, tmp_path, wait="listening") as one, serve(hub, tmp_path, wait="listening") as two:
        one.await_log("ready", "seconds", timeout=60)
        two.await_log("ready", "seconds", timeout=60)
    assert len(gets(hub)) == 1


def test_https_address_with_a_given_checksum(hub, tmp_path):
    with serve(hub, tmp_path, "--model-sha256", SUM, source=f"{hub.url}/x.gguf"):
        assert pathlib.Path(next(tmp_path.glob("*-x.gguf"))).read_bytes() == DATA


@pytest.mark.parametrize("source", ["hf://org", "hf://org/repo", "hf://org/repo/../../x.gguf", "hf://a b/c/d.gguf",
                                    "hf://org/repo/file.bin", "https://user:pw@host/x.gguf", "https://h/a b.gguf"])
def test_bad_sources_are_refused_at_once(hub, tmp_path, source):
    with serve(hub, tmp_path, source=source, wait=None) as s:
        assert s.process.wait(20) == 1
    assert not hub.log
