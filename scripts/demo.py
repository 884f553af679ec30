#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make demo: a real one-node Kubernetes, the chart, a model; load until replicas follow the queue.

    demo.py up      KEEP=1 in the environment keeps the cluster
    demo.py down    removes what KEEP=1 kept
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cluster import penstock, sandbox  # noqa: E402
from tests.cluster.node import Node  # noqa: E402

MANIFEST = ROOT / "docs/examples/chat.yaml"
QUESTION = "Why do rivers flow to the sea? Answer in two sentences."
MAX_REPLICAS = 3
ROUND = ["--num-prompts=24", "--concurrency=12", "--input-len=32", "--output-len=48", "--timeout=120s",
         "--quiet", "--output=json"]


class Failed(Exception):
    """A step that did not do what it should; the text says why."""


class Demo:
    def __init__(self, keep):
        self.keep = keep
        self.begin = time.monotonic()
        self.step = "starting"
        self.cluster = None
        self.url = None
        self.table = []
        self.history = []  # (seconds since the load began, replicas that serve)
        self.samples = []  # (seconds since the load began, waiting requests, replicas that serve)

    # --- saying ---

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:4.0f} s] {text}", flush=True)

    def row(self, what, value):
        self.table.append((what, value))

    @contextlib.contextmanager
    def doing(self, step, row=None):
        self.step = step
        self.say(f"{step} ...")
        start = time.monotonic()
        yield
        if row:
            self.row(row, f"{time.monotonic() - start:.1f} s")

    # --- steps ---

    def shell(self, command, quiet=True):
        """A program of ours or a build; its output is shown when it fails."""
        done = subprocess.run(command, cwd=ROOT, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if quiet else None,
                              stderr=subprocess.STDOUT if quiet else None)
        if done.returncode:
            output = "\n".join((done.stdout or "").splitlines()[-30:])
            raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}\n{output}")

    def prepare(self):
        with self.doing("building the operator and the runtime", "build"):
            self.shell(["cmake", "--preset", "release"])
            self.shell(["cmake", "--build", "build/release", "-t", "penstock-operator", "-t", "penstock-runtime"])
            self.shell(["scripts/image.sh"])
        with self.doing("getting the model SmolLM2-135M-Instruct"):
            self.shell(["scripts/fetch-models.sh", "smollm2"])
        with self.doing("getting Kubernetes (the first time it is built, about ten minutes)"):
            self.shell(["scripts/kubernetes.sh"], quiet=False)

    def bring_up(self):
        with self.doing("starting Kubernetes in a network namespace of its own", "Kubernetes start"):
            self.cluster = Node(keep=self.keep)
            self.cluster.start()
        version = self.cluster.cgroups.version
        self.say(f"node n1 is Ready; cgroup v{version}{' (untested)' if version == 2 else ''}")
        with self.doing("installing the chart: helm install penstock charts/penstock", "chart install"):
            penstock.load_images(self.cluster)
            penstock.install(self.cluster)

    def serve(self):
        self.step = "waiting for the service to be Ready"
        self.cluster.apply(penstock.models_volume())
        self.say(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}:")
        lines = MANIFEST.read_text(encoding="utf-8").splitlines()
        print("\n".join(f"         {line}" for line in lines if not line.startswith("#")), flush=True)
        start = time.monotonic()
        self.cluster.apply(MANIFEST.read_text(encoding="utf-8"))
        told, trouble = None, None
        while True:
            found = penstock.service(self.cluster)
            ready = penstock.condition(found, "Ready")
            text = f"{ready['reason']}: {ready['message']}"
            if ready["reason"] and text != told:
                self.say(f"chat is {'Ready' if ready['status'] == 'True' else 'not Ready yet'}: {text}")
                told = text
            if ready["status"] == "True":
                break
            # A pod may fail once and recover; one that goes on failing will not.
            bad = penstock.condition(found, "Degraded")
            trouble = (trouble or time.monotonic()) if bad["status"] == "True" else None
            if trouble and time.monotonic() - trouble > 30:
                raise Failed(f"the service does not become Ready: {bad['reason']}: {bad['message']}")
            if time.monotonic() - start > 180:
                raise Failed(f"the service is not Ready after 180 s; {told or 'it has no status'}")
            time.sleep(0.2)
        self.row("time to Ready", f"{time.monotonic() - start:.1f} s")
        self.step = "reaching the service"
        self.url = penstock.reach(self.cluster)

    def chat(self):
        self.step = "asking for a chat answer"
        self.say(f"asking through the Service ({self.url}): {QUESTION}")
        first, rate = self.cluster.inside(self.stream_answer)
        self.row("time to first token, idle", f"{first * 1000:.0f} ms")
        self.row("tokens/s, one stream, idle", f"{rate:.0f}")

    def stream_answer(self):
        body = {"model": "chat", "stream": True, "temperature": 0, "max_tokens": 96,
                "messages": [{"role": "user", "content": QUESTION}]}
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        start, first, count = time.monotonic(), None, 0
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Failed(f"the chat request was answered with {answer.status}: {answer.read(500)}")
        print("         ", end="")
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failed(f"the stream ended with an error: {event['error']}")
            text = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if text:
                first = first or time.monotonic()
                count += 1
                print(text.replace("\n", "\n         "), end="", flush=True)
        print(flush=True)
        if not first:
            raise Failed("the stream brought no text")
        return first - start, (count - 1) / max(time.monotonic() - first, 1e-9)

    def load(self):
        """Rounds of requests until one ran on all replicas: new rounds open new connections, which
        the Service spreads over the pods there are."""
        with self.doing(f"sending load, 12 requests at once where 2 are computed: {' '.join(ROUND[:4])}"):
            start, rounds, peak, seen = time.monotonic(), [], 0, None
            while True:
                full_at_start = seen is not None and seen[1] == MAX_REPLICAS
                bench = subprocess.Popen(
                    self.cluster.enter([ROOT / "build/release/runtime/penstock-runtime", "bench", "serve",
                                        f"--url={self.url}", f"--seed={len(rounds)}", *ROUND]),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    start_new_session=True)
                try:
                    while bench.poll() is None:
                        seen, queue = self.watch(start, seen)
                        peak = max(peak, queue)
                        if time.monotonic() - start > 420:
                            raise Failed(f"replicas did not reach {MAX_REPLICAS} in 420 s")
                        time.sleep(0.4)
                finally:
                    bench.kill()
                output, errors = bench.communicate()
                if bench.returncode:
                    raise Failed(f"requests failed under load: {errors or output}")
                rounds.append((full_at_start, json.loads(output)))
                if full_at_start:
                    break
        self.report_load(rounds, peak)
        with self.doing("load is over, waiting for one replica"):
            while seen[:2] != (1, 1):
                seen, _ = self.watch(start, seen)
                if time.monotonic() - start > 600:
                    raise Failed("replicas did not go back to 1")
                time.sleep(0.4)
        self.row("replicas that serve, over time", ", ".join(f"{n} at {t:.0f} s" for t, n in self.history))

    def watch(self, start, before):
        """Says what changed: (wanted, serving, loading), and the queue."""
        status = penstock.service(self.cluster).get("status", {})
        queue = penstock.metric(self.cluster, "queueLength") or 0
        scaling = status.get("scaling", {})
        seen = (scaling.get("desiredReplicas"), status.get("readyReplicas", 0), status.get("loadingReplicas", 0))
        self.samples.append((time.monotonic() - start, queue, seen[1]))
        if seen != before:
            self.say(f"{queue:.0f} requests wait; {seen[1]} replicas serve, {seen[2]} load, {seen[0]} wanted"
                     f" ({scaling.get('reason') or 'as it is'})")
            if not self.history or self.history[-1][1] != seen[1]:
                self.history.append((time.monotonic() - start, seen[1]))
        return seen, queue

    def report_load(self, rounds, peak):
        for full, title in ((False, "1 replica at first"), (True, f"{MAX_REPLICAS} replicas")):
            chosen = [r for was, r in rounds if was == full][:1]
            for r in chosen:
                self.row(f"under load, {title}", f"first token p50 {r['ttft_ms']['p50'] / 1000:.1f} s, "
                         f"{r['output_throughput']:.0f} tokens/s")
        self.row("peak queue", f"{peak:.0f} requests")

    # --- the whole ---

    def run(self):
        self.say("removing what an earlier run left ...")
        for name in sandbox.sweep(kept=True):
            self.say(f"removed the cluster {name}")
        self.prepare()
        self.bring_up()
        self.serve()
        self.chat()
        self.load()
        lines = [f"{t:.1f},{queue:.0f},{n}" for t, queue, n in self.samples]
        (ROOT / "build/demo.csv").write_text("\n".join(["seconds,waiting,replicas", *lines]) + "\n")
        self.row("the whole demo", f"{time.monotonic() - self.begin:.0f} s")
        width = max(len(what) for what, _ in self.table)
        print("\n" + "\n".join(f"{what:<{width}}  {value}" for what, value in self.table), flush=True)
        if self.keep:
            self.say_how_to_reach()

    def say_how_to_reach(self):
        enter = f"nsenter -t {self.cluster.target} -n"
        print(f"\nThe cluster stays; 'make demo-down' removes it. It is reached by\n\n"
              f"{enter} {self.cluster.bin}/kubectl --kubeconfig={self.cluster.kubeconfig} get psvc,hpa,pods\n\n"
              f"{enter} curl {self.url}/v1/chat/completions -H 'Content-Type: application/json' "
              "-d '{\"model\": \"chat\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'", flush=True)

    def explain(self):
        if self.cluster and self.cluster.processes.get("apiserver"):
            print(penstock.explain(self.cluster, "default", penstock.SYSTEM), file=sys.stderr)

    def clean(self, keep):
        if self.cluster and not keep:
            self.say("removing the cluster ...")
            self.cluster.stop()


def up():
    demo = Demo(os.environ.get("KEEP", "") not in ("", "0"))
    try:
        demo.run()
    except KeyboardInterrupt:
        print(f"\ndemo: interrupted while {demo.step}", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        demo.clean(keep=False)
        return 130
    except (Failed, RuntimeError, OSError, subprocess.SubprocessError) as e:
        demo.explain()
        print(f"demo: failed while {demo.step}: {e}", file=sys.stderr)
        demo.clean(keep=False)
        return 1
    demo.clean(keep=demo.keep)
    return 0


def down():
    removed = sandbox.sweep(kept=True)
    print("\n".join(f"removed the cluster {name}" for name in removed) or "there is no cluster to remove")
    return 0


def main(arguments):
    if arguments not in (["up"], ["down"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    # Being told to end, or losing the terminal, cleans up as well.
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.default_int_handler)
    return up() if arguments == ["up"] else down()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
