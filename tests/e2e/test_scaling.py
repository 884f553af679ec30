# SPDX-License-Identifier: Apache-2.0
"""Replicas follow the queue by the cluster's own autoscaler."""

import subprocess

from conftest import ROOT, until
from tests.cluster import penstock


def test_up_with_the_queue_and_down_after_it(cluster, world):
    world.apply(runtime={"batching": {"maxSequences": 2}},
                scaling={"minReplicas": 1, "maxReplicas": 3, "scaleDownAfter": "5s",
                         "metrics": [{"name": "queueLength", "target": "2"}]})
    world.wait_condition("Ready", "True")
    world.wait_condition("ScalingActive", "True", timeout=90)
    command = [ROOT / "build/release/runtime/penstock-runtime", "bench", "serve", f"--url={world.url()}",
               "--num-prompts=1000", "--concurrency=12", "--output-len=64", "--quiet"]
    load = subprocess.Popen(cluster.enter(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        until(lambda: (penstock.metric(cluster, "queueLength", world.namespace) or 0) > 6, 30)
        until(lambda: world.status().get("readyReplicas") == 3, 60)
        assert load.poll() is None
        hpa = cluster.get("hpa", "chat", "-n", world.namespace)
        assert hpa["spec"]["scaleTargetRef"]["kind"] == "InferenceService"
        assert hpa["spec"]["metrics"][0]["pods"]["metric"]["name"] == "queueLength"
        assert "queued over" in world.status()["scaling"]["reason"]
    finally:
        load.kill()
        load.wait()
    until(lambda: world.status().get("readyReplicas") == 1 and world.status()["replicas"] == 1, 90)
    reasons = [e[1] for e in world.events()]
    assert "ScaledUp" in reasons and "ScaledDown" in reasons


def test_somebody_elses_metrics_api_is_not_taken_over(cluster, world):
    ours, theirs = "v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io"
    cluster.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": theirs},
                   "spec": {"group": "custom.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                            "versionPriority": 100, "insecureSkipTLSVerify": True,
                            "service": {"name": "prometheus-adapter", "namespace": "monitoring"}}})
    try:
        spec = cluster.get("apiservice", theirs)["spec"]
        world.apply(scaling={"maxReplicas": 2})
        c = world.wait_condition("ScalingActive", "False", "MetricsAPIConflict")
        assert "monitoring/prometheus-adapter" in c["message"]
        world.wait_condition("Ready", "True")
        assert cluster.get("hpa", "chat", "-n", world.namespace) is None
        until(lambda: cluster.get("apiservice", ours) is None)
        assert cluster.get("apiservice", theirs)["spec"] == spec
    finally:
        cluster.kubectl("delete", "apiservice", theirs)
    world.wait_condition("ScalingActive", "True", timeout=90)
