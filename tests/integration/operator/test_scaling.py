# SPDX-License-Identifier: Apache-2.0
"""The aggregated metrics API and the real autoscaling/v2 controller."""

import json
import time

import pytest
from conftest import NODE_ADDRESS, SYSTEM, until

API = "/apis/custom.metrics.k8s.io/v1beta2"
METRICS = ("queueLength", "requests", "gpuUtilization", "gpuMemory")


def available(cluster):
    service = cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io")
    conditions = (service or {}).get("status", {}).get("conditions", [])
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)


def scaling(maximum=4, **more):
    return dict({"maxReplicas": maximum, "scaleDownAfter": "5s",
                 "metrics": [{"name": "queueLength", "target": "4"}]}, **more)


def replicas(world):
    return world.get()["spec"]["replicas"]


def value(world, metric, selector="serving.penstock.io%2Fservice%3Dchat"):
    done = world.kubectl("get", "--raw", f"{API}/namespaces/{world.namespace}/pods/%2A/{metric}?labelSelector={selector}")
    return {i["describedObject"]["name"]: i["value"] for i in json.loads(done.stdout)["items"]}


def test_up_with_the_queue_and_down_when_it_is_gone(operator, cluster, world):
    operator.start()
    world.apply(scaling=scaling())
    world.wait_condition("Ready", "True")
    world.wait_condition("ScalingActive", "True", "FollowingQueue", timeout=60)
    assert available(cluster)
    time.sleep(3)
    assert replicas(world) == 1

    first = world.pods()[0]["metadata"]["name"]
    world.behave(**{"all": {"phase": "ready"}, first: {"phase": "ready", "waiting": 11}})
    until(lambda: world.status().get("readyReplicas") == 3, 40)
    assert replicas(world) == 3  # 11 over 3 pods is 3.7 of 4: enough
    assert world.get("hpa")["spec"]["scaleTargetRef"]["kind"] == "InferenceService"
    status = world.status()["scaling"]
    assert status["desiredReplicas"] == 3 and "queued over" in status["reason"] and status["lastScaleTime"]

    world.behave(all={"phase": "ready"})
    until(lambda: world.status().get("readyReplicas") == 1 and replicas(world) == 1, 60)
    reasons = [e[1] for e in world.events()]
    assert "ScaledUp" in reasons and "ScaledDown" in reasons


