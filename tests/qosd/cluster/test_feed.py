"""What the policy is told of this node's objects, whatever becomes of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koord.model.core import Node
from qosd.cluster.feed import ClusterFeed
from qosd.clusterstatus import PartState
from qosd.policy.clusterpolicy import ClusterPolicy
from tests.kube.server import Fault, Server
from tests.kube.support import NODES, client
from tests.support.waiting import until

SLOS, METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
OWN, OTHER = "node-1", "node-2"


class Policy(ClusterPolicy):
    """Keeps what it is told, in order. ``fails``: the next word of a NodeSLO is one error of our own."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.contacts = 0
        self.fails = False

    def take_slo(self, spec: Mapping[str, Any] | None, generation: int) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("an error of our own")
        self.told.append(("slo", None if spec is None else (dict(spec), generation)))

    def refuse_slo(self, why: str) -> None:
        self.told.append(("slo", why))

    def refuse_node(self, why: str) -> None:
        self.told.append(("node", why))

    def take_node(self, node: Node | None) -> None:
        self.told.append(("node", None if node is None else dict(node.metadata.annotations)))

    def lost(self, why: str) -> None:
        self.told.append(("lost", why.partition(":")[0]))

    def reached(self) -> None:
        self.contacts += 1

    def last(self, what: str) -> Any:
        """What it was told of ``what`` at last; "" for nothing."""
        return next((value for word, value in reversed(self.told) if word == what), "")


@asynccontextmanager
async def followed(url: str) -> AsyncIterator[tuple[ClusterFeed, Policy]]:
    policy = Policy()
    async with client(url, tries=1) as api:
        feed = ClusterFeed(api, OWN, policy, time.monotonic)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run()) for run in (feed.run, *(each.run for each in feed.informers))]
            try:
                yield feed, policy
            finally:
                for task in tasks:
                    task.cancel()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.serving():
        yield server


def slo(server: Server, percent: int, generation: int, name: str = OWN) -> None:
    spec = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": percent}}
    server.put(SLOS, "", name, metadata={"generation": generation}, spec=spec)


