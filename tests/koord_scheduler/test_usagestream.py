"""What nodes tell the manager reaches the scheduler, which goes by NodeMetrics while there is no stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from koord.kube.backoff import Backoff
from koord.model.nodelink import CA_ANNOTATION, LEASE_NAME
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from koord.pb.koord import clusterstate_pb2 as pb
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.nodeusage import NodeUsage, UsageSource
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.state import ClusterState
from koord_manager.nodelink.signer import Signer
from koord_manager.nodelink.signing import Agents
from koord_scheduler.usagestream import UsageStream
from qosd.cluster.nodelink import encoded
from tests.koord_manager.nodelink.rig import AGENT, GIB, NAMESPACE, Node, Rig, rig
from tests.scheduling.clusters import node, pod
from tests.support.waiting import until

USER = f"system:serviceaccount:{NAMESPACE}:koord-scheduler"
LEASES = "/apis/coordination.k8s.io/v1/leases"
SETTINGS = LoadSettings(filters_expired=False)


@dataclass
class Following:
    manager: Rig
    node: Node
    state: ClusterState
    stream: UsageStream

    def source(self, name: str = "n1") -> str:
        newest = self.state.loads.measurements(name).newest
        return "" if newest is None else newest.source

    def used(self, name: str = "n1") -> int:
        row = self.state.table.row(name)
        assert row is not None
        return self.state.loads.of(SETTINGS).at(row, False).used[0]


def lease(made: Rig, **annotations: str) -> None:
    found = {CA_ANNOTATION: made.ca, **annotations}
    spec: Mapping[str, Any] = {"holderIdentity": f"koord-manager-0@127.0.0.1:{made.link.port}"}
    made.server.put(LEASES, NAMESPACE, LEASE_NAME, metadata={"annotations": found}, spec=spec)


def metric(cpu_milli: int) -> NodeUsage:
    return NodeUsage(UsageSource.NODE_METRIC, time.time(), {"cpu": cpu_milli}, {}, {})


@contextlib.asynccontextmanager
async def following(stale_s: float = 0.3, account: str = USER, has_lease: bool = True) -> AsyncIterator[Following]:
    """A scheduler that follows a manager, whose NodeMetrics say 1 CPU."""
    async with rig() as made:
        made.server.requester = {"username": USER, "groups": ["system:authenticated"]}
        if has_lease:
            lease(made)
        else:
            made.server.put(LEASES, NAMESPACE, LEASE_NAME, spec={"holderIdentity": "koord-manager-0"})
        state = ClusterState()
        for name in ("n1", "n2"):
            state.put_node(node(name))
            state.loads.put_metric(name, metric(1000))
        state.loads.advance(time.time())
        stream = UsageStream(
            made.api, state.loads, lambda: None, USER, NAMESPACE, time.time, Backoff(0.1, 0.1), stale_s
        )
        agents = Agents(AGENT, made.view.pods.get, account)
        signer = Signer(made.api, made.link.read_ca, agents, time.monotonic, lambda: datetime.now(UTC))
        tasks = [asyncio.create_task(each) for each in (signer.run(), stream.run())]
        try:
            with made.client(await made.context("n1")) as client:
                yield Following(made, client, state, stream)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def used(cpu_milli: int) -> FreshUsage:
    web = FreshPod("shop", "web", "koord-prod", CPUMemory(500, GIB))
    return FreshUsage(CPUMemory(cpu_milli, 4 * GIB), CPUMemory(500, GIB), (web,))


async def test_the_stream_is_fresher_than_a_metric_and_explains_so() -> None:
    async with following() as made:
        assert made.used() == 1000
        await made.node.report(usage=used(2500))
        await until(lambda: made.used() == 2500)
        assert (made.source("n1"), made.source("n2")) == (UsageSource.STREAM, UsageSource.NODE_METRIC)
        assert made.state.loads.sources() == {UsageSource.STREAM: 1, UsageSource.NODE_METRIC: 1}
        waiting = pod("p", {"cpu": "2"})
        said = LoadAwareScheduling(SETTINGS).explain(made.state, waiting, 0, made.state.table.exists)
        assert said.reasons[0].detail.endswith("s ago by ClusterState")
        await made.node.report(usage=used(1500))
        await until(lambda: made.used() == 1500)
        assert made.stream.updates["snapshot"] == 1


async def test_without_the_stream_metrics_count_and_with_it_again() -> None:
    async with following() as made:
        await made.node.report(usage=used(2500))
        await until(lambda: made.used() == 2500)
        made.manager.state.leads = False
        await until(lambda: made.used() == 1000)
        assert (made.stream.source, made.source()) == ("", UsageSource.NODE_METRIC)
        made.manager.state.leads = True
        await until(lambda: made.used() == 2500)
        assert made.stream.source == f"127.0.0.1:{made.manager.link.port}"


async def test_what_was_forgotten_while_it_was_asked_for_is_told_anew() -> None:
    async with following(stale_s=30.0) as made:
        await made.node.report(usage=used(2500))
        await until(lambda: made.used() == 2500)
        made.manager.state.leads = False
        await until(lambda: not made.stream.source)
        find, forgotten = made.stream._leader, 0

        async def leader() -> tuple[str, bytes]:
            """Once the request is made, what it goes on from is forgotten."""
            nonlocal forgotten
            found = await find()
            if not forgotten:
                asyncio.get_running_loop().call_soon(made.stream._clear)
            forgotten += 1
            return found

        made.manager.state.leads = True
        made.stream._leader = leader  # type: ignore[method-assign]
        await until(lambda: forgotten and made.stream.source and made.used() == 2500)


async def test_a_stream_that_is_back_soon_has_changed_nothing() -> None:
    async with following(stale_s=30.0) as made:
        await made.node.report(usage=used(2500))
        await until(lambda: made.used() == 2500)
        made.manager.state.leads = False
        await until(lambda: not made.stream.source)
        assert made.used() == 2500
        made.manager.state.leads = True
        await until(lambda: bool(made.stream.source))
        assert (made.used(), made.stream.updates["snapshot"]) == (2500, 1), "it goes on from where it was"


async def test_a_silent_agents_node_counts_by_its_metric_and_scores_nothing() -> None:
    async with following() as made:
        made.manager.states.put("n1", b"", time.time(), time.monotonic() - 20, time.time())
        await until(lambda: made.state.loads.measurements("n1").anomaly != "")
        assert made.state.loads.measurements("n1").anomaly == "its agent has said nothing for 15s"
        assert made.source() == UsageSource.NODE_METRIC
        scores = LoadAwareScheduling(SETTINGS).score(made.state, pod("p"), made.state.table.exists)
        assert not isinstance(scores, int)
        assert scores[0] == 0 < scores[1]


async def test_why_there_is_no_stream_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The manager's Lease has no address, as upstream's has none; then nodes report to it."""
    async with following(has_lease=False) as made:
        await made.node.report(usage=used(2500))
        await asyncio.sleep(0.5)
        said = [each.getMessage() for each in caplog.records if each.name == "koord_scheduler.usagestream"]
        why = f"Lease {NAMESPACE}/{LEASE_NAME} names no koord-manager that nodes report to"
        assert (said, made.used()) == ([f"goes by NodeMetrics: {why}"], 1000)
        lease(made.manager)
        await until(lambda: made.used() == 2500)


async def test_what_a_snapshot_does_not_name_is_void_once_it_is_complete() -> None:
    async with following() as made:
        made.manager.state.leads = False
        report = encoded("n1", "i", 1, 0, used(2500))
        both = [pb.NodeState(node=name, report=report, agent=pb.REPORTING) for name in ("n1", "n2")]
        await made.stream._take(pb.Update(instance="a", version=2, is_snapshot=True, is_complete=True, nodes=both))
        assert (made.used("n1"), made.used("n2")) == (2500, 2500)
        await made.stream._take(pb.Update(instance="b", version=1, is_snapshot=True, nodes=both[:1]))
        assert made.used("n2") == 2500
        await made.stream._take(pb.Update(instance="b", version=1, is_complete=True))
        assert (made.used("n1"), made.used("n2")) == (2500, 1000)
        await made.stream._take(pb.Update(instance="b", version=2, is_complete=True, gone=["n1"]))
        assert made.used("n1") == 1000


async def test_a_scheduler_that_is_not_certified_goes_by_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async with following(account="") as made:
        await until(lambda: "is no node" in caplog.text)
        assert made.used() == 1000
