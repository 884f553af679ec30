# SPDX-License-Identifier: Apache-2.0
"""The life of a service on a real node: real pods, a real model, an unmodified client."""

import json
import threading
import time

import openai
from conftest import GROUP, kill, processes, until, writes
from tests.cluster import penstock


def client(world, url=None):
    return openai.OpenAI(base_url=f"{url or world.url()}/v1", api_key="none", max_retries=0, timeout=60,
                         _strict_response_validation=True)


def ask(api, tokens=8):
    answer = api.chat.completions.create(model="chat", messages=[{"role": "user", "content": "Count to ten."}],
                                         max_tokens=tokens, temperature=0)
    assert answer.usage.completion_tokens > 0
    return answer.choices[0].message.content


class Load:
    """Clients that ask without a pause until told to stop; what failed is kept."""

    def __init__(self, world, n=3):
        self.stop, self.answered, self.failures = threading.Event(), 0, []
        self.world, self.url = world, world.url()
        self.threads = [threading.Thread(target=world.cluster.inside, args=(self.work,)) for _ in range(n)]

    def work(self):
        api = client(self.world, self.url)
        while not self.stop.is_set():
            try:
                ask(api)
                self.answered += 1
            except openai.OpenAIError as e:
                self.failures.append(f"{type(e).__name__}: {e} {e.__cause__ or ''}")

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        for t in self.threads:
            t.join()


def test_edit_rolls_without_a_failed_request(cluster, world):
    world.apply()
    world.wait_condition("Ready", "True")
    old = world.pods()[0]["metadata"]["name"]
    with Load(world) as load:
        until(lambda: load.answered > 3 or load.failures, 60)
        world.apply(runtime={"args": ["--log-level=debug"]})
        world.wait_condition("Ready", "True", "Serving", timeout=90)
        until(lambda: world.kubectl("get", "pod", old, check=False).returncode, 90, "the old pod goes")
        before = load.answered
        until(lambda: load.answered > before + 3 or load.failures, 60)
    assert load.failures == []
    assert "--log-level=debug" in world.pods()[0]["spec"]["containers"][0]["args"]


def test_delete_takes_all_children(cluster, world):
    world.apply(scaling={"maxReplicas": 2})
    world.wait_condition("Ready", "True")
    kinds = "deploy,rs,pods,svc,endpointslices,hpa,controllerrevisions"
    assert len(world.kubectl("get", kinds, "-o", "name").stdout.split()) >= 7
    world.kubectl("delete", "psvc", "chat")
    until(lambda: not world.kubectl("get", kinds, "-o", "name").stdout.split(), 60,
          lambda: world.kubectl("get", kinds, "-o", "name").stdout)


def test_killed_runtime_is_replaced_and_told(cluster, world):
    world.apply()
    world.wait_condition("Ready", "True")
    pod = world.pods()[0]["metadata"]
    kill(cluster, "penstock-runtime")
    told = until(lambda: (lambda c: c["status"] == "False" and c)(world.condition("Ready")), 30)
    assert told["reason"] not in ("", "Serving") and told["message"]
    world.wait_condition("Ready", "True", "Serving")
    again = world.pods()[0]
    assert again["metadata"]["uid"] == pod["uid"]
    assert again["status"]["containerStatuses"][0]["restartCount"] == 1

    world.kubectl("delete", "pod", pod["name"], "--grace-period=0", "--force")
    until(lambda: world.condition("Ready")["status"] == "False", 30)
    world.wait_condition("Ready", "True", "Serving")
    assert world.pods()[0]["metadata"]["uid"] != pod["uid"]
    assert world.status()["readyReplicas"] == 1 and world.status()["loadingReplicas"] == 0
    cluster.inside(lambda: ask(client(world)))


def is_quiet(cluster):
    """No write of the operator's in five seconds."""
    before = len(cluster.audit(penstock.ACCOUNT))
    time.sleep(5)
    return writes(cluster.audit(penstock.ACCOUNT)[before:]) == []


