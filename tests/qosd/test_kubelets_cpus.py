"""Exclusive CPUs of kubelet's CPU manager on a whole node: what is told in an unknown way, or not told at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from qosd.inspect import daemon
from tests.qosd.contexts import QOS
from tests.qosd.machine import Machine
from tests.qosd.test_node import BATCH, Living, on_runtime

STATE = "kubelet/cpu_manager_state"
OTHER_MEMBER = (
    '{"policyName":"static","defaultCpuSet":"0-1","podEntries":{"uid-db":{"cpuSet":"2-3"}},"checksum":0,"data":"{}",'
    '"dataChecksum":1}'
)


def running(alive: Living, name: str, tier: str = "", qos: str = "") -> str:
    """The cgroup of a container of a new pod."""
    runtime = alive.machine.runtime
    labels = {QOS: qos} if qos else {}
    sandbox = runtime.pod(name, tier, labels=labels, annotations=BATCH if qos == "BE" else {})
    container = runtime.container(sandbox, "main")
    runtime.start(container)
    return runtime.cgroup(container)


@pytest.fixture
def v1(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.kubepods()
    return made


async def test_cpus_whose_owner_is_named_in_an_unknown_way_are_in_no_pool(v1: Machine) -> None:
    v1.put(STATE, OTHER_MEMBER)
    async with on_runtime(v1) as alive:
        best_effort, service = running(alive, "job", "/besteffort", "BE"), running(alive, "web", "", "LS")
        await alive.until(lambda: v1.holds(best_effort, "cpuset_cpus") == "0-1", "the pool that is left")
        await alive.until(lambda: v1.holds(service, "cpuset_cpus") == "0-1", "the pool that is left")
        assert str(alive.node.rules.pools.kubelet) == "2-3"
        assert [said for said in daemon.warnings(alive.node) if "cpu_manager_state" in said] == [
            "cpu_manager_state keeps CPUs 2-3 out of its defaultCpuSet and names their owner in no way that is known "
            "here: they are in no pool"
        ]
