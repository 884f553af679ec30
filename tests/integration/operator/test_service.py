# SPDX-License-Identifier: Apache-2.0
"""The life of a service on a real API server and real controllers."""

import json
import signal
import time

from conftest import ACCOUNT, GROUP, until


def owners(obj):
    return [(o["kind"], o["name"], o.get("controller")) for o in obj["metadata"].get("ownerReferences", [])]


def test_from_manifest_to_ready_to_gone(operator, world):
    world.behave(all={"phase": "downloading", "percent": 5, "bytes_total": 1000})
    operator.start()
    world.apply(resources={"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "2Gi"}})
    until(lambda: world.status().get("loadingReplicas") == 1)
    world.wait_condition("ModelReady", "False", "Downloading")
    assert world.condition("Ready")["status"] == "False"
    world.behave(all={"phase": "loading", "percent": 57, "bytes_total": 1000})
    until(lambda: world.status().get("model") == {"phase": "Loading", "loadedPercent": 50, "bytesTotal": 1000})
    world.behave(all={"phase": "ready", "bytes_total": 1000})
    world.wait_condition("Ready", "True", "Serving")

    status = world.status()
    assert status["observedGeneration"] == world.get()["metadata"]["generation"]
    assert status["selector"] == "serving.penstock.io/service=chat"
    assert status["url"] == f"http://chat.{world.namespace}.svc:8000"
    assert status["replicas"] == status["readyReplicas"] == 1 and status["loadingReplicas"] == 0
    assert {c["type"] for c in status["conditions"]} == {
        "Ready", "Progressing", "ModelReady", "ScalingActive", "Degraded", "UpgradeAvailable"}
    for kind in ("deploy", "svc"):
        assert owners(world.get(kind)) == [("InferenceService", "chat", True)]
    assert world.get("hpa") is None
    table = world.kubectl("get", "psvc").stdout.split()
    assert table[:7] == ["NAME", "READY", "REPLICAS", "DESIRED", "MODEL", "URL", "REASON"] and "Serving" in table
    assert ("Normal", "Serving", "requests are answered") in world.events()

    world.kubectl("delete", "psvc", "chat")
    until(lambda: not world.pods() and world.get("deploy") is None and world.get("svc") is None)
    until(lambda: not world.cluster.get("controllerrevisions", "-n", world.namespace)["items"])


def test_pods_are_restricted(operator, world):
    world.kubectl("label", "ns", world.namespace, "pod-security.kubernetes.io/enforce=restricted")
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    pod = world.pods()[0]["spec"]
    assert pod["automountServiceAccountToken"] is False
    runtime = pod["containers"][0]
    assert runtime["securityContext"]["readOnlyRootFilesystem"] is True
    assert {runtime[p]["httpGet"]["port"] for p in ("startupProbe", "readinessProbe", "livenessProbe")} == {"metrics"}


def test_steady_state_writes_nothing(operator, world):
    operator.start()
    world.apply(resources={"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 2}},
                scaling={"maxReplicas": 3, "metrics": [{"name": "queueLength", "target": "4500m"}]},
                podTemplate={"metadata": {"annotations": {"a": "b"}},
                             "spec": {"tolerations": [{"key": "x", "operator": "Exists"}], "volumes": [],
                                      "nodeSelector": None,
                                      "containers": [{"name": "app", "image": "app:1",
                                                      "resources": {"requests": {"memory": "0.5Gi", "cpu": ".5"}},
                                                      "ports": [{"containerPort": 80}],
                                                      "env": [{"name": "A", "value": ""}]}]}})
    world.wait_condition("Ready", "True")
    world.wait_condition("ScalingActive", "True", timeout=40)
    until(lambda: world.get("hpa")["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Max")
    time.sleep(3)
    before = len(operator.writes())
    version = world.get()["metadata"]["resourceVersion"]
    time.sleep(10)
    assert operator.writes()[before:] == []

    # Killed without warning and started again: no pod restarts, no write but the Lease.
    pods = {p["metadata"]["uid"] for p in world.pods()}
    operator.kill()
    operator.start()
    until(lambda: "reconciling starts" in operator.log().split("operator starts")[-1], 40)
    time.sleep(8)
    assert operator.writes()[before:] == []
    assert {p["metadata"]["uid"] for p in world.pods()} == pods
    assert world.get()["metadata"]["resourceVersion"] == version


def test_hand_made_changes_are_put_right(operator, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    world.kubectl("delete", "svc", "chat")
    until(lambda: world.get("svc"))
    world.kubectl("scale", "deploy", "chat", "--replicas=3")
    until(lambda: world.get("deploy")["spec"]["replicas"] == 1)
    world.kubectl("label", "deploy", "chat", "team=ml")
    world.kubectl("set", "image", "deploy/chat", "runtime=other:1")
    until(lambda: world.get("deploy")["spec"]["template"]["spec"]["containers"][0]["image"] != "other:1")
    assert world.get("deploy")["metadata"]["labels"]["team"] == "ml"
    world.kubectl("delete", "controllerrevision", "--all")
    until(lambda: world.cluster.get("controllerrevisions", "-n", world.namespace)["items"])


def test_scale_is_the_only_writer_of_replicas(operator, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    scale = json.loads(world.kubectl("get", "--raw",
                                     f"/apis/{GROUP}/namespaces/{world.namespace}/inferenceservices/chat/scale").stdout)
    assert scale["spec"]["replicas"] == 1 and scale["status"]["selector"] == "serving.penstock.io/service=chat"
    revisions = world.cluster.get("controllerrevisions", "-n", world.namespace)["items"]
    world.kubectl("scale", "psvc", "chat", "--replicas=2")
    until(lambda: world.status().get("readyReplicas") == 2)
    assert world.status()["scaling"]["desiredReplicas"] == 2
    # A scaling event changes the generation, and must not make another template.
    after = world.cluster.get("controllerrevisions", "-n", world.namespace)["items"]
    assert [r["metadata"]["uid"] for r in after] == [r["metadata"]["uid"] for r in revisions]
    assert ("Normal", "ScaledUp", "from 1 to 2 replicas: set by /scale") in world.events()


def test_an_upgrade_restarts_no_pod(operator, world):
    operator.start("--runtime-image=penstock/runtime:1")
    world.apply()
    world.wait_condition("Ready", "True")
    pods = {p["metadata"]["uid"] for p in world.pods()}
    operator.stop()
    operator.start("--runtime-image=penstock/runtime:2")
    world.wait_condition("UpgradeAvailable", "True", timeout=40)
    world.kubectl("scale", "psvc", "chat", "--replicas=2")
    until(lambda: world.status().get("readyReplicas") == 2)
    assert {p["spec"]["containers"][0]["image"] for p in world.pods()} == {"penstock/runtime:1"}
    assert pods <= {p["metadata"]["uid"] for p in world.pods()}
    world.kubectl("annotate", "psvc", "chat", "serving.penstock.io/refresh=now")
    until(lambda: {p["spec"]["containers"][0]["image"] for p in world.pods()} == {"penstock/runtime:2"}, 40)
    world.wait_condition("UpgradeAvailable", "False")
    world.wait_condition("Ready", "True")


def test_an_edit_rolls_and_ready_waits_for_it(operator, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    first = world.pods()[0]["metadata"]["name"]
    world.behave(**{"all": {"phase": "loading", "percent": 10}, first: {"phase": "ready"}})
    world.apply(runtime={"args": ["--log-level=debug"]})
    c = world.wait_condition("Ready", "False", "RolloutInProgress")
    assert c["observedGeneration"] == world.get()["metadata"]["generation"]
    assert world.status()["readyReplicas"] == 1  # the old one still serves
    world.behave(all={"phase": "ready"})
    world.wait_condition("Ready", "True")
    assert first not in [p["metadata"]["name"] for p in world.pods()]
    assert len(world.cluster.get("controllerrevisions", "-n", world.namespace)["items"]) == 1


def children(world):
    """Kind and name of all that belongs to the service."""
    revision, = world.cluster.get("controllerrevisions", "-n", world.namespace)["items"]
    return [("deploy", "chat"), ("svc", "chat"), ("controllerrevision", revision["metadata"]["name"])]


def test_strangers_objects_are_left_alone(operator, world):
    world.kubectl("create", "deployment", "chat", "--image=theirs")
    world.kubectl("create", "service", "clusterip", "chat", "--tcp=80")
    before = {k: world.get(k) for k in ("deploy", "svc")}
    operator.start()
    world.apply()
    c = world.wait_condition("Ready", "False", "ChildConflict")
    assert "Deployment, Service" in c["message"] and "rename" in c["message"]
    for kind, was in before.items():
        now = world.get(kind)
        assert now["metadata"]["uid"] == was["metadata"]["uid"] and now["spec"] == was["spec"]
        assert "ownerReferences" not in now["metadata"]
    world.kubectl("delete", "psvc", "chat")
    time.sleep(2)
    assert world.get("deploy") and world.get("svc")


def test_made_anew_under_its_old_name(operator, cluster, world):
    """The garbage collector still holds the children of the service that had the name before."""
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    old = {k: world.get(k, n)["metadata"]["uid"] for k, n in children(world)}
    cluster.freeze("kcm")
    try:
        world.kubectl("delete", "psvc", "chat")
        before = len(operator.writes())
        world.apply()
        c = world.wait_condition("Ready", "False", "ChildConflict")
        assert "ControllerRevision" in c["message"] and "Deployment" in c["message"]
        time.sleep(3)
        ours = [w for w in operator.writes()[before:] if w[1] != "events"]
        assert all(w[1] == "inferenceservices" for w in ours) and len(ours) <= 2, ours
    finally:
        cluster.thaw("kcm")
    world.wait_condition("Ready", "True", timeout=60)
    made = [w for w in operator.writes()[before:] if w[1] in ("controllerrevisions", "deployments", "services")]
    assert sorted(w[1] for w in made) == ["controllerrevisions", "deployments", "services"], made
    new = {k: world.get(k, n)["metadata"]["uid"] for k, n in children(world)}
    assert new.keys() == old.keys() and not set(new.values()) & set(old.values())


def test_a_namespace_on_its_way_out_is_left_alone(operator, cluster, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    revision = children(world)[2]
    cluster.freeze("kcm")
    try:
        cluster.kubectl("delete", "ns", world.namespace, "--wait=false")
        before, log = len(operator.writes()), len(operator.log())
        world.kubectl("delete", *revision, "--wait=false")
        until(lambda: operator.writes()[before:])
        time.sleep(8)  # longer than a refused write waits
        assert operator.writes()[before:] == [("patch", "controllerrevisions", None, revision[1], 403)]
        assert "nothing to reconcile any more" in operator.log()[log:]
    finally:
        cluster.thaw("kcm")
    until(lambda: not cluster.get("ns", world.namespace), 60)


def test_names_that_differ_in_case_and_dots_are_refused_with_a_remedy(world):
    for spec, message in (
            ({"model": {"source": "ftp://x/y"}}, "spec.model.source: start with hf://"),
            ({"model": {"source": "pvc://claim"}}, "pvc://CLAIM/PATH/TO/FILE"),
            ({"model": {"source": "hf://a/b"}}, "hf://ORGANISATION/REPOSITORY/FILE.gguf"),
            ({"model": {"source": "https://h/m.gguf", "secretRef": {"name": "x"}}}, "spec.model.secretRef: only a hf://"),
            ({"model": {"source": "pvc://c/p", "cache": {"claimName": "x"}}}, "spec.model.cache"),
            ({"scaling": {"minReplicas": 3, "maxReplicas": 2}}, "minReplicas is over maxReplicas"),
            ({"scaling": {"minReplicas": 0, "maxReplicas": 2}}, "spec.scaling.minReplicas"),
            ({"scaling": {"minReplicas": 1}}, "spec.scaling.maxReplicas"),
            ({"runtime": {"args": ["--port=1"]}}, "spec.runtime.args"),
            ({"runtime": {"device": "tpu"}}, "spec.runtime.device"),
            ({"probes": {"startup": {"timeout": "1m", "failureThreshold": 1}}}, "not both"),
            ({"modle": {}}, "modle")):
        done = world.apply(check=False, **spec)
        assert done.returncode and message in done.stderr, (spec, done.stderr)
    for name in ("1chat", "a.b", "x" * 53):
        done = world.apply(name=name, check=False)
        assert "metadata.name: at most 52" in done.stderr, done.stderr


def test_causes_are_lifted_from_pods(operator, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    crash = {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}}

    def ended(**last):
        return {"container": dict(crash, lastState={"terminated": dict(last, exitCode=1)})}

    for state, reason, message in (
            (ended(message="unknown option --foo\n", reason="Error"), "CrashLoopBackOff", "unknown option --foo"),
            (ended(reason="OOMKilled"), "OOMKilled", "memory"),
            (ended(message="'hf://a/b/c.gguf': 401, a token is needed", reason="Error"), "SourceUnauthorized", "401"),
            (ended(message="'https://h/m': 404, not there", reason="Error"), "SourceNotFound", "404"),
            (ended(message="h: Could not resolve host", reason="Error"), "SourceUnreachable", "resolve"),
            ({"container": {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}},
             "ImagePull", "cannot be pulled"),
            ({"container": {"state": {"waiting": {"reason": "CreateContainerConfigError",
                                                  "message": 'secret "hub" not found'}}}},
             "ContainerConfig", "hub"),
            ({"phase": "loading", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                                  "message": "0/1 nodes", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
             "Unschedulable", "0/1 nodes")):
        world.behave(all=state)
        c = world.wait_condition("Degraded", "True", reason)
        assert message in c["message"]
        assert world.wait_condition("Ready", "False", reason)
        assert ("Warning", reason, c["message"]) in until(world.events)
    world.behave(all={"phase": "ready"})
    world.wait_condition("Degraded", "False")
    world.wait_condition("Ready", "True")


def test_a_refused_write_is_told_and_tried_again(operator, world):
    operator.start()
    world.apply(podTemplate={"spec": {"containers": [{"name": "Not A Name", "image": "x"}]}})
    c = world.wait_condition("Degraded", "True", "ApplyFailed")
    assert 'Deployment "chat"' in c["message"] and "Not A Name" in c["message"]
    world.apply(podTemplate={"spec": {"containers": [{"name": "app", "image": "x"}]}})
    world.wait_condition("Ready", "True")
    assert {c["name"] for c in world.pods()[0]["spec"]["containers"]} == {"runtime", "app"}


def test_the_api_server_goes_and_comes(operator, cluster, world):
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    cluster.kill("apiserver", signal.SIGKILL)
    time.sleep(3)
    assert operator.http("/healthz").returncode == 0
    cluster.start_apiserver()
    cluster.wait_ready()
    operator.stop()  # its lease may have run out meanwhile, which ends it
    operator.start()
    world.kubectl("scale", "psvc", "chat", "--replicas=2")
    until(lambda: world.status().get("readyReplicas") == 2, 60)


