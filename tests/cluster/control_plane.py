# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane in a network namespace of its own.

etcd, kube-apiserver and kube-controller-manager (and, if asked, the scheduler) run as plain
processes; nothing of the host's network, mounts or cgroups is touched. A keeper process holds the
namespaces; everything else enters them with nsenter. When the keeper dies, all its children die.
"""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

VERSION = "1.36.3"
NODE_ADDRESS = "10.88.0.1"
SERVICE_RANGE = "10.0.0.0/24"

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def binaries():
    """The folder of the Kubernetes binaries; scripts fill it once per version."""
    cache = os.environ.get("PENSTOCK_CACHE") or os.path.expanduser("~/.cache/penstock")
    return pathlib.Path(cache) / f"kubernetes-{VERSION}" / "bin"


class Pki:
    """The cluster's certificate authorities and the leaves they sign (ECDSA P-256)."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)

    def authority(self, name):
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")

    def leaf(self, name, authority, subject, usage, san=None):
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        extensions = f"extendedKeyUsage={usage}\nkeyUsage=digitalSignature\n"
        if san:
            extensions += f"subjectAltName={san}\n"
        (self.folder / f"{name}.ext").write_text(extensions)
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey",
                      f"{authority}.key", "-CAcreateserial", "-days", "30", "-out", f"{name}.crt",
                      "-extfile", f"{name}.ext")

    def make_all(self):
        for name in ("server-ca", "client-ca", "request-header-ca"):
            self.authority(name)
        self.leaf("apiserver", "server-ca", "/CN=kube-apiserver", "serverAuth",
                  f"DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1,IP:{NODE_ADDRESS}")
        self.leaf("admin", "client-ca", "/O=system:masters/CN=system:admin", "clientAuth")
        self.leaf("kcm", "client-ca", "/CN=system:kube-controller-manager", "clientAuth")
        self.leaf("sched", "client-ca", "/CN=system:kube-scheduler", "clientAuth")
        self.leaf("node", "client-ca", "/O=system:nodes/CN=system:node:n1", "clientAuth")
        self.leaf("a2k", "client-ca", "/CN=kube-apiserver", "clientAuth")
        self.leaf("proxy", "request-header-ca", "/CN=system:auth-proxy", "clientAuth")
        self._openssl("genrsa", "-out", "sa.key", "2048")
        self._openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")