def test_a_loading_pod_is_capacity_and_not_idle(operator, world):
    operator.start()
    world.apply(scaling=scaling(10))
    world.wait_condition("ScalingActive", "True", timeout=60)
    first = world.pods()[0]["metadata"]["name"]
    world.behave(**{"all": {"phase": "loading", "percent": 10}, first: {"phase": "ready", "waiting": 11}})
    until(lambda: replicas(world) == 3, 40)
    until(lambda: world.get("hpa")["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled")
    # New pods never become ready: they are ordered once, not again and again up to ten.
    time.sleep(12)
    assert replicas(world) == 3
    assert list(value(world, "queueLength")) == [first]
    # No load, but two pods load: nobody may scale down on their account.
    world.behave(**{"all": {"phase": "loading", "percent": 20}, first: {"phase": "ready", "waiting": 0}})
    time.sleep(10)
    assert replicas(world) == 3
    world.behave(all={"phase": "ready"})
    until(lambda: replicas(world) == 1, 40)


def test_a_silent_pod_is_not_idle(operator, world):
    world.behave(all={"phase": "ready", "waiting": 4})
    operator.start()
    world.apply(scaling=scaling(3), replicas=2)
    world.wait_condition("ScalingActive", "True", timeout=60)
    until(lambda: world.status().get("readyReplicas") == 2)
    first = world.pods()[0]["metadata"]["name"]
    world.behave(**{"all": {"phase": "ready", "silent": True}, first: {"phase": "ready", "silent": False, "waiting": 4}})
    until(lambda: world.get("hpa")["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled")
    assert list(value(world, "queueLength")) == [first]
    before = replicas(world)
    world.behave(**{"all": {"phase": "ready", "silent": True}, first: {"phase": "ready", "silent": False, "waiting": 0}})
    time.sleep(8)
    assert replicas(world) == before == 2
    world.behave(all={"phase": "ready"})
    until(lambda: replicas(world) == 1, 40)


def test_the_api_answers_the_aggregator_only(operator, cluster, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    until(lambda: available(cluster), 30)
    name = world.pods()[0]["metadata"]["name"]
    world.behave(all={"phase": "ready", "waiting": 3, "running": 2})
    until(lambda: value(world, "queueLength") == {name: "3000m"}, 10)
    assert value(world, "requests") == {name: "5000m"}
    assert value(world, "requests", "serving.penstock.io%2Fservice%21%3Dchat") == {}
    resources = json.loads(world.kubectl("get", "--raw", API).stdout)["resources"]
    assert {r["name"] for r in resources} == {
        "pods/queueLength", "pods/requests", "pods/gpuUtilization", "pods/gpuMemory"}
    one = world.kubectl("get", "--raw", f"{API}/namespaces/{world.namespace}/pods/{name}/queueLength").stdout
    assert json.loads(one)["items"][0]["describedObject"]["name"] == name
    for path, code in ((f"{API}/namespaces/x/pods/%2A/nothing", "NotFound"), (f"{API}/namespaces/x/nodes/n/m", "NotFound")):
        assert code in world.kubectl("get", "--raw", path, check=False).stderr

    pki = cluster.dir / "pki"
    url = f"https://{NODE_ADDRESS}:9443{API}"
    for certificate in ([], ["--cert", pki / "admin.crt", "--key", pki / "admin.key"],
                        ["--cert", pki / "apiserver.crt", "--key", pki / "apiserver.key"]):
        done = cluster.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Remote-User: system:admin",
                            "-H", "X-Remote-Group: system:masters", *certificate, url], check=False)
        assert done.stdout == "401"
    done = cluster.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "--cert", pki / "proxy.crt", "--key",
                        pki / "proxy.key", url])
    assert done.stdout == "200"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_stranger_keeps_custom_metrics(operator, cluster, world, version):
    """Whoever has a version of the group keeps it, also when he comes later; afterwards we may."""
    theirs = f"{version}.custom.metrics.k8s.io"
    operator.start()
    world.apply(scaling=scaling())
    world.wait_condition("ScalingActive", "True", timeout=60)
    if version == "v1beta2":
        operator.stop()
        cluster.kubectl("delete", "apiservice", theirs)
    cluster.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": theirs},
                   "spec": {"group": "custom.metrics.k8s.io", "version": version, "groupPriorityMinimum": 100,
                            "versionPriority": 100, "insecureSkipTLSVerify": True,
                            "service": {"name": "prometheus-adapter", "namespace": "monitoring"}}})
    if version == "v1beta2":
        operator.start()
    try:
        spec = cluster.get("apiservice", theirs)["spec"]
        c = world.wait_condition("ScalingActive", "False", "MetricsAPIConflict", timeout=40)
        assert f"monitoring/prometheus-adapter ({version})" in c["message"]
        until(lambda: world.get("hpa") is None)
        assert cluster.get("apiservice", theirs)["spec"] == spec
        if version == "v1beta1":
            until(lambda: cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io") is None)
    finally:
        cluster.kubectl("delete", "apiservice", theirs)
    world.wait_condition("ScalingActive", "True", timeout=60)


def test_switching_scaling_off_removes_the_autoscaler(operator, world):
    operator.start()
    world.apply(scaling=scaling(), replicas=2)
    until(lambda: world.get("hpa"))
    world.kubectl("patch", "psvc", "chat", "--type=json", "-p", '[{"op":"remove","path":"/spec/scaling"}]')
    until(lambda: world.get("hpa") is None)
    world.wait_condition("ScalingActive", "False", "NotConfigured")
    assert replicas(world) >= 1


def test_the_certificate_is_shared_and_made_again(operator, cluster, world):
    operator.start()
    until(lambda: available(cluster), 30)
    ca = cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io")["spec"]["caBundle"]
    assert cluster.get("secret", "penstock-operator-tls", "-n", SYSTEM)["data"]["ca.crt"] == ca
    operator.stop()
    operator.start()
    time.sleep(2)
    assert cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io")["spec"]["caBundle"] == ca
    cluster.kubectl("delete", "secret", "penstock-operator-tls", "-n", SYSTEM)
    until(lambda: cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io")["spec"]["caBundle"] != ca, 40)
    until(lambda: available(cluster), 40)

    # A spoilt certificate is issued anew by the same authority.
    ca = cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io")["spec"]["caBundle"]
    cluster.kubectl("patch", "secret", "penstock-operator-tls", "-n", SYSTEM, "--type=merge", "-p",
                    '{"data":{"tls.crt":"eA=="}}')
    until(lambda: cluster.get("secret", "penstock-operator-tls", "-n", SYSTEM)["data"]["tls.crt"] != "eA==", 40)
    assert cluster.get("secret", "penstock-operator-tls", "-n", SYSTEM)["data"]["ca.crt"] == ca
    time.sleep(2)
    assert available(cluster)
