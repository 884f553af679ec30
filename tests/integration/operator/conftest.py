# SPDX-License-Identifier: Apache-2.0
"""One control plane for all tests of the operator, with the chart installed; a fresh operator and a
namespace of its own for each test."""

import json
import os
import pathlib
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.cluster.control_plane import NODE_ADDRESS, ControlPlane  # noqa: E402

SYSTEM = "penstock-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:penstock-operator"
GROUP = "serving.penstock.io/v1alpha1"


def binary():
    """Of the build PENSTOCK_BUILD names, or of build/release."""
    build = pathlib.Path(os.environ.get("PENSTOCK_BUILD") or ROOT / "build/release")
    found = build / "operator/penstock-operator"
    if not found.exists():
        pytest.fail(f"{found} is not built")
    return found


def until(question, timeout=20, what=None):
    """Ask until the answer is true; it is the value of the call."""
    deadline = time.monotonic() + timeout
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout} s: {what() if callable(what) else what or question}")
        time.sleep(0.1)


class Operator:
    """The operator as a process beside the API server, with the rights of the chart's account."""

    def __init__(self, cluster, name="operator", health_port=8080, api_port=9443):
        self.cluster, self.name = cluster, name
        self.health_port, self.api_port = health_port, api_port
        self.token = cluster.dir / "operator.token"
        self.kubeconfig = cluster.dir / "operator.kc"

    def start(self, *flags, kubeconfig=None):
        self.process = self.cluster.spawn(self.name, [
            binary(), f"--kubeconfig={kubeconfig or self.kubeconfig}", f"--namespace={SYSTEM}",
            "--log-format=text", "--log-level=info", "--scrape-interval=500ms",
            f"--health-port={self.health_port}", f"--metrics-api-port={self.api_port}", *flags])
        until(lambda: self.http("/readyz").returncode == 0, what=self.log)
        return self

    def stop(self):
        self.cluster.kill(self.name, 15)

    def kill(self):
        self.cluster.kill(self.name, 9)

    def pid(self):
        return int(self.cluster.pid(self.name))

    def http(self, path):
        return self.cluster.run(["curl", "-sSf", "-m", "3", f"http://127.0.0.1:{self.health_port}{path}"], check=False)

    def log(self):
        return (self.cluster.dir / f"{self.name}.log").read_text()

    def writes(self, events=None):
        """Requests of ours that change something, but for the Lease."""
        found = []
        for e in events if events is not None else self.cluster.audit(ACCOUNT):
            resource = e.get("objectRef", {}).get("resource")
            if e["verb"] not in ("get", "list", "watch") and resource != "leases":
                found.append((e["verb"], resource, e["objectRef"].get("subresource"), e["objectRef"].get("name"),
                              e.get("responseStatus", {}).get("code")))
        return found


class World:
    """A namespace with services, and the pods' behaviour in it."""

    count = 0

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace

    def service(self, name="chat", **spec):
        spec.setdefault("model", {"source": "hf://org/repo/file.gguf"})
        return {"apiVersion": GROUP, "kind": "InferenceService",
                "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}

    def apply(self, name="chat", check=True, **spec):
        return self.cluster.apply(self.service(name, **spec), check=check)

    def get(self, kind="psvc", name="chat"):
        return self.cluster.get(kind, name, "-n", self.namespace)

    def pods(self):
        pods = self.cluster.get("pods", "-n", self.namespace)["items"]
        return [p for p in pods if "deletionTimestamp" not in p["metadata"]]

    def behave(self, **states):
        """behave(all={...}, POD={...}): what the pods do from now on."""
        states = {"*" if k == "all" else k: v for k, v in states.items()}
        path = self.cluster.dir / "pods.json"
        path.with_suffix(".new").write_text(json.dumps(states))
        path.with_suffix(".new").rename(path)

    def status(self, name="chat"):
        return (self.get(name=name) or {}).get("status", {})

    def condition(self, kind, name="chat"):
        for c in self.status(name).get("conditions", []):
            if c["type"] == kind:
                return c
        return {"status": None, "reason": None, "message": None}

    def wait_condition(self, kind, status, reason=None, name="chat", timeout=20):
        def holds():
            c = self.condition(kind, name)
            return c if c["status"] == status and (reason is None or c["reason"] == reason) else None
        return until(holds, timeout, lambda: f"{kind}={status} {reason}: {json.dumps(self.status(name), indent=1)}")

    def events(self, name="chat"):
        found = self.cluster.get("events.events.k8s.io", "-n", self.namespace)["items"]
        return [(e["type"], e["reason"], e.get("note", "")) for e in found if e["regarding"]["name"] == name]

    def kubectl(self, *args, **kwargs):
        return self.cluster.kubectl("-n", self.namespace, *args, **kwargs)


def install(c):
    """The chart without its Deployment, a way for the API server to an operator outside of a pod, and
    the pods' player."""
    c.helm("install", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--create-namespace",
           "--set", "replicas=0")
    c.apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": "penstock-operator-test", "namespace": SYSTEM,
                          "labels": {"kubernetes.io/service-name": "penstock-operator"}},
             "ports": [{"name": "metrics-api", "port": 9443, "protocol": "TCP"}],
             "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}]})
    token = c.kubectl("create", "token", "penstock-operator", "-n", SYSTEM, "--duration=3h").stdout
    (c.dir / "operator.token").write_text(token)
    c.write_kubeconfig(c.dir / "operator.kc", {"tokenFile": str(c.dir / "operator.token")})
    c.spawn("kubelet", [sys.executable, ROOT / "tests/cluster/fake_kubelet.py", c.dir])


@pytest.fixture(scope="session")
def cluster():
    if os.geteuid() != 0:
        pytest.skip("a control plane in a network namespace needs root rights")
    with ControlPlane(kcm_flags=["--horizontal-pod-autoscaler-downscale-stabilization=5s"]) as c:
        install(c)
        yield c


@pytest.fixture
def operator(cluster):
    o = Operator(cluster)
    yield o
    o.stop()


@pytest.fixture
def world(cluster, request):
    World.count += 1
    words = request.node.name.replace("_", "-").replace("[", "-").replace("]", "").lower()
    namespace = f"t{World.count}-{words[:36]}".strip("-")
    cluster.kubectl("create", "ns", namespace)
    w = World(cluster, namespace)
    w.behave(all={"phase": "ready"})
    yield w
    w.kubectl("delete", "psvc", "--all", "--wait=false")
    w.kubectl("delete", "deploy,svc,hpa,controllerrevision,pods", "--all", "--wait=false")


__all__ = ["ACCOUNT", "GROUP", "NODE_ADDRESS", "ROOT", "SYSTEM", "Operator", "World", "install", "until"]
