# SPDX-License-Identifier: Apache-2.0
"""Services on GPUs, on a real API server: rules, pods, scaling by GPU figures, Xids.

No node has a GPU here and none is needed: the pods are played, and say what GPUs would say.
"""

import time

from conftest import until
from test_scaling import replicas, value

CUDA = {"device": "cuda"}


def gpus(utilization, n=2, **more):
    return [dict({"utilization": utilization, "used": 20, "total": 80}, **more) for _ in range(n)]


def test_rules_name_the_field_and_the_remedy(world):
    metrics = [{"name": "gpuUtilization", "target": "70"}]
    for spec, message in (
            ({"runtime": {"parallel": {"tensor": 2}}}, "spec.runtime.parallel.tensor: more than 1 needs"),
            ({"runtime": {"device": "auto", "parallel": {"tensor": 2}}}, "spec.runtime.device: cuda or cpu; set it"),
            ({"runtime": dict(CUDA, parallel={"tensor": 9})}, "spec.runtime.parallel.tensor"),
            ({"runtime": dict(CUDA, parallel={"pipeline": 2})}, "pipeline"),
            ({"runtime": {"gpuResource": "nvidia.com/gpu"}}, "spec.runtime.gpuResource: only spec.runtime.device: cuda"),
            ({"runtime": dict(CUDA, gpuResource="gpu")}, "spec.runtime.gpuResource"),
            ({"runtime": dict(CUDA, args=["--tp=2"])}, "set spec.runtime.parallel.tensor instead"),
            ({"runtime": dict(CUDA, args=["--tp-size", "2"])}, "set spec.runtime.parallel.tensor instead"),
            ({"runtime": CUDA, "resources": {"limits": {"nvidia.com/gpu": 2}}}, "counted by spec.runtime.parallel.tensor"),
            ({"runtime": dict(CUDA, gpuResource="nvidia.com/x"), "resources": {"requests": {"nvidia.com/x": 1}}},
             "counted by spec.runtime.parallel.tensor"),
            ({"scaling": {"maxReplicas": 2, "metrics": metrics}}, "spec.runtime.device: cuda, or follow queueLength"),
            ({"scaling": {"maxReplicas": 2, "metrics": [{"name": "gpuPower", "target": "1"}]}}, "gpuMemory")):
        done = world.apply(check=False, **spec)
        assert done.returncode and message in done.stderr, (spec, done.stderr)
    for spec in (
            {"runtime": {"device": "cpu", "parallel": {"tensor": 2}}},
            {"runtime": dict(CUDA, parallel={"tensor": 8}), "scaling": {"maxReplicas": 2, "metrics": metrics}},
            {"runtime": dict(CUDA, gpuResource="nvidia.com/mig-1g.10gb"), "resources": {"limits": {"memory": "8Gi"}}}):
        world.apply(**spec)


def test_a_pod_with_two_gpus(operator, world):
    operator.start("--gpu-runtime-class=nvidia", "--runtime-cuda-image=r:1-cuda")
    world.apply(runtime=dict(CUDA, parallel={"tensor": 2}), resources={"limits": {"memory": "64Gi"}},
                podTemplate={"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}})
    spec = until(lambda: world.get("deploy"))["spec"]["template"]["spec"]
    runtime = spec["containers"][0]
    assert runtime["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    assert runtime["image"] == "r:1-cuda" and spec["runtimeClassName"] == "nvidia"
    assert {"--device=cuda", "--tensor-parallel-size=2"} <= set(runtime["args"])
    assert {t["key"] for t in spec["tolerations"]} == {"team", "nvidia.com/gpu"}
    volume = next(v for v in spec["volumes"] if v["name"] == "shm")
    assert volume["emptyDir"]["medium"] == "Memory"
    assert {"name": "shm", "mountPath": "/dev/shm"} in runtime["volumeMounts"]
    # what the server made of it is what was asked for: nothing is written again
    time.sleep(3)
    before = len(operator.writes())
    time.sleep(5)
    assert operator.writes()[before:] == []


def test_replicas_follow_the_gpus_and_an_xid_is_told(operator, world):
    operator.start()
    world.behave(all={"phase": "ready", "gpus": gpus(0.5)})
    world.apply(runtime=CUDA, scaling={"maxReplicas": 3, "scaleDownAfter": "5s",
                                       "metrics": [{"name": "gpuUtilization", "target": "60"},
                                                   {"name": "gpuMemory", "target": "90"}]})
    world.wait_condition("ScalingActive", "True", "FollowingQueue", timeout=60)
    first = world.pods()[0]["metadata"]["name"]
    until(lambda: value(world, "gpuUtilization") == {first: "50000m"}, 10)
    assert value(world, "gpuMemory") == {first: "25000m"}
    assert replicas(world) == 1

    world.behave(all={"phase": "ready", "gpus": gpus(0.95)})
    until(lambda: world.status().get("readyReplicas") == 3, 60)
    assert "95% GPU utilization over" in world.status()["scaling"]["reason"]

    # a pod that does not know is left out, and is not taken for an idle one
    world.behave(all={"phase": "ready"})
    until(lambda: value(world, "gpuUtilization") == {}, 10)
    time.sleep(12)
    assert replicas(world) == 3

    world.behave(all={"phase": "ready", "gpus": gpus(0.1)}, **{first: {"phase": "ready", "gpus": gpus(0.1, xid=79)}})
    c = world.wait_condition("Degraded", "True", "GPUError")
    assert f'GPU-0 of pod "{first}"' in c["message"] and "Xid 79" in c["message"] and "cordon the node" in c["message"]
    assert world.condition("Ready")["status"] == "True"
    assert ("Warning", "GPUError", c["message"]) in until(world.events)
    world.behave(all={"phase": "ready", "gpus": gpus(0.1)})
    world.wait_condition("Degraded", "False")
    until(lambda: replicas(world) == 1, 60)