class ControlPlane:
    """start(), use kubectl() or kubeconfig, stop(). Extra flags are for fault tests."""

    def __init__(self, scheduler=False, apiserver_flags=(), kcm_flags=()):
        self.bin = binaries()
        self.scheduler = scheduler
        self.apiserver_flags = list(apiserver_flags)
        self.kcm_flags = list(kcm_flags)
        self.dir = None
        self.keeper = None
        self.processes = {}

    # --- life ---

    def start(self):
        if not (self.bin / "kube-apiserver").exists():
            raise RuntimeError(f"no Kubernetes binaries in {self.bin}")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
        try:
            self._open_namespaces()
            Pki(self.dir / "pki").make_all()
            for name in ("admin", "kcm", "sched", "node"):
                self._write_kubeconfig(name)
            (self.dir / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))
            self.start_etcd()
            self.start_apiserver()
            self.wait_ready()
            self.start_controllers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        for name in ("sched", "kcm", "apiserver", "etcd"):
            self.kill(name, signal.SIGTERM)
        for process in list(self.processes.values()):
            if process.poll() is None:
                process.kill()
            process.wait()
        self.processes.clear()
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()
            self.keeper = None
        if self.dir and not os.environ.get("PENSTOCK_KEEP_CLUSTER"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()

    def _open_namespaces(self):
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "--kill-child", "--fork",
             "sleep", "infinity"])
        # The namespaces are the child's; wait until it has its own.
        deadline = time.monotonic() + 10
        own = os.readlink("/proc/self/ns/net")
        while True:
            children = pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()
            if children and os.readlink(f"/proc/{children[0]}/ns/net") != own:
                self.target = children[0]
                break
            if time.monotonic() > deadline:
                raise RuntimeError("no namespaces: root rights are needed")
            time.sleep(0.01)
        self.run(["sh", "-c",
                  f"ip link set lo up && ip link add pstk0 type bridge && "
                  f"ip addr add {NODE_ADDRESS}/24 dev pstk0 && ip link set pstk0 up && "
                  f"ip route add default via {NODE_ADDRESS} dev pstk0"])

    def _write_kubeconfig(self, name):
        pki = self.dir / "pki"
        self.write_kubeconfig(self.dir / f"{name}.kc", {
            "client-certificate": str(pki / f"{name}.crt"), "client-key": str(pki / f"{name}.key")})

    def write_kubeconfig(self, path, user, namespace=None, server="https://127.0.0.1:6443"):
        context = {"cluster": "c", "user": "u"}
        if namespace:
            context["namespace"] = namespace
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": server,
                "certificate-authority": str(self.dir / "pki" / "server-ca.crt")}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": context}]}))
        return path

    # --- processes in the namespaces ---

    def enter(self, command):
        return ["nsenter", "--net", "--mount", "-t", self.target, *map(str, command)]

    def run(self, command, check=True, **kwargs):
        kwargs.setdefault("capture_output", True)
        kwargs.setdefault("text", True)
        kwargs.setdefault("timeout", 120)
        done = subprocess.run(self.enter(command), **kwargs)
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def spawn(self, name, command, **kwargs):
        with open(self.dir / f"{name}.log", "ab") as log:
            # PENSTOCK_ variables of the tests are options to our binaries.
            kwargs.setdefault("env", {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")})
            process = subprocess.Popen(self.enter(command), cwd=self.dir, stdout=log, stderr=log, **kwargs)
        self.processes[name] = process
        return process

    def kill(self, name, sig=signal.SIGKILL, timeout=10):
        process = self.processes.pop(name, None)
        if not process:
            return
        if process.poll() is None:
            process.send_signal(sig)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_etcd(self):
        self.spawn("etcd", [self.bin / "etcd", f"--data-dir={self.dir}/etcd",
                            "--listen-client-urls=http://127.0.0.1:2379",
                            "--advertise-client-urls=http://127.0.0.1:2379",
                            "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync",
                            "--log-level=error"])

    def start_apiserver(self):
        pki = self.dir / "pki"
        self.spawn("apiserver", [
            self.bin / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0",
            f"--advertise-address={NODE_ADDRESS}", "--secure-port=6443",
            f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/client-ca.crt", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICE_RANGE}", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
            f"--requestheader-client-ca-file={pki}/request-header-ca.crt",
            "--requestheader-allowed-names=system:auth-proxy", "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/proxy.crt", f"--proxy-client-key-file={pki}/proxy.key",
            "--kubelet-preferred-address-types=InternalIP", f"--kubelet-client-certificate={pki}/a2k.crt",
            f"--kubelet-client-key={pki}/a2k.key", "--enable-aggregator-routing=true",
            f"--audit-policy-file={self.dir}/audit.yaml", f"--audit-log-path={self.dir}/audit.log",
            *self.apiserver_flags])

    def wait_ready(self, timeout=60):
        deadline = time.monotonic() + timeout
        while self.kubectl("get", "--raw", "/readyz", check=False).returncode:
            if time.monotonic() > deadline or self.processes["apiserver"].poll() is not None:
                raise RuntimeError(f"kube-apiserver is not ready; see {self.dir}/apiserver.log")
            time.sleep(0.2)

    def start_controllers(self):
        pki = self.dir / "pki"
        self.spawn("kcm", [
            self.bin / "kube-controller-manager", *self._component("kcm"), "--use-service-account-credentials",
            f"--service-account-private-key-file={pki}/sa.key", f"--root-ca-file={pki}/server-ca.crt",
            "--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s", *self.kcm_flags])
        if self.scheduler:
            self.spawn("sched", [self.bin / "kube-scheduler", *self._component("sched")])
            self.kubectl("create", "clusterrolebinding", "a2k", "--clusterrole=system:kubelet-api-admin",
                         "--user=kube-apiserver")

    def _component(self, name):
        kubeconfig = self.dir / f"{name}.kc"
        return [f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", "--leader-elect=false"]

    # --- talking to it ---

    @property
    def kubeconfig(self):
        return self.dir / "admin.kc"

    def kubectl(self, *args, stdin=None, check=True, kubeconfig=None):
        return self.run([self.bin / "kubectl", f"--kubeconfig={kubeconfig or self.kubeconfig}", *args],
                        input=stdin, check=check)

    def get(self, *args):
        """An object or list as a dict; None when it is not there."""
        done = self.kubectl("get", *args, "-o", "json", check=False)
        if done.returncode:
            if "NotFound" in done.stderr or "not found" in done.stderr:
                return None
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def apply(self, *objects, check=True):
        text = "\n---\n".join(o if isinstance(o, str) else json.dumps(o) for o in objects)
        return self.kubectl("apply", "-f", "-", stdin=text, check=check)

    def helm(self, *args, check=True):
        return self.run([self.bin / "helm", f"--kubeconfig={self.kubeconfig}", *args], check=check)

    def audit(self, user=None):
        """The audit log's events, of one user if given."""
        events = []
        with open(self.dir / "audit.log", encoding="utf-8") as log:
            for line in log:
                if line.endswith("\n"):
                    event = json.loads(line)
                    if user is None or event["user"].get("username") == user:
                        events.append(event)
        return events
