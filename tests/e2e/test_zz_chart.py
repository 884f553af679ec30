# SPDX-License-Identifier: Apache-2.0
"""The chart; runs last, since it reads the audit log of all tests before."""

import yaml
from conftest import ROOT
from tests.cluster import penstock

CHART = ROOT / "charts/penstock"


def granted(cluster):
    """(verb, API group, resource) of the roles that the chart makes for the operator."""
    text = cluster.helm("template", "penstock", CHART, "-n", penstock.SYSTEM, "--kube-version", "1.36.3").stdout
    found = set()
    for doc in yaml.safe_load_all(text):
        if doc and doc["kind"] in ("ClusterRole", "Role") and doc["metadata"]["name"] == "penstock-operator":
            for rule in doc["rules"]:
                found |= {(v, g, r) for v in rule["verbs"] for g in rule["apiGroups"] for r in rule["resources"]}
    return found


def test_chart_is_clean(cluster):
    done = cluster.helm("lint", "--strict", CHART, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    done = cluster.helm("template", CHART, "--set", "workers=many", check=False)
    assert done.returncode and "workers" in done.stderr


def test_audit_log_shows_no_right_beyond_the_chart(cluster):
    allowed, refused = set(), {}
    for e in cluster.audit(penstock.ACCOUNT):
        ref = e.get("objectRef") or {}
        if not ref.get("resource"):
            continue
        right = (e["verb"], ref.get("apiGroup", ""),
                 ref["resource"] + (f"/{ref['subresource']}" if ref.get("subresource") else ""))
        if e.get("responseStatus", {}).get("code") == 403:
            # A namespace that is going refuses new content; that is no missing right.
            if "being terminated" not in e["responseStatus"].get("message", ""):
                refused[right] = e["responseStatus"].get("message")
        else:
            allowed.add(right)
    assert len(allowed) > 10
    # The cluster's own role that the chart binds, to know the API server's front proxy.
    reader = {("list", "", "configmaps"), ("watch", "", "configmaps")}
    assert allowed - reader - granted(cluster) == set()
    assert {r: m for r, m in refused.items() if r not in allowed} == {}


def test_upgrade_and_uninstall(cluster):
    """An upgrade applies the definition again; removing the chart keeps it, and nothing else."""
    crd = cluster.get("crd", "inferenceservices.serving.penstock.io")
    cluster.helm("upgrade", "penstock", CHART, "-n", penstock.SYSTEM, "--set", "log.level=debug", "--wait",
                 "--timeout=90s")
    assert cluster.get("crd", "inferenceservices.serving.penstock.io")["metadata"]["uid"] == crd["metadata"]["uid"]
    cluster.helm("uninstall", "penstock", "-n", penstock.SYSTEM, "--wait", "--timeout=90s")
    assert cluster.get("crd", "inferenceservices.serving.penstock.io")["metadata"]["uid"] == crd["metadata"]["uid"]
    left = cluster.kubectl("get", "clusterrole,clusterrolebinding,apiservice", "-o", "name").stdout.split()
    assert [n for n in left if "penstock-operator" in n or "custom.metrics" in n] == []