def test_killed_operator_disturbs_nothing(cluster, world):
    world.apply(scaling={"maxReplicas": 2})
    world.wait_condition("Ready", "True")
    world.wait_condition("ScalingActive", "True", timeout=90)
    until(lambda: is_quiet(cluster), 90)  # what earlier tests deleted may still be on its way out
    pods = [(p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"]) for p in world.pods()]
    version = world.service()["metadata"]["resourceVersion"]
    before = len(cluster.audit(penstock.ACCOUNT))
    old = processes(cluster, "penstock-operator")
    kill(cluster, "penstock-operator")
    until(lambda: processes(cluster, "penstock-operator") - old, 60)
    until(lambda: "reconciling starts" in cluster.kubectl("logs", "deploy/penstock-operator", "-n", penstock.SYSTEM,
                                                          check=False).stdout, 60)
    time.sleep(8)
    since = cluster.audit(penstock.ACCOUNT)[before:]
    assert since, "the operator is back and asks"
    assert writes(since) == [], cluster.kubectl("logs", "deploy/penstock-operator", "-n", penstock.SYSTEM).stdout
    assert [(p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"])
            for p in world.pods()] == pods
    assert world.service()["metadata"]["resourceVersion"] == version


def test_invalid_manifest_is_refused_by_name_of_field(world):
    for spec, message in (
            ({"model": {"source": "ftp://x/y"}}, "spec.model.source: start with hf://"),
            ({"scaling": {"minReplicas": 3, "maxReplicas": 2}}, "spec.scaling.minReplicas is over maxReplicas"),
            ({"runtime": {"batching": {"maxSequences": 0}}}, "spec.runtime.batching.maxSequences"),
            ({"modle": {}}, "modle")):
        done = world.apply(check=False, **spec)
        assert done.returncode and message in done.stderr, (spec, done.stderr)
    # What only the runtime can judge is told by it, and lifted.
    world.apply(runtime={"args": ["--max-num-sheep=3"]})
    c = world.wait_condition("Degraded", "True", timeout=40)
    assert "max-num-sheep" in c["message"]


def test_own_container_reaches_its_sidecar(world):
    script = ("while :; do /bin/busybox wget -q -O - http://127.0.0.1:8000/v1/models && echo; "
              "/bin/busybox sleep 1; done")
    world.apply(podTemplate={"spec": {"containers": [{
        "name": "app", "image": "localhost/busybox:1", "command": ["/bin/busybox", "sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}})
    world.wait_condition("Ready", "True")
    assert {c["name"] for c in world.pods()[0]["spec"]["containers"]} == {"runtime", "app"}

    def answers():
        for line in world.kubectl("logs", "deploy/chat", "-c", "app").stdout.splitlines():
            if line.startswith("{"):
                return json.loads(line)["data"][0]["id"]
        return None
    assert until(answers, 20) == "chat"


def from_hub(endpoint, source):
    """A spec that asks a hub of ours, on a private address, over plain HTTP."""
    return {"model": {"source": source}, "runtime": {"args": ["--allow-private-sources"]},
            "podTemplate": {"spec": {"containers": [{"name": "runtime", "env": [
                {"name": "HF_ENDPOINT", "value": endpoint}]}]}}}


def test_source_trouble_is_told(world, hub):
    gone = "http://10.88.0.1:9"  # nobody listens
    world.apply("wrong", **from_hub(hub.url, "hf://org/model/nothing.gguf"))
    world.apply("private", **from_hub(hub.url, "hf://org/private/model.gguf"))
    world.apply("away", **from_hub(gone, "hf://org/model/model.gguf"))
    world.apply("absent", model={"source": "pvc://models/nothing.gguf"})
    for name, reason, text in (("wrong", "SourceNotFound", "404"), ("private", "SourceUnauthorized", "401"),
                               ("absent", None, "nothing.gguf"), ("away", "SourceUnreachable", "10.88.0.1")):
        c = world.wait_condition("Degraded", "True", reason, name=name, timeout=90)
        assert text in c["message"], c
        assert world.condition("Ready", name)["status"] == "False"


def test_model_is_downloaded_by_the_pod(cluster, world, hub):
    world.apply(**from_hub(hub.url, f"hf://org/model/{penstock.SMOLLM2}"))
    world.wait_condition("Ready", "True", timeout=90)
    assert world.status()["model"]["loadedPercent"] == 100
    cluster.inside(lambda: ask(client(world)))


def test_everything_is_served_under_the_cluster_name(cluster, world):
    """Through DNS, kube-proxy and from another pod: the address that the status gives."""
    world.apply()
    world.wait_condition("Ready", "True")
    assert world.status()["url"] == f"http://chat.{world.namespace}.svc:8000"
    done = world.kubectl("exec", "deploy/chat", "-c", "runtime", "--", "penstock-runtime", "bench", "serve",
                         f"--url={world.status()['url']}", "--num-prompts=2", "--concurrency=1", "--output-len=4",
                         "--input-len=4", "--output=json", "--quiet")
    assert json.loads(done.stdout)["completed"] == 2
    assert GROUP in world.kubectl("api-resources", "--api-group=serving.penstock.io").stdout
