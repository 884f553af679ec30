# SPDX-License-Identifier: Apache-2.0
"""One real cluster for all tests, with the chart installed and a real model; a namespace each."""

import contextlib
import http.server
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.cluster import penstock  # noqa: E402
from tests.cluster.control_plane import NODE_ADDRESS  # noqa: E402
from tests.cluster.node import Node  # noqa: E402

GROUP = "serving.penstock.io/v1alpha1"
MODEL = f"pvc://models/{penstock.SMOLLM2}"


def until(question, timeout=30, what=None):
    """Ask until the answer is true; it is the value of the call."""
    deadline = time.monotonic() + timeout
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout} s: {what() if callable(what) else what or question}")
        time.sleep(0.25)


class World:
    """A namespace, and the services in it."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        cluster.kubectl("create", "ns", namespace)
        cluster.kubectl("label", "ns", namespace, "pod-security.kubernetes.io/enforce=restricted")
        cluster.apply(penstock.models_volume(namespace))

    def manifest(self, name="chat", **spec):
        spec.setdefault("model", {"source": MODEL})
        spec.setdefault("resources", {"requests": {"cpu": "100m", "memory": "256Mi"}})
        return {"apiVersion": GROUP, "kind": "InferenceService",
                "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}

    def apply(self, name="chat", check=True, **spec):
        return self.cluster.apply(self.manifest(name, **spec), check=check)

    def service(self, name="chat"):
        return penstock.service(self.cluster, self.namespace, name)

    def status(self, name="chat"):
        return self.service(name).get("status", {})

    def condition(self, kind, name="chat"):
        return penstock.condition(self.service(name), kind)

    def wait_condition(self, kind, status, reason=None, name="chat", timeout=60):
        def holds():
            found = self.service(name)
            c = penstock.condition(found, kind)
            fresh = c.get("observedGeneration") == found.get("metadata", {}).get("generation")
            return c if fresh and c["status"] == status and reason in (None, c["reason"]) else None
        return until(holds, timeout, lambda: f"{kind}={status} {reason}\n"
                     f"{penstock.explain(self.cluster, self.namespace)}")

    def pods(self, name="chat"):
        """The pods that are not leaving."""
        found = self.cluster.api("GET", f"/api/v1/namespaces/{self.namespace}/pods?labelSelector="
                                 f"serving.penstock.io/service={name}")[1]["items"]
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    def url(self, name="chat"):
        return penstock.reach(self.cluster, self.namespace, name)

    def kubectl(self, *args, **kwargs):
        return self.cluster.kubectl("-n", self.namespace, *args, **kwargs)

    def events(self, name="chat"):
        found = self.cluster.get("events.events.k8s.io", "-n", self.namespace)["items"]
        return [(e["type"], e["reason"], e.get("note", "")) for e in found if e["regarding"]["name"] == name]

    def close(self):
        self.cluster.kubectl("delete", "ns", self.namespace, "--wait=false")
        self.cluster.kubectl("delete", "pv", f"models-{self.namespace}", "--wait=false")


def processes(cluster, name):
    """PIDs, as seen from outside, of a program in the node's pods."""
    found = set()
    for folder in cluster.cgroups.folders():
        with contextlib.suppress(OSError):  # a group or a process that just went
            for pid in (folder / "cgroup.procs").read_text().split():
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                    found.add(int(pid))
    return found


def kill(cluster, name):
    pids = processes(cluster, name)
    assert pids, f"no {name} runs in a pod"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def writes(events):
    """Requests that change something, but for the Lease."""
    return [(e["verb"], e["objectRef"].get("resource"), e["objectRef"].get("subresource"), e["objectRef"].get("name"))
            for e in events
            if e["verb"] not in ("get", "list", "watch") and e.get("objectRef", {}).get("resource") != "leases"]


class Hub(http.server.ThreadingHTTPServer):
    """A model hub on the node's address: org/model is there, org/private wants a token."""

    daemon_threads = True

    def __init__(self):
        super().__init__((NODE_ADDRESS, 0), HubHandler)

    @property
    def url(self):
        return f"http://{NODE_ADDRESS}:{self.server_address[1]}"


class HubHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *unused):
        pass

    def answer(self):
        status, data = 404, b""
        if self.path.startswith("/org/private/"):
            status = 401
        elif self.path == f"/org/model/resolve/main/{penstock.SMOLLM2}":
            status, data = 200, (penstock.cache() / "models" / penstock.SMOLLM2).read_bytes()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return data

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.wfile.write(self.answer())


@pytest.fixture(scope="session")
def cluster():
    with Node() as c:
        penstock.load_images(c)
        penstock.install(c)
        yield c


@pytest.fixture(scope="session")
def hub(cluster):
    server = cluster.inside(Hub)  # its socket stays in the cluster's network
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def world(cluster, request):
    w = World(cluster, request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-"))
    yield w
    w.close()
