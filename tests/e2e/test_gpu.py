# SPDX-License-Identifier: Apache-2.0
"""Services on GPUs, on a node that offers four: counted, used together, followed, and believed when they
say that they fail. The GPUs are virtual, and so is NVML; the rest is as it ships."""

import http.client
import re

import openai
import pytest
from conftest import until
from tests.cluster import gpu, penstock

OFFERED = 4
FIGURES = {"utilization_ratio", "memory_bandwidth_utilization_ratio", "memory_used_bytes", "memory_total_bytes",
           "power_watts", "temperature_celsius", "clock_hertz", "throttle_reason", "ecc_errors_total",
           "xid_errors_total"}


@pytest.fixture(scope="module")
def node(cluster, tmp_path_factory):
    cluster.load(gpu.image(tmp_path_factory.mktemp("image")))
    gpu.advertise(cluster, OFFERED)
    return cluster


@pytest.fixture
def gpus(node, world, tmp_path):
    """What the GPUs of the world's pods say."""
    folder = gpu.Folder(tmp_path / "gpu")
    node.apply(penstock.models_volume(world.namespace, "gpu", folder.path))
    yield folder
    node.kubectl("delete", "pv", f"gpu-{world.namespace}", "--wait=false")


def serve(world, tensor, name="chat", **spec):
    runtime = {"device": "cuda", "image": gpu.IMAGE}
    if tensor > 1:
        runtime["parallel"] = {"tensor": tensor}
    world.apply(name, model={"source": f"pvc://gpu/{gpu.MODEL}"}, runtime=runtime, podTemplate={
        "spec": {"containers": [{"name": "runtime", "env": gpu.env(tensor)}]}}, **spec)


def limits(pod):
    return pod["spec"]["containers"][0]["resources"]["limits"]


def complete(world, name="chat"):
    api = openai.OpenAI(base_url=f"{world.url(name)}/v1", api_key="none", max_retries=0, timeout=60,
                        _strict_response_validation=True)
    return api.completions.create(model=name, prompt="Count", max_tokens=8, temperature=0)


def metrics(cluster, pod):
    """{(name, GPU): value of the last series} of penstock_gpu_*."""
    def fetch():
        connection = http.client.HTTPConnection(pod["status"]["podIP"], 8001, timeout=10)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    found = re.findall(r'^penstock_gpu_(\w+)\{.*gpu="(\d+)".*\} (\S+)$', cluster.inside(fetch), re.MULTILINE)
    return {(name, index): float(value) for name, index, value in found}


def is_warned_of(world, reason, text):
    return any(kind == "Warning" and why == reason and text in note for kind, why, note in world.events())


def test_two_gpus_serve_and_tell_of_an_error(node, world, gpus):
    serve(world, 2)
    world.wait_condition("Ready", "True", timeout=90)
    pod = world.pods()[0]
    assert limits(pod)[gpu.RESOURCE] == "2"
    assert '"ranks":2' in world.kubectl("logs", "deploy/chat").stdout
    assert node.inside(complete, world).usage.completion_tokens == 8
    seen = metrics(node, pod)
    assert {name for name, _ in seen} >= FIGURES
    assert {(name, index) for name in FIGURES for index in "01"} <= set(seen)
    assert seen["xid_errors_total", "1"] == 0
    assert world.condition("Degraded")["status"] == "False"

    gpus.say("xid 1 79")
    told = world.wait_condition("Degraded", "True", "GPUError")
    for text in ("Xid 79", pod["metadata"]["name"], '"n1"', "cordon the node"):
        assert text in told["message"]
    until(lambda: is_warned_of(world, "GPUError", "Xid 79"), 20, world.events)
    after = metrics(node, pod)
    assert after["xid_errors_total", "1"] == 1 and after["last_xid", "1"] == 79
    assert after["xid_errors_total", "0"] == 0

    # it stands until the pod is replaced
    world.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=1")
    world.wait_condition("Degraded", "False")
    world.wait_condition("Ready", "True", "Serving", timeout=90)
    assert world.pods()[0]["metadata"]["uid"] != pod["metadata"]["uid"]


def test_replicas_follow_utilization_as_far_as_there_are_gpus(node, world, gpus):
    gpus.say("0.utilization 20", "1.utilization 20")
    serve(world, 2, scaling={"minReplicas": 1, "maxReplicas": 2, "scaleDownAfter": "5s",
                             "metrics": [{"name": "gpuUtilization", "target": "60"}]})
    world.wait_condition("Ready", "True", timeout=90)
    world.wait_condition("ScalingActive", "True", timeout=90)
    until(lambda: penstock.metric(node, "gpuUtilization", world.namespace) == 20, 20)
    assert world.status()["replicas"] == 1

    gpus.say("0.utilization 80", "1.utilization 100")  # a pod counts with the mean of its GPUs
    until(lambda: world.status().get("readyReplicas") == 2, 90, world.status)
    until(lambda: penstock.metric(node, "gpuUtilization", world.namespace) == 180, 20)
    assert "90% GPU utilization over 1 serving pod, target 60" in world.status()["scaling"]["reason"]

    serve(world, 1, "fifth")
    told = world.wait_condition("Degraded", "True", "Unschedulable", name="fifth")
    assert f"Insufficient {gpu.RESOURCE}" in told["message"]
    assert world.pods("fifth")[0]["status"]["phase"] == "Pending"
    assert world.condition("Ready", "fifth")["reason"] == "Unschedulable"

    gpus.say("0.utilization 20", "1.utilization 20")
    until(lambda: world.status().get("readyReplicas") == 1 and world.status()["replicas"] == 1, 90, world.status)
    world.wait_condition("Ready", "True", "Serving", name="fifth", timeout=90)
    assert limits(world.pods("fifth")[0])[gpu.RESOURCE] == "1"
    reasons = [e[1] for e in world.events()]
    assert "ScaledUp" in reasons and "ScaledDown" in reasons