def spec_of(percent: int) -> dict[str, Any]:
    return {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": percent}}


async def test_own_objects_and_nobody_elses(server: Server) -> None:
    for name in (OWN, OTHER):
        slo(server, 60, 1, name)
        server.put(NODES, "", name, metadata={"annotations": {"of": name}})
    async with followed(server.url) as (feed, policy):
        await until(lambda: {word for word, _ in policy.told} == {"slo", "node"})
        assert policy.last("slo") == (spec_of(60), 1)
        assert policy.last("node") == {"of": OWN}
        slo(server, 70, 2)
        slo(server, 80, 9, OTHER)
        await until(lambda: policy.last("slo") == (spec_of(70), 2))
        assert [value for word, value in policy.told if word == "slo"] == [(spec_of(60), 1), (spec_of(70), 2)]
        assert feed.is_reachable
    selected = {query.get("fieldSelector") for verb, _, query, _ in server.requests if verb in ("list", "watch")}
    assert selected == {f"metadata.name={OWN}"}


async def test_no_slo_is_said_once_the_server_has_said_so(server: Server) -> None:
    server.faults = [Fault("list", status=500, reason="InternalError")] * 3
    async with followed(server.url) as (_, policy):
        await until(lambda: policy.last("slo") is None)
        slo(server, 60, 1)
        await until(lambda: policy.last("slo") == (spec_of(60), 1))
        server.delete(SLOS, "", OWN)
        await until(lambda: policy.last("slo") is None)
    assert [value for word, value in policy.told if word == "slo"] == [None, (spec_of(60), 1), None]


async def test_a_kind_that_is_not_served_is_no_answer(server: Server) -> None:
    """A CRD that is not there yet, or a server that is still starting: what was in force stays."""
    server.put(NODES, "", OWN, metadata={"annotations": {"of": OWN}})
    server.faults = [Fault("list", status=404, reason="NotFound")] * 99
    async with followed(server.url) as (feed, policy):
        await until(lambda: policy.last("lost") != "")
        await asyncio.sleep(0.05)
        assert policy.last("slo") == ""
        assert not feed.is_reachable


async def test_a_node_that_goes_and_comes_again(server: Server) -> None:
    async with followed(server.url) as (_, policy):
        await until(lambda: policy.last("node") is None)
        server.put(NODES, "", OWN, metadata={"annotations": {"of": OWN}})
        await until(lambda: policy.last("node") == {"of": OWN})
        server.delete(NODES, "", OWN)
        await until(lambda: policy.last("node") is None)


async def test_what_cannot_be_read_is_not_absent(server: Server) -> None:
    server.put(NODES, "", OWN, metadata={"annotations": {"of": 5}})
    server.put(SLOS, "", OWN, metadata={"annotations": {"of": 5}}, spec={})
    async with followed(server.url) as (_, policy):
        await until(lambda: {word for word, _ in policy.told} == {"slo", "node"})
        assert policy.last("node").startswith(f"Node {OWN}: cannot be read")
        assert policy.last("slo").startswith(f"NodeSLO {OWN}: cannot be read")
        server.put(NODES, "", OWN, metadata={"annotations": {"of": OWN}})
        server.delete(SLOS, "", OWN)
        await until(lambda: policy.last("node") == {"of": OWN} and policy.last("slo") is None)
        assert [word for word, value in policy.told if value is None] == ["slo"], "once it is absent"


async def test_a_server_that_goes_is_said_once_and_its_return_too() -> None:
    server = Server()
    async with server.serving() as url:
        slo(server, 60, 1)
        port = int(url.rpartition(":")[2])
        async with followed(url) as (feed, policy):
            await until(lambda: feed.is_reachable)
            await server_gone(server, feed, policy, port)


async def server_gone(server: Server, feed: ClusterFeed, policy: Policy, port: int) -> None:
    before = policy.contacts
    server.faults = [Fault("any", status=503, reason="ServiceUnavailable") for _ in range(9)]
    server.cut_watches()
    await until(lambda: not feed.is_reachable)
    lost = [value for word, value in policy.told if word == "lost"]
    assert lost[0] in ("nodes", "nodeslos")
    assert feed.silent_s is not None
    await until(lambda: feed.is_reachable, within_s=30)
    assert policy.contacts > before
    assert policy.last("slo") == (spec_of(60), 1)


async def test_silence_before_the_first_word_is_no_age() -> None:
    async with client("http://127.0.0.1:1", tries=1) as api:
        policy = Policy()
        feed = ClusterFeed(api, OWN, policy, time.monotonic)
        assert (feed.silent_s, feed.is_reachable) == (None, False)
        running = [asyncio.create_task(each.run()) for each in feed.informers]
        await until(lambda: policy.last("lost") != "")
        assert {part.state for part in feed.status()} <= {PartState.FAILING, PartState.WAITING}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_after_an_error_of_our_own_nothing_is_missed(server: Server) -> None:
    async with client(server.url, tries=1) as api:
        policy = Policy()
        feed = ClusterFeed(api, OWN, policy, time.monotonic)
        running = [asyncio.create_task(each.run()) for each in feed.informers]
        slo(server, 60, 1)
        policy.fails = True
        with pytest.raises(ExceptionGroup):
            await feed.run()
        assert policy.last("slo") == ""
        again = asyncio.create_task(feed.run())
        await until(lambda: policy.last("slo") == (spec_of(60), 1))
        for task in (again, *running):
            task.cancel()
        await asyncio.gather(again, *running, return_exceptions=True)


async def test_the_status_names_what_is_followed(server: Server) -> None:
    slo(server, 60, 1)
    server.put(METRICS, "", OWN, spec={}, status={"updateTime": "2026-01-01T00:00:00Z"})
    async with followed(server.url) as (feed, _):
        await until(lambda: all(informer.synced.is_set() for informer in feed.informers))
        said = {part.name: (part.state, part.says) for part in feed.status()}
        assert said == {
            "Node": (PartState.OK, "there is none of this node"),
            "NodeSLO": (PartState.OK, "followed"),
            "NodeMetric": (PartState.OK, "followed"),
        }
        metric = feed.node_metric()
        assert metric is not None and metric.status.update_time == "2026-01-01T00:00:00Z"
