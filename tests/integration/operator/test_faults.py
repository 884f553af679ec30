# SPDX-License-Identifier: Apache-2.0
"""An API server that forgets, refuses and freezes; a control plane of its own for it."""

import os
import signal
import time

import pytest
from conftest import Operator, World, install, until
from tests.cluster.control_plane import ControlPlane


@pytest.fixture(scope="module")
def faulty():
    if os.geteuid() != 0:
        pytest.skip("a control plane in a network namespace needs root rights")
    # Versions are forgotten after seconds; more than a few requests at a time get 429.
    with ControlPlane(apiserver_flags=["--etcd-compaction-interval=4s", "--enable-priority-and-fairness=false",
                                       "--max-requests-inflight=8", "--max-mutating-requests-inflight=4"]) as c:
        install(c)
        yield c


@pytest.fixture
def scene(faulty):
    o, name = Operator(faulty), f"f{time.monotonic_ns()}"
    faulty.kubectl("create", "ns", name)
    w = World(faulty, name)
    w.behave(all={"phase": "ready"})
    yield o, w
    o.stop()


def test_many_services_through_refusals(scene):
    operator, world = scene
    operator.start("--workers=8")
    world.cluster.apply(*[world.service(f"s{i}") for i in range(25)])
    for i in range(25):
        world.wait_condition("Ready", "True", name=f"s{i}", timeout=90)
    time.sleep(6)
    before = len(operator.writes())
    time.sleep(8)
    assert operator.writes()[before:] == []


def test_a_frozen_api_server_costs_nothing_but_time(scene, faulty):
    operator, world = scene
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    faulty.freeze("apiserver")
    time.sleep(5)
    faulty.thaw("apiserver")
    until(lambda: world.kubectl("scale", "psvc", "chat", "--replicas=2", check=False).returncode == 0, 30)
    until(lambda: world.status().get("readyReplicas") == 2, 60)
    assert operator.process.poll() is None  # shorter than the lease's deadline


def test_etcd_dies_and_comes_back(scene, faulty):
    operator, world = scene
    operator.start()
    world.apply()
    world.wait_condition("Ready", "True")
    pods = {p["metadata"]["uid"] for p in world.pods()}
    faulty.kill("etcd", signal.SIGKILL)
    time.sleep(4)
    assert operator.http("/healthz").returncode == 0
    faulty.start_etcd()
    faulty.wait_ready()
    until(lambda: world.kubectl("scale", "psvc", "chat", "--replicas=2", check=False).returncode == 0, 60)
    if operator.process.poll() is not None:  # the lease ran out, which ends the process; a pod starts anew
        faulty.kill("operator")
        operator.start()
    until(lambda: world.status().get("readyReplicas") == 2, 90)
    assert pods <= {p["metadata"]["uid"] for p in world.pods()}


def test_the_operator_is_killed_again_and_again(scene):
    """At many points between two writes: it always converges, and nothing is there twice."""
    operator, world = scene
    for i in range(8):
        operator.start()
        world.apply(name=f"k{i}", scaling={"maxReplicas": 2})
        time.sleep(0.02 * i)
        operator.kill()
    operator.start()
    for i in range(8):
        world.wait_condition("Ready", "True", name=f"k{i}", timeout=90)
    for kind, n in (("deploy", 8), ("svc", 8), ("hpa", 8), ("controllerrevisions", 8)):
        until(lambda k=kind, n=n: len(world.cluster.get(k, "-n", world.namespace)["items"]) == n, 30)
