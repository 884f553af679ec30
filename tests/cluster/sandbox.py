# SPDX-License-Identifier: Apache-2.0
"""Namespaces, a cgroup and a folder of one's own, and nothing left of them afterwards.

A keeper process owns a network, a mount and a PID namespace; everything else enters them with
nsenter. When the keeper dies, the kernel ends every process in the PID namespace, and with the last
of them go the interfaces, iptables rules and mounts. The keeper itself dies with the Python process
that opened the sandbox, even by SIGKILL, unless it was asked to be kept. What the kernel does not
clean up, cgroups and the folder, is named in a state file in the folder; whoever opens a sandbox
next removes what a dead owner left.

Inside, /run is an empty tmpfs and /var/lib and /var/log are overlays, so that programs with built-in
paths leave nothing on the host. A handful of kernel settings that a kubelet insists on are shown to
it as it wants them, in files of ours: the real ones are the host's and stay.

Processes are only ever ended by the keeper's PID and start time, or because they sit in a cgroup
that was made here.
"""

import ctypes
import json
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import subprocess
import threading
import time

RUNS = pathlib.Path("/var/tmp/penstock-clusters")
CLONE_NEWNET = 0x40000000
# what the kubelet writes when it finds something else
KUBELET_SETTINGS = {
    "vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
}


