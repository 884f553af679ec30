# SPDX-License-Identifier: Apache-2.0
"""A real node on top of the control plane: containerd and runc (Debian's), kubelet, kube-proxy and
CoreDNS, all in the same sandbox. Pods get addresses on the bridge, and the node's own cgroup.

Shown on cgroup v1. On cgroup v2 the same settings are used (cgroupfs driver, a group of our own under
the root); that is untested.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

from tests.cluster.control_plane import NODE_ADDRESS, ControlPlane

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"

CNI = {
    "cniVersion": "0.4.0", "name": "penstock",
    "plugins": [{"type": "bridge", "bridge": "pstk0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]],
                          "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}}],
}

CONTAINERD = """version = 2
root = "{dir}/containerd/root"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""

COREFILE = """.:53 {{
 bind {address}
 errors
 kubernetes cluster.local {{
  kubeconfig {kubeconfig}
 }}
}}
"""


class Node(ControlPlane):
    """A ControlPlane with one node, n1. load() brings images onto it."""

    def __init__(self, **kwargs):
        super().__init__(scheduler=True, **kwargs)

    def start(self):
        super().start()
        try:
            self.cgroups.make()
            # The node authorizer learns late which claims a new pod uses; roles do not wait for it.
            self.kubectl("create", "clusterrolebinding", "nodes", "--clusterrole=system:node", "--group=system:nodes")
            self._start_containerd()
            self._start_kubelet()
            self._start_proxy()
            self._start_dns()
            self._wait_node()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self, question, what, name, timeout=60):
        deadline = time.monotonic() + timeout
        while not question():
            if time.monotonic() > deadline or self.processes[name].poll() is not None:
                raise RuntimeError(f"{what}; {name} said:\n{self.tail(name)}")
            time.sleep(0.2)

    def tail(self, name, lines=15):
        """The end of a process's log."""
        text = (self.dir / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _start_containerd(self):
        (self.dir / "cni").mkdir()
        (self.dir / "cni/10-penstock.conflist").write_text(json.dumps(CNI))
        config = self.dir / "containerd.toml"
        config.write_text(CONTAINERD.format(dir=self.dir, pause=PAUSE))
        self.spawn("containerd", ["containerd", "-c", config])
        self._wait(lambda: self._ctr("version", check=False).returncode == 0, "containerd does not answer",
                   "containerd")
        self.load(*small_images(self.dir))

    def _ctr(self, *args, check=True):
        return self.run(["ctr", "-a", "/run/containerd.sock", "-n", "k8s.io", *args], check=check)

    def load(self, *archives):
        """Image archives, as scripts/image.py writes them."""
        for archive in archives:
            self._ctr("images", "import", pathlib.Path(archive).resolve())

    def _start_kubelet(self):
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroups.name}",
            "cgroupsPerQOS": True, "enforceNodeAllocatable": ["pods"], "failSwapOn": False,
            "localStorageCapacityIsolation": False, "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%",
                             "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
            "containerRuntimeEndpoint": "unix:///run/containerd.sock",
            "authentication": {"x509": {"clientCAFile": f"{self.dir}/pki/client-ca.crt"},
                               "webhook": {"enabled": True}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"}, "address": NODE_ADDRESS, "resolvConf": "",
            "clusterDNS": [NODE_ADDRESS], "clusterDomain": "cluster.local",
            "nodeStatusReportFrequency": "10s", "syncFrequency": "10s",
        }
        path = self.dir / "kubelet.json"
        path.write_text(json.dumps(config))
        self.spawn("kubelet", [self.bin / "kubelet", f"--config={path}", f"--kubeconfig={self.dir}/node.kc",
                               "--hostname-override=n1", f"--node-ip={NODE_ADDRESS}",
                               f"--root-dir={self.dir}/kubelet", f"--cert-dir={self.dir}/kubelet-pki"])

    def _start_proxy(self):
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "iptables", "clientConnection": {"kubeconfig": f"{self.dir}/kproxy.kc"},
            "clusterCIDR": "10.88.0.0/24", "iptables": {"minSyncPeriod": "0s"},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        path = self.dir / "kube-proxy.json"
        path.write_text(json.dumps(config))
        self.spawn("kube-proxy", [self.bin / "kube-proxy", f"--config={path}", "--hostname-override=n1"])

    def _start_dns(self):
        (self.dir / "Corefile").write_text(COREFILE.format(address=NODE_ADDRESS, kubeconfig=self.kubeconfig))
        self.spawn("coredns", [self.bin / "coredns", "-conf", self.dir / "Corefile"])

    def _wait_node(self):
        self._wait(self._node_ready, "the node is not Ready", "kubelet")

    def _node_ready(self):
        status, node = self.api("GET", "/api/v1/nodes/n1")
        conditions = node.get("status", {}).get("conditions", []) if status == 200 else []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def address(self, namespace, service):
        """The address of a Service, for clients inside()."""
        status, found = self.api("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        if status != 200:
            raise RuntimeError(f"no Service {namespace}/{service}: {found}")
        return found["spec"]["clusterIP"]


def small_images(folder):
    """Archives of what pods stand on and of a box of tools, both from Debian's static busybox."""
    busybox = shutil.which("busybox")
    script = folder / "pause.sh"
    script.write_text("#!/bin/busybox sh\nexec /bin/busybox sleep 2147483647\n")
    script.chmod(0o755)
    made = []
    for name, tag, entrypoint in (("pause", PAUSE, "/pause"), ("busybox", BUSYBOX, "/bin/busybox")):
        out = folder / f"{name}.tar"
        subprocess.run([sys.executable, ROOT / "scripts/image.py", out, "--tag", tag, "--binary", busybox,
                        "--file", f"{busybox}:/bin/busybox", "--file", f"{script}:/pause",
                        "--entrypoint", entrypoint], check=True, capture_output=True)
        made.append(out)
    return made
