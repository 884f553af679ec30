# SPDX-License-Identifier: Apache-2.0
"""Runs last: the audit log of all tests before against the chart's roles."""

import yaml

from conftest import ACCOUNT, GROUP, ROOT, SYSTEM, until

# Needed where a cluster guards blockOwnerDeletion; a plain API server does not ask.
NOT_SEEN_HERE = {("update", "inferenceservices/finalizers")}


def granted(cluster):
    text = cluster.helm("template", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--kube-version", "1.36.3").stdout
    pairs = set()
    for doc in yaml.safe_load_all(text):
        if doc and doc["kind"] in ("ClusterRole", "Role") and doc["metadata"]["name"] == "penstock-operator":
            for rule in doc["rules"]:
                pairs |= {(v, r) for v in rule["verbs"] for r in rule["resources"]}
    return pairs


def used(cluster):
    allowed, refused = set(), {}
    for e in cluster.audit(ACCOUNT):
        ref = e.get("objectRef")
        if not ref or not ref.get("resource"):
            continue
        pair = (e["verb"], ref["resource"] + ("/" + ref["subresource"] if ref.get("subresource") else ""))
        if e.get("responseStatus", {}).get("code") == 403:
            # A namespace that is going refuses new content; that is no missing right.
            if "being terminated" not in e["responseStatus"].get("message", ""):
                refused[pair] = e["responseStatus"].get("message")
        else:
            allowed.add(pair)
    return allowed, refused


def test_no_right_is_missing_and_none_is_idle(cluster):
    allowed, refused = used(cluster)
    # An API server that just started refuses for a moment what it allows later.
    assert {p: m for p, m in refused.items() if p not in allowed} == {}
    # From the chart's own roles; the ConfigMap is the cluster's authentication-reader role.
    reader = {("list", "configmaps"), ("watch", "configmaps")}
    # A dry run of helm or a refused create shows as create; apply of a new object needs both verbs.
    creates = {("create", r) for r in ("deployments", "controllerrevisions", "services", "horizontalpodautoscalers",
                                       "apiservices")}
    assert allowed - reader <= granted(cluster)
    assert granted(cluster) - allowed - creates - NOT_SEEN_HERE == set()


def test_removing_the_chart_leaves_the_definition_and_nothing_else(cluster, operator):
    """The very last: what the operator made for itself goes with the chart, services stay."""
    operator.start()
    until(lambda: cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io"))
    cluster.kubectl("create", "ns", "stays")
    cluster.apply({"apiVersion": GROUP, "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "stays"},
                   "spec": {"model": {"source": "hf://org/repo/file.gguf"}}})
    until(lambda: cluster.get("deploy", "chat", "-n", "stays"))
    operator.stop()
    cluster.helm("uninstall", "penstock", "-n", SYSTEM)
    until(lambda: cluster.get("apiservice", "v1beta2.custom.metrics.k8s.io") is None
          and cluster.get("secret", "penstock-operator-tls", "-n", SYSTEM) is None, 60)
    assert cluster.get("crd", "inferenceservices.serving.penstock.io")
    assert cluster.get("psvc", "chat", "-n", "stays") and cluster.get("deploy", "chat", "-n", "stays")
