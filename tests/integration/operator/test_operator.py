# SPDX-License-Identifier: Apache-2.0
"""The operator itself: leadership, endpoints, memory, the chart."""

import pathlib
import re
import time

from conftest import ACCOUNT, ROOT, SYSTEM, Operator, until


def lease(cluster):
    return (cluster.get("lease", "penstock-operator", "-n", SYSTEM) or {}).get("spec", {})


def test_one_of_two_leads_and_the_other_takes_over(cluster, world):
    first, second = Operator(cluster), Operator(cluster, "operator2", 8082, 9444)
    try:
        first.start()
        holder = until(lambda: lease(cluster).get("holderIdentity"))
        second.start()
        world.apply()
        world.wait_condition("Ready", "True")
        assert lease(cluster)["holderIdentity"] == holder
        # Both answer health; only the holder says it leads.
        leads = 'leader_election_master_status{name="penstock-operator"}'
        assert f"{leads} 1" in first.http("/metrics").stdout
        assert f"{leads} 0" in second.http("/metrics").stdout

        # An orderly end hands over at once; a kill after the lease ran out (15 s).
        first.stop()
        until(lambda: lease(cluster).get("holderIdentity") not in ("", holder, None), 8)
        holder = lease(cluster)["holderIdentity"]
        first.start()
        second.kill()
        until(lambda: lease(cluster)["holderIdentity"] != holder, 25)
        world.kubectl("scale", "psvc", "chat", "--replicas=2")
        until(lambda: world.status().get("readyReplicas") == 2)
    finally:
        first.stop()
        second.stop()


def test_a_leader_that_slept_writes_nothing_and_ends(cluster, operator, world):
    operator.start()
    holder = until(lambda: lease(cluster).get("holderIdentity"))
    world.apply()
    world.wait_condition("Ready", "True")
    cluster.freeze(operator.name)
    other = Operator(cluster, "operator2", 8082, 9444).start()
    try:
        until(lambda: lease(cluster)["holderIdentity"] not in ("", holder), 30)
        cluster.thaw(operator.name)
        assert operator.process.wait(10) == 1
        assert "lease lost" in operator.log()
    finally:
        other.stop()


def test_endpoints(operator, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    assert operator.http("/healthz").stdout == "ok\n"
    text = operator.http("/metrics").stdout
    for name in ("controller_runtime_reconcile_total", "controller_runtime_reconcile_time_seconds_bucket",
                 "workqueue_depth", "workqueue_adds_total", "rest_client_requests_total",
                 "leader_election_master_status", "penstock_operator_services", "process_resident_memory_bytes"):
        assert re.search(rf"^{name}(\{{.*\}})? [0-9.e+-]+$", text, re.M), name
    assert 'rest_client_requests_total{method="PATCH",code="2xx"}' in text
    labels = f'{{namespace="{world.namespace}",name="chat"}}'
    for name in ("replicas_desired", "replicas_ready", "ready"):
        assert f"penstock_service_{name}{labels} 1\n" in text
    world.kubectl("scale", "psvc", "chat", "--replicas=2")
    until(lambda: 'penstock_operator_scale_decisions_total{direction="up"} 1' in operator.http("/metrics").stdout)


def test_a_rotated_token_is_read_again(operator, cluster, world):
    """The token is replaced on disk and the old one revoked: the operator goes on."""
    cluster.kubectl("create", "secret", "generic", "bound", "-n", SYSTEM)
    token = cluster.kubectl("create", "token", "penstock-operator", "-n", SYSTEM, "--bound-object-kind=Secret",
                            "--bound-object-name=bound").stdout
    path = cluster.dir / "rotated.token"
    path.write_text(token)
    kubeconfig = cluster.write_kubeconfig(cluster.dir / "rotated.kc", {"tokenFile": str(path)})
    operator.start(kubeconfig=kubeconfig)
    world.apply()
    world.wait_condition("Ready", "True")
    path.write_text((cluster.dir / "operator.token").read_text())
    cluster.kubectl("delete", "secret", "bound", "-n", SYSTEM)  # from now on the old token gets 401
    time.sleep(12)  # the API server caches a good token for 10 s
    world.kubectl("scale", "psvc", "chat", "--replicas=2")
    until(lambda: world.status().get("readyReplicas") == 2)
    assert operator.process.poll() is None


def test_memory_is_small(operator, world):
    """RssAnon of the release build; the sanitizers' builds are larger by nature."""
    operator.start()
    for i in range(10):
        world.apply(name=f"s{i}", scaling={"maxReplicas": 2})
    for i in range(10):
        world.wait_condition("Ready", "True", name=f"s{i}", timeout=60)
    time.sleep(25)  # the heap is trimmed each 20 s
    status = pathlib.Path(f"/proc/{operator.pid()}/status").read_text()
    anonymous = int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1))
    print(f"RssAnon {anonymous} kB with 10 services")
    maps = pathlib.Path(f"/proc/{operator.pid()}/maps").read_text()
    if "libasan" not in maps and "libtsan" not in maps:
        assert anonymous < 8192


def test_the_chart_is_clean_and_upgrades_the_definition(cluster, world):
    done = cluster.helm("lint", "--strict", ROOT / "charts/penstock")
    assert "0 chart(s) failed" in done.stdout
    assert (ROOT / "charts/penstock/files/inferenceservices.yaml").read_text() == (
        ROOT / "crds/inferenceservices.yaml").read_text()
    assert (ROOT / "crds/inferenceservices.yaml").stat().st_size < 60000
    # An older definition is brought up to date by the chart.
    cluster.kubectl("patch", "crd", "inferenceservices.serving.penstock.io", "--type=json", "-p",
                    '[{"op":"remove","path":"/spec/names/shortNames"}]')
    cluster.helm("upgrade", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--set", "replicas=0", "--force")
    crd = cluster.get("crd", "inferenceservices.serving.penstock.io")
    assert crd["spec"]["names"]["shortNames"] == ["psvc"]
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    for bad in ("replicas=x", "nonsense=1", "log.level=loud"):
        assert cluster.helm("template", "penstock", ROOT / "charts/penstock", "--set", bad, "--kube-version", "1.36.3",
                            check=False).returncode


def test_the_operators_pod_passes_the_restricted_level(cluster):
    cluster.kubectl("label", "ns", SYSTEM, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    cluster.helm("upgrade", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--set", "replicas=1")
    try:
        until(lambda: cluster.get("pods", "-n", SYSTEM)["items"])
    finally:
        cluster.helm("upgrade", "penstock", ROOT / "charts/penstock", "-n", SYSTEM, "--set", "replicas=0")
    assert ACCOUNT.endswith(cluster.get("deploy", "penstock-operator", "-n", SYSTEM)["spec"]["template"]["spec"][
        "serviceAccountName"])
