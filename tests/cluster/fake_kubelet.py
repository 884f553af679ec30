# SPDX-License-Identifier: Apache-2.0
"""Plays the kubelet and the runtime for pods of InferenceServices.

Runs inside the control plane's network namespace: gives each pod an address on the bridge, answers
/startupz and /metrics there as penstock-runtime does, and writes pod status. What each pod does is
read from a JSON file, so tests steer it by writing that file:

    {"*": {"phase": "ready", "waiting": 3}, "POD": {"phase": "loading", "percent": 40}}

Keys of a pod: phase, percent, bytes_total, error; waiting, running; silent (accept, say nothing);
gpus (a list of {utilization, used, total}, each may have an xid);
container (a containerStatuses entry laid over the default), conditions (list laid over).
"""

import http.client
import http.server
import json
import pathlib
import socketserver
import ssl
import subprocess
import sys
import threading
import time

LABEL = "serving.penstock.io/service"
NOW = "2026-01-01T00:00:00Z"


class Api:
    def __init__(self, folder):
        pki = folder / "pki"
        self.context = ssl.create_default_context(cafile=str(pki / "server-ca.crt"))
        self.context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))

    def call(self, method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=self.context, timeout=10)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": content_type})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data[:1] == b"{" else {}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        # Not HTTPServer's, which looks the address up in a DNS that is not there.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


class Pod:
    """One pod: an address, a small HTTP server, and the last status written."""

    def __init__(self, kubelet, name, address):
        self.kubelet, self.name, self.address, self.written = kubelet, name, address, None
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "pstk0"], check=True)
        pod = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                pod.answer(self)

            def log_message(self, *unused):
                pass

        self.server = Server((address, 8001), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def state(self):
        return self.kubelet.state(self.name)

    def answer(self, request):
        state = self.state()
        if state.get("silent"):
            time.sleep(5)
            request.close_connection = True
            return
        if request.path == "/startupz":
            body = json.dumps({k: state.get(k, d) for k, d in (
                ("phase", "ready"), ("percent", 0), ("bytes_done", 0), ("bytes_total", 0), ("error", None))})
            code = 200 if state["phase"] == "ready" else 503
        elif request.path == "/metrics":
            label = '{model_name="m"}'
            body = (f"# TYPE penstock_queue_length gauge\npenstock_queue_length{label} {state.get('waiting', 0)}\n"
                    f"penstock_requests_running{label} {state.get('running', 0)}\n"
                    f"penstock_kv_cache_usage_ratio{label} 0.25\n")
            for index, gpu in enumerate(state.get("gpus", [])):
                label = f'{{model_name="m",engine="0",gpu="{index}",uuid="GPU-{index}"}}'
                body += (f"penstock_gpu_utilization_ratio{label} {gpu['utilization']}\n"
                         f"penstock_gpu_memory_used_bytes{label} {gpu['used']}\n"
                         f"penstock_gpu_memory_total_bytes{label} {gpu['total']}\n")
                if "xid" in gpu:
                    body += f"penstock_gpu_last_xid{label} {gpu['xid']}\n"
            code = 200
        else:
            code, body = 404, ""
        data = body.encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def status(self):
        state = self.state()
        ready = state["phase"] == "ready" and "container" not in state
        container = {"name": "runtime", "image": "i", "imageID": "", "ready": ready, "restartCount": 0,
                     "state": {"running": {"startedAt": NOW}}}
        container.update(state.get("container", {}))
        conditions = [{"type": t, "status": "True" if ready else "False", "lastTransitionTime": NOW}
                      for t in ("Ready", "ContainersReady")]
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW})
        for extra in state.get("conditions", []):
            conditions = [c for c in conditions if c["type"] != extra["type"]] + [extra]
        return {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}],
                "startTime": NOW, "conditions": conditions, "containerStatuses": [container]}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        subprocess.run(["ip", "addr", "del", f"{self.address}/32", "dev", "pstk0"], check=False)


class Kubelet:
    def __init__(self, folder):
        self.folder, self.api, self.pods, self.next = folder, Api(folder), {}, 0
        self.states = {}

    def state(self, name):
        merged = {"phase": "ready"}
        merged.update(self.states.get("*", {}))
        merged.update(self.states.get(name, {}))
        return merged

    def read_states(self):
        try:
            self.states = json.loads((self.folder / "pods.json").read_text())
        except (OSError, ValueError):
            pass

    def turn(self):
        self.read_states()
        status, pods = self.api.call("GET", f"/api/v1/pods?labelSelector={LABEL}")
        if status != 200:
            return
        seen = set()
        for pod in pods["items"]:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            uid = pod["metadata"]["uid"]
            if "deletionTimestamp" in pod["metadata"]:
                self.api.call("DELETE", path, {"gracePeriodSeconds": 0})
                continue
            seen.add(uid)
            if self.state(pod["metadata"]["name"]).get("pending"):
                continue
            if uid not in self.pods:
                self.next += 1
                self.pods[uid] = Pod(self, pod["metadata"]["name"],
                                     f"10.88.{1 + self.next // 250}.{1 + self.next % 250}")
            mine = self.pods[uid]
            wanted = mine.status()
            if wanted != mine.written:
                code, _ = self.api.call("PATCH", path + "/status", {"status": wanted},
                                        "application/merge-patch+json")
                mine.written = wanted if code == 200 else None
        for uid in set(self.pods) - seen:
            self.pods.pop(uid).close()


def main():
    kubelet = Kubelet(pathlib.Path(sys.argv[1]))
    while True:
        try:
            kubelet.turn()
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(f"turn failed: {error}", flush=True)
        time.sleep(0.15)


if __name__ == "__main__":
    main()
