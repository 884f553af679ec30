# SPDX-License-Identifier: Apache-2.0
"""The product on a Node: installing the chart, reading a service's status, explaining a failure."""

import http.client
import os
import pathlib
import time

from tests.cluster.node import ROOT

SYSTEM = "penstock-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:penstock-operator"
SERVICES = "/apis/serving.penstock.io/v1alpha1/namespaces/{}/inferenceservices/{}"
METRIC = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/pods/*/{}?labelSelector=serving.penstock.io/service={}"
SMOLLM2 = "smollm2-135m-instruct-q4_1.gguf"


def cache():
    return pathlib.Path(os.environ.get("PENSTOCK_CACHE") or os.path.expanduser("~/.cache/penstock"))


def load_images(cluster):
    cluster.load(ROOT / "build/images/penstock-operator.tar", ROOT / "build/images/penstock-runtime.tar")


def install(cluster, *values):
    """helm install, and wait for the operator. CPU is scarce where this runs; nothing else is changed."""
    cluster.helm("install", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--create-namespace",
                 "--wait", "--timeout=90s", *values)


def models_volume(namespace="default", claim="models", path=None):
    """The manifest that makes a folder, the models in the cache, a claim of a namespace."""
    text = (ROOT / "docs/examples/models-volume.yaml").read_text(encoding="utf-8").replace("models", claim)
    return (text.replace("path: PATH", f"path: {path or cache() / 'models'}")
            .replace("namespace: default", f"namespace: {namespace}")
            .replace(f"name: {claim}\nspec:\n  capacity", f"name: {claim}-{namespace}\nspec:\n  capacity")
            .replace(f"volumeName: {claim}", f"volumeName: {claim}-{namespace}"))


def service(cluster, namespace="default", name="chat"):
    """The InferenceService, or {}."""
    status, found = cluster.api("GET", SERVICES.format(namespace, name))
    return found if status == 200 else {}


def condition(found, kind):
    for c in found.get("status", {}).get("conditions", []):
        if c["type"] == kind:
            return c
    return {"status": None, "reason": None, "message": None}


def reach(cluster, namespace="default", name="chat", timeout=15):
    """The URL of a Ready service, once kube-proxy knows its endpoints too."""
    host = f"{cluster.address(namespace, name)}:8000"
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = http.client.HTTPConnection(host, timeout=5)
            cluster.inside(connection.request, "GET", "/readyz")
            if connection.getresponse().status == 200:
                return f"http://{host}"
            problem = "not ready"
        except OSError as e:
            problem = e
        finally:
            connection.close()
        if time.monotonic() > deadline:
            raise RuntimeError(f"no way to {name} through its Service {host}: {problem}")
        time.sleep(0.1)


def metric(cluster, name, namespace="default", service_name="chat"):
    """The sum over the service's pods, as the autoscaler sees it; None without a sample."""
    status, found = cluster.api("GET", METRIC.format(namespace, name, service_name))
    if status != 200 or not found.get("items"):
        return None
    return sum(quantity(i["value"]) for i in found["items"])


def quantity(text):
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def explain(cluster, *namespaces):
    """What is wrong, from the objects a person would look at first; never raises."""
    lines = []
    for namespace in namespaces:
        for what, command in (
                ("services", ["get", "psvc", "-o", "jsonpath={range .items[*]}{.metadata.name}{range "
                              ".status.conditions[*]}{'\\n  '}{.type}={.status} {.reason}: {.message}{end}{end}"]),
                ("pods", ["get", "pods", "-o", "wide"]),
                ("events", ["get", "events", "--sort-by=.lastTimestamp", "-o",
                            "custom-columns=TYPE:.type,REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message"]),
                ("logs", ["logs", "--all-containers", "--tail=15", "--prefix", "-l",
                          "app.kubernetes.io/name in (penstock-runtime, penstock-operator)"])):
            done = cluster.kubectl("-n", namespace, *command, check=False)
            text = (done.stdout + done.stderr).strip().splitlines()
            lines += [f"--- {namespace}: {what}", *text[-20:]]
    return "\n".join(lines)