def start_time(pid):
    """Clock ticks since boot, or None: with the PID it names a process for ever."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def boot_id():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identity(pid):
    return {"pid": int(pid), "start": start_time(pid)}


def alive(who):
    return bool(who) and who["start"] is not None and start_time(who["pid"]) == who["start"]


class Cgroups:
    """One group of our own in every hierarchy; the groups of others are not touched."""

    def __init__(self, name):
        self.name = name
        self.v1, self.v2 = [], []
        for line in pathlib.Path("/proc/mounts").read_text().splitlines():
            _, path, kind = line.split()[:3]
            if kind == "cgroup":
                self.v1.append(pathlib.Path(path))
            elif kind == "cgroup2":
                self.v2.append(pathlib.Path(path))

    @property
    def version(self):
        """1 if any controller sits in a v1 hierarchy (then v2 has none for us), else 2."""
        return 1 if any(not p.name.startswith("systemd") for p in self.v1) else 2

    def make(self):
        if self.version == 1:
            for hierarchy in self.v1:
                (hierarchy / self.name).mkdir(exist_ok=True)
            return
        # cgroup v2 is untested: pods need these controllers in the root's children.
        root = self.v2[0]
        have = (root / "cgroup.subtree_control").read_text().split()
        for controller in ("cpu", "cpuset", "memory", "pids"):
            if controller in have:
                continue
            try:
                (root / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as e:
                raise RuntimeError(f"cgroup v2: the controller '{controller}' cannot be enabled in {root} "
                                   f"({e.strerror}); run this outside of a container") from e
        (root / self.name).mkdir(exist_ok=True)

    def folders(self):
        """Children first."""
        found = []
        for hierarchy in self.v1 + self.v2:
            for path, _, _ in os.walk(hierarchy / self.name, topdown=False):
                found.append(pathlib.Path(path))
        return found

    def kill(self):
        for folder in self.folders():
            try:
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            except (OSError, ValueError):
                pass

    def remove(self, timeout=10):
        """A group stays busy for a moment after its last process."""
        deadline = time.monotonic() + timeout
        while True:
            left = []
            for folder in self.folders():
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    left.append(folder)
            if not left:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"cgroup {left[0]} cannot be removed")
            self.kill()
            time.sleep(0.05)


def mounts_under(folder):
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        path = line.split()[1]
        if path == str(folder) or path.startswith(f"{folder}/"):
            found.append(path)
    return sorted(found, reverse=True)


def destroy(folder, state):
    """Ends and removes what a state file names."""
    keeper = state.get("keeper")
    if alive(keeper):
        os.kill(keeper["pid"], signal.SIGKILL)
    # PID 1 of the namespace is gone only when all in it are.
    deadline = time.monotonic() + 20
    while alive(state.get("init")) or alive(keeper):
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {keeper['pid']} does not end")
        time.sleep(0.02)
    if state.get("cgroup"):
        groups = Cgroups(state["cgroup"])
        groups.kill()
        groups.remove()
    for path in mounts_under(folder):
        subprocess.run(["umount", "-l", path], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def runs():
    """(folder, state) of every run there is; a folder without a state is (folder, None)."""
    found = []
    for folder in sorted(RUNS.glob("*")):
        try:
            found.append((folder, json.loads((folder / "state.json").read_text())))
        except (OSError, ValueError):
            found.append((folder, None))
    return found


def sweep(kept=False):
    """Removes what dead owners left; with kept, also what was left on purpose. Returns their names."""
    removed = []
    for folder, state in runs():
        if state is None:
            if time.time() - folder.stat().st_mtime < 60:
                continue  # just being made
            state = {}
        if state.get("boot") not in (None, boot_id()):
            state = {"cgroup": None}  # before a reboot: only the folder is left
        elif alive(state.get("owner")):
            continue
        elif state.get("kept") and alive(state.get("keeper")) and not kept:
            continue
        destroy(folder, state)
        removed.append(folder.name)
    return removed


class Sandbox:
    """open(), run() and spawn() inside, close()."""

    def __init__(self, keep=False):
        self.keep = keep
        self.dir = None
        self.keeper = None
        self.target = None
        self.cgroups = None
        self.processes = {}

    def open(self):
        if os.geteuid() != 0:
            raise RuntimeError("namespaces and cgroups need root rights")
        sweep()
        RUNS.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.dir = RUNS / secrets.token_hex(4)
        self.dir.mkdir(mode=0o755)
        self.cgroups = Cgroups(f"penstock-{self.dir.name}")
        self._write_state()
        self._start_keeper()
        self._write_state()
        self.run(["sh", "-euc", self._inside_script()])

    def _write_state(self):
        state = {"boot": boot_id(), "owner": identity(os.getpid()), "kept": self.keep,
                 "cgroup": self.cgroups.name,
                 "keeper": identity(self.keeper.pid) if self.keeper else None,
                 "init": identity(self.target) if self.target else None}
        new = self.dir / "state.json.new"
        new.write_text(json.dumps(state))
        new.rename(self.dir / "state.json")

    def _start_keeper(self):
        # PID 1 inside ignores SIGCHLD, so that the kernel reaps whatever is left to it.
        command = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--mount-proc",
                   "--kill-child", "--fork", "sh", "-c", "trap '' CHLD; exec sleep infinity"]
        if not self.keep:
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with open(self.dir / "keeper.log", "ab") as log:  # no pipe of ours stays open in one that is kept
            self.keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           start_new_session=True)
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 10
        while True:
            child = self._child(self.keeper.pid)
            if child and os.readlink(f"/proc/{child}/ns/net") != own and self._is_ready(child):
                self.target = child
                return
            if time.monotonic() > deadline or self.keeper.poll() is not None:
                raise RuntimeError("no namespaces, which need root rights and CAP_SYS_ADMIN: "
                                   f"{(self.dir / 'keeper.log').read_text()}")
            time.sleep(0.01)

    @staticmethod
    def _is_ready(pid):
        """unshare mounts /proc before it becomes the program."""
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"

    @staticmethod
    def _child(pid):
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None

    def _inside_script(self):
        scratch = self.dir / "scratch"
        lines = ["ip link set lo up", "mount -t tmpfs -o mode=755 tmpfs /run",
                 f"mkdir {scratch} {self.dir}/pods", f"mount -t tmpfs tmpfs {scratch}"]
        for path in ("/var/lib", "/var/log"):
            name = path.replace("/", "_")
            lines += [f"mkdir {scratch}/{name} {scratch}/{name}.work",
                      f"mount -t overlay -o lowerdir={path},upperdir={scratch}/{name},workdir={scratch}/{name}.work"
                      f" overlay {path}"]
        lines += ["mkdir -p /var/log/pods", f"mount --bind {self.dir}/pods /var/log/pods"]
        for name, value in KUBELET_SETTINGS.items():
            fake = f"{scratch}/{name.replace('/', '_')}"
            lines += [f"echo {value} >{fake}", f"[ ! -e /proc/sys/{name} ] || mount --bind {fake} /proc/sys/{name}"]
        return "\n".join(lines)

    def close(self):
        """Everything inside ends at once, and goes."""
        if not self.dir:
            return
        state = {"keeper": identity(self.keeper.pid) if self.keeper else None,
                 "init": identity(self.target) if self.target else None, "cgroup": self.cgroups.name}
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()
            self.keeper = None
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
        if os.environ.get("PENSTOCK_KEEP_CLUSTER"):  # the logs, until the next one starts
            copy = self.dir.with_name(f"{self.dir.name}-logs")
            self.dir.rename(copy)
            self.dir = copy
            return
        destroy(self.dir, state)
        self.dir = None

    # --- inside ---

    def enter(self, command):
        # Whoever waits outside going away takes the one inside along.
        return ["nsenter", "--net", "--mount", "--pid", "-t", str(self.target), "--",
                "setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]

    def run(self, command, check=True, **kwargs):
        kwargs.setdefault("capture_output", True)
        kwargs.setdefault("text", True)
        kwargs.setdefault("timeout", 120)
        if "input" not in kwargs:
            kwargs.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(self.enter(command), **kwargs)
        if check and done.returncode:
            raise RuntimeError(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def spawn(self, name, command, **kwargs):
        # PENSTOCK_ variables of the tests are options to our binaries.
        kwargs.setdefault("env", {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")})
        with open(self.dir / f"{name}.log", "ab") as log:
            process = subprocess.Popen(self.enter(command), cwd=self.dir, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True, **kwargs)
        self.processes[name] = process
        return process

    def pid(self, name):
        """The PID, as seen from outside, of a spawned program."""
        process = self.processes[name]
        deadline = time.monotonic() + 5
        while process.poll() is None:
            child = self._child(process.pid)
            if child and pathlib.Path(f"/proc/{child}/comm").read_text().strip() not in ("nsenter", "setpriv"):
                return child
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        raise RuntimeError(f"{name} does not run; see {self.dir}/{name}.log")

    def freeze(self, name):
        """Stops the program where it stands; nsenter in front of it stops along."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def thaw(self, name):
        os.kill(self.pid(name), signal.SIGCONT)
        self.processes[name].send_signal(signal.SIGCONT)

    def kill(self, name, sig=signal.SIGKILL, timeout=10):
        process = self.processes.get(name)
        if not process:
            return
        if process.poll() is None:
            try:
                os.kill(self.pid(name), sig)
            except (RuntimeError, OSError):
                pass
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        del self.processes[name]

    def inside(self, function, *args):
        """Calls function in a thread that has joined the network namespace; its sockets stay there."""
        outcome = {}

        def work():
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                with open(f"/proc/{self.target}/ns/net", "rb") as namespace:
                    if libc.setns(namespace.fileno(), CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                outcome["value"] = function(*args)
            except BaseException as e:  # pylint: disable=broad-except
                outcome["error"] = e

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive():  # a join without timeout would not see Ctrl-C
            thread.join(0.2)
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]
