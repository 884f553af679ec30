# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane in a network namespace of its own.

etcd, kube-apiserver and kube-controller-manager (and, if asked, the scheduler) run as plain
processes in a sandbox (sandbox.py); nothing of the host's network, mounts or cgroups is touched.
"""

import http.client
import json
import os
import pathlib
import ssl
import subprocess
import time

from tests.cluster.sandbox import Sandbox

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
        self.leaf("kproxy", "client-ca", "/CN=system:kube-proxy", "clientAuth")
        self.leaf("a2k", "client-ca", "/CN=kube-apiserver", "clientAuth")
        self.leaf("proxy", "request-header-ca", "/CN=system:auth-proxy", "clientAuth")
        self._openssl("genrsa", "-out", "sa.key", "2048")
        self._openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")


class ControlPlane(Sandbox):
    """start(), use kubectl() or kubeconfig, stop(). Extra flags are for fault tests."""

    def __init__(self, scheduler=False, apiserver_flags=(), kcm_flags=(), keep=False):
        super().__init__(keep)
        self.bin = binaries()
        self.scheduler = scheduler
        self.apiserver_flags = list(apiserver_flags)
        self.kcm_flags = list(kcm_flags)
        self._tls = None

    # --- life ---

    def start(self):
        if not (self.bin / "kube-apiserver").exists():
            raise RuntimeError(f"no Kubernetes binaries in {self.bin}")
        try:
            self.open()
            self._make_network()
            Pki(self.dir / "pki").make_all()
            for name in ("admin", "kcm", "sched", "node", "kproxy"):
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
        self.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()

    def _make_network(self):
        """The bridge is the node's address, the pods' gateway and the API server's address at once."""
        self.run(["sh", "-ec",
                  f"ip link add pstk0 type bridge; ip addr add {NODE_ADDRESS}/24 dev pstk0; ip link set pstk0 up;"
                  f"ip route add default via {NODE_ADDRESS} dev pstk0; echo 1 >/proc/sys/net/ipv4/ip_forward"])

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

    # --- processes ---

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

    def api(self, method, path, body=None, content_type="application/json", timeout=30):
        """(status, object) of a request as administrator; costs less than a kubectl."""
        if self._tls is None:
            pki = self.dir / "pki"
            self._tls = ssl.create_default_context(cafile=str(pki / "server-ca.crt"))
            self._tls.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        return self.inside(self._call, method, path, body, content_type, timeout)

    def _call(self, method, path, body, content_type, timeout):
        connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=self._tls, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": content_type})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(data) if data[:1] == b"{" else data.decode(errors="replace")

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
