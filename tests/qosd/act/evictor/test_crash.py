"""A crash at every step of an eviction, and a runtime that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from msgspec import structs

from koord.host.undo import UndoRecord
from koord.pb.cri import api_pb2 as cri
from qosd.act.cristop import CRIStop
from qosd.act.evictor import Evictor
from qosd.decide.decision import Eviction
from qosd.model.pod import Resources
from qosd.model.snapshot import ContainerView, PodView
from qosd.pods.cri import CRIClient
from tests.fakes.clock import S
from tests.fakes.runtime import FakeRuntime
from tests.qosd.act.evictor.rig import FAILED, STOPPED, STOPPING, Journal, Notes, start
from tests.qosd.act.steppedruntime import SteppedRuntime
from tests.qosd.podviews import view
from tests.support.waiting import until


class Mortal(SteppedRuntime):
    """A runtime's client whose process dies at step ``last``: before or after a call, what follows never happens."""

    def __init__(self, endpoint: str, last: int) -> None:
        super().__init__(endpoint, self._live)
        self._left = last
        self.died = asyncio.Event()

    async def _live(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.died.set()
            await asyncio.get_running_loop().create_future()


class Node:
    """A pod of three containers on a fake runtime, and what the tick sees of it."""

    def __init__(self, directory: Path) -> None:
        self.fake = FakeRuntime(directory / "cgroups")
        self.sandbox = self.fake.pod("web")
        for name in "abc":
            self.fake.start(self.fake.container(self.sandbox, name))
        self.order = Eviction("uid-web", "default/web", "memory is short", self.fake.parents[self.sandbox])

    def exists(self, cgroup: str) -> bool:
        return (self.fake.tree / cgroup.lstrip("/")).is_dir()

    def pods(self) -> tuple[PodView, ...]:
        containers = tuple(
            ContainerView(one.id, one.metadata.name, "", cri.ContainerState.Name(one.state), Resources(), {})
            for one in self.fake.containers.values()
        )
        return tuple(
            structs.replace(view("web"), uid=one.metadata.uid, sandbox_id=one.id, containers=containers)
            for one in self.fake.sandboxes.values()
        )


@asynccontextmanager
async def evicting(runtime: CRIClient, node: Node, notes: Notes, journal: Journal) -> AsyncIterator[Evictor]:
    executor = CRIStop(runtime, node.exists, exit_s=0.5, settle_s=0.5)
    clock = asyncio.get_running_loop().time
    evictor = Evictor(
        cast("UndoRecord", notes),
        journal,
        executor,
        asyncio.get_running_loop(),
        monotonic=lambda: int(clock() * S),
        wall=lambda: 0,
    )
    try:
        yield evictor
    finally:
        await evictor.close()
        runtime.close()


async def _dies(node: Node, endpoint: str, notes: Notes, journal: Journal, last: int) -> bool:
    """Whether an eviction ended at step ``last`` of its calls, and not by itself before."""
    runtime = Mortal(endpoint, last)
    async with evicting(runtime, node, notes, journal) as evictor:
        evictor.follow(node.pods())
        assert start(evictor, [("memory", node.order)], 1)[0][0] == "started"
        await until(lambda: runtime.died.is_set() or evictor.under_way["uid-web"].phase is not STOPPING)
        return runtime.died.is_set()


async def test_the_next_run_finishes_what_a_crash_at_any_step_leaves(tmp_path: Path) -> None:
    last = 0
    is_cut = True
    while is_cut:
        node, notes, journal = Node(tmp_path / str(last)), Notes(), Journal()
        async with node.fake.serving(tmp_path / "s") as endpoint:
            is_cut = await _dies(node, endpoint, notes, journal, last)
            ran = [one.id for one in node.fake.containers.values() if one.state == cri.CONTAINER_RUNNING]
            stops = len(node.fake.stops)
            assert [each.is_stopped for each in notes.evictions] == [not is_cut]
            assert journal.results == ["stopping"] if is_cut else ["stopping", "done"]
            async with evicting(CRIClient(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
                evictor.follow(node.pods())
                await until(lambda: evictor.under_way["uid-web"].phase is STOPPED)
                assert evictor.under_way["uid-web"].attempts == 1
                evictor.follow(node.pods())
                assert evictor.under_way["uid-web"].phase is STOPPED
                assert {one.container_id for one in node.fake.stops[stops:]} == set(ran)
                assert {one.state for one in node.fake.containers.values()} == {cri.CONTAINER_EXITED}
                evictor.follow(())
            assert notes.evictions == ()
            again = ["stopping"] if is_cut else []
            assert journal.results == [*again, "stopping", "done", "vanished"]
        last += 1
    assert last > 20


async def test_a_runtime_that_is_away_fails_the_attempt_and_the_next_succeeds(tmp_path: Path) -> None:
    node, notes, journal = Node(tmp_path), Notes(), Journal()
    async with node.fake.serving(tmp_path / "s") as endpoint:
        async with evicting(CRIClient(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
            node.fake.failing = True
            start(evictor, [("memory", node.order)], 1)
            await until(lambda: evictor.under_way["uid-web"].phase is FAILED)
            assert "server is not initialized yet" in evictor.under_way["uid-web"].problem
            node.fake.failing = False
        async with evicting(CRIClient(endpoint, 2.0, asyncio.get_running_loop()), node, notes, journal) as evictor:
            evictor.follow(node.pods())
            await until(lambda: evictor.under_way["uid-web"].phase is STOPPED)
    assert journal.results == ["stopping", "failed", "stopping", "done"]
