"""The whole connection of a node to an API server: credentials that come late and rotate, and parts that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from koord.kube.credentials import CHECK_S
from qosd.act.cristop import CRIStop
from qosd.assembly import assemble
from qosd.cluster.apieviction import APIEviction
from qosd.cluster.session import ClusterSession
from qosd.metrics import Metrics
from qosd.node import Node
from qosd.tickscheduler import TickReason
from tests.kube.server import Server
from tests.kube.support import NODES, PODS
from tests.qosd.cluster.test_feed import OWN, slo
from tests.qosd.machine import Machine
from tests.support.waiting import until


@dataclass
class Rig:
    """A node, a session, and the API server that its kubeconfig will name."""

    machine: Machine
    server: Server
    node: Node
    session: ClusterSession

    @property
    def kubeconfig(self) -> Path:
        return self.machine.root / "kubeconfig"

    def write_kubeconfig(self, token: str = "") -> None:
        token_file = self.machine.put("token", token)
        document = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server.url}}],
            "users": [{"name": "u", "user": {"tokenFile": str(token_file)} if token else {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        self.machine.put("kubeconfig", json.dumps(document))

    @property
    def suppress_percent(self) -> Any:
        """What the rules in force say."""
        thresholds = self.node.policy.current.slo.thresholds
        return None if thresholds is None else thresholds.cpu_suppress_threshold_percent

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.session.run())
        try:
            yield
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    machine, server, metrics = Machine(tmp_path), Server(), Metrics()
    machine.kubepods()
    options = machine.options(kubeconfig=str(tmp_path / "kubeconfig"), node_name=OWN)
    async with server.serving():
        node = assemble(options, metrics, machine.locator())
        try:
            server.put(NODES, "", OWN, status={"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}})
            session = ClusterSession(node, options, {})
            yield Rig(machine, server, node, session)
            await session.close()
        finally:
            await node.close()


async def test_the_policy_arrives_and_the_pages_say_so(rig: Rig) -> None:
    rig.write_kubeconfig()
    slo(rig.server, 61, 1)
    assert rig.node.cluster_status() is not None
    async with rig.connected():
        await until(lambda: rig.suppress_percent == 61)
        slo(rig.server, 62, 2)
        await until(lambda: rig.suppress_percent == 62)
        facts = rig.session.policy.node
        assert facts is not None and facts.name == OWN
        status = rig.session.status()
        assert (status.server, status.node_name, status.is_reachable) == (rig.server.url, OWN, True)
        assert status.sentence == f"{rig.server.url} as node {OWN}: answers"
        figures = {family.name: values[0][1] for family, values in rig.node.metrics.take() if len(values) == 1}
        assert figures["cluster_reachable"] == 1
        assert isinstance(figures["cluster_silence_seconds"], float) and figures["cluster_silence_seconds"] < 60


async def test_where_kubelet_is_not_asked_the_server_lists_the_nodes_pods(rig: Rig) -> None:
    """As a systemd unit does, whose credential kubelet does not let read its list."""
    rig.write_kubeconfig()
    rig.server.put(PODS, "shop", "web", metadata={"uid": "u1"}, spec={"nodeName": OWN, "priority": 9500})
    rig.server.put(PODS, "shop", "other", metadata={"uid": "u2"}, spec={"nodeName": "other"})
    async with rig.connected():
        assert rig.node.options.kubelet_endpoint == "" and rig.node.pod_lists is not None
        listed = await rig.node.pod_lists.pods()
        assert [(pod.name, pod.priority) for pod in listed.items] == [("web", 9500)]


async def test_credentials_that_come_late_need_no_restart(rig: Rig) -> None:
    """kubelet writes its kubeconfig when it has joined."""
    slo(rig.server, 61, 1)
    async with rig.connected():
        await until(lambda: all(informer.counts.failures for informer in rig.session.feed.informers))
        assert rig.session.status().sentence == f"the API server as node {OWN}: has not answered yet"
        rig.write_kubeconfig()
        await until(lambda: rig.suppress_percent == 61, within_s=30)


async def test_a_token_that_rotates(rig: Rig) -> None:
    """The server refuses the old one; files are looked at again after a refusal, not each ten seconds."""
    rig.server.tokens = {"first"}
    rig.write_kubeconfig("first")
    slo(rig.server, 61, 1)
    async with rig.connected():
        await until(lambda: rig.suppress_percent == 61)
        rig.server.tokens = {"second"}
        rig.write_kubeconfig("second")
        rig.server.cut_watches()
        slo(rig.server, 62, 2)
        await until(lambda: rig.suppress_percent == 62, within_s=CHECK_S + 5)


async def test_a_part_that_fails_costs_the_others_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("an error of our own")

    rig.write_kubeconfig()
    slo(rig.server, 61, 1)
    monkeypatch.setattr(rig.session.feed.node_metrics, "run", fail)
    monkeypatch.setattr(rig.session.recorder, "run", fail)
    async with rig.connected():
        await until(lambda: rig.suppress_percent == 61)
        crashes = rig.node.metrics.cluster_crashes
        assert crashes["NodeMetric"] >= 1 and crashes["events"] >= 1
        assert set(crashes) == {"NodeMetric", "events"}


async def test_pods_are_evicted_by_the_api_as_long_as_there_is_a_session(rig: Rig) -> None:
    evictor = rig.node.actuator.evictions
    assert isinstance(evictor.executor, CRIStop)
    async with rig.connected():
        await until(lambda: isinstance(evictor.executor, APIEviction))
    assert isinstance(evictor.executor, CRIStop)


async def test_who_follows_the_ticks_and_fails_costs_no_tick(rig: Rig) -> None:
    seen: list[object] = []

    def fail() -> None:
        raise ZeroDivisionError("an error of our own")

    rig.node.after_tick[:] = [fail, lambda: seen.append(rig.node.loop.report.snapshot)]
    await rig.node.tick(TickReason.BEAT)
    assert len(seen) == 1 and seen[0] is not None
