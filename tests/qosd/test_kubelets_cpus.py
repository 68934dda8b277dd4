"""Exclusive CPUs of kubelet's CPU manager on a whole node: what is told in an unknown way, or not told at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.writer import Writer
from qosd.inspect import daemon
from tests.qosd.contexts import QOS, STATUS
from tests.qosd.machine import Machine
from tests.qosd.test_node import BATCH, Living, living, on_runtime

STATE = "kubelet/cpu_manager_state"
OTHER_MEMBER = (
    '{"policyName":"static","defaultCpuSet":"0-1","podEntries":{"uid-db":{"cpuSet":"2-3"}},"checksum":0,"data":"{}",'
    '"dataChecksum":1}'
)


def running(alive: Living, name: str, tier: str = "", qos: str = "", cpus: str = "", bound: str = "") -> str:
    """The cgroup of a container of a new pod; ``cpus``: what kubelet makes it with, ``bound``: by the scheduler."""
    runtime = alive.machine.runtime
    annotations = {STATUS: f'{{"cpuset": "{bound}"}}'} if bound else BATCH if qos == "BE" else {}
    sandbox = runtime.pod(name, tier, labels={QOS: qos} if qos else {}, annotations=annotations)
    container = runtime.container(sandbox, "main")
    runtime.start(container)
    if cpus:
        put(alive.machine, runtime.cgroup(container), cpus)
    return runtime.cgroup(container)


def put(machine: Machine, cgroup: str, cpus: str) -> None:
    """What another writer does."""
    Writer(machine.locator().tree).write(Target(cgroup, "cpuset_cpus"), cpus)


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
        assert str(alive.node.policy.current.node.kubelet_cpus) == "2-3"
        assert [said for said in daemon.warnings(alive.node) if "cpu_manager_state" in said] == [
            "cpu_manager_state keeps CPUs 2-3 out of its defaultCpuSet and names their owner in no way that is known "
            "here: they are in no pool"
        ]


@pytest.mark.parametrize("state", ["", OTHER_MEMBER[:60], None], ids=["empty", "torn", "absent"])
async def test_while_allocations_are_unknown_no_cpu_set_is_widened(v1: Machine, state: str | None) -> None:
    if state is not None:
        v1.put(STATE, state)
    async with on_runtime(v1) as alive:
        alive.node.kubelet_config.cpu_manager_policy = "static"
        whole = running(alive, "db", cpus="2-3")
        best_effort = running(alive, "job", "/besteffort", "BE", cpus="0-1")
        service = running(alive, "web", "", "LS", cpus="0-1")
        bound = running(alive, "lsr", "", "LSR", cpus="3", bound="2")
        await alive.until_decided(best_effort)
        held = [v1.holds(cgroup, "cpuset_cpus") for cgroup in (whole, best_effort, service, bound)]
        assert held == ["2-3", "0-1", "0-1", "3"]
        said = "which CPUs kubelet gave exclusively is unknown, so no CPU set is widened"
        assert [each for each in daemon.warnings(alive.node) if said in each]

        v1.put(STATE, OTHER_MEMBER.replace('"2-3"', '"3"').replace('"0-1"', '"0-2"'))
        alive.node.reload()
        await alive.until(lambda: v1.holds(best_effort, "cpuset_cpus") == "0-2", "the pool that is known again")
        assert not [each for each in daemon.warnings(alive.node) if said in each]


async def test_a_cpu_set_shrinks_also_while_allocations_are_unknown(v1: Machine) -> None:
    v1.put(STATE, OTHER_MEMBER)
    async with on_runtime(v1) as alive:
        service = running(alive, "web", "", "LS")
        await alive.until(lambda: v1.holds(service, "cpuset_cpus") == "0-1", "the pool")
        v1.put(STATE, "{")
        alive.node.reload()
        bound = running(alive, "lse", "", "LSE", cpus="0-1", bound="1")
        await alive.until(lambda: v1.holds(service, "cpuset_cpus") == "0", "less than before")
        await alive.until(lambda: v1.holds(bound, "cpuset_cpus") == "1", "its own")


async def test_a_restart_in_between_widens_nothing(v1: Machine) -> None:
    v1.put(STATE, OTHER_MEMBER)
    async with v1.runtime.serving(v1.socket):
        async with living(v1) as alive:
            service = running(alive, "web", "", "LS")
            await alive.until(lambda: v1.holds(service, "cpuset_cpus") == "0-1", "the pool")
        v1.put(STATE, "")
        async with living(v1) as again:
            job = running(again, "job", "/besteffort", "BE", cpus="0")
            await again.until_decided(job)
            assert (v1.holds(service, "cpuset_cpus"), v1.holds(job, "cpuset_cpus")) == ("0-1", "0")


async def test_a_bound_pod_has_the_cpus_on_which_kubelet_keeps_it(v1: Machine) -> None:
    """And nobody else is put on them, from the first time on that kubelet writes them."""
    v1.put(STATE, '{"policyName":"static","defaultCpuSet":"0-1","entries":{"uid-lsr":{"main":"2-3"}}}')
    async with on_runtime(v1) as alive:
        service, bound = running(alive, "web", "", "LS"), running(alive, "lsr", "", "LSR", bound="0-1")
        await alive.until(lambda: v1.holds(bound, "cpuset_cpus") == "0-1", "what the scheduler bound")
        await alive.until(lambda: v1.holds(service, "cpuset_cpus") == "2-3", "what is left")
        for _ in range(8):
            put(v1, bound, "2-3")  # as kubelet does every ten seconds
            await asyncio.sleep(0.02)
            await alive.until(lambda: True, "a tick")
            await alive.until(lambda: True, "another, with the pools that follow")
            assert "2" not in str(v1.holds(service, "cpuset_cpus"))
        assert any(alive.node.loop.report.files.contested)
        assert (v1.holds(bound, "cpuset_cpus"), v1.holds(service, "cpuset_cpus")) == ("2-3", "0-1")
        assert (
            "default/lsr (LSR) is bound to CPUs 0-1, but another writer keeps it on 2-3: it has those"
            in daemon.warnings(alive.node)
        )
