"""An eviction comes about though it is cancelled once, or meets an emergency, at any of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koord.kube.client import Client
from koord.kube.kind import Key, Kind
from qosd.act.cristop import CRIStop
from qosd.cluster.apieviction import APIEviction
from tests.kube.server import Fault
from tests.kube.support import client
from tests.qosd.act.steppedruntime import SteppedRuntime, around
from tests.qosd.cluster.apieviction.webpod import LATE, LONG, ORDER, Cluster, Events
from tests.support.waiting import HANG_S


class Step:
    """Counts what an eviction awaits, and does ``fault`` at step ``last``."""

    def __init__(self, last: int) -> None:
        self._left = last
        self.fault: Callable[[], object] = lambda: None
        self.is_reached = False

    async def take(self) -> None:
        self._left -= 1
        if self._left == -1:
            self.is_reached = True
            self.fault()
            await asyncio.sleep(0)


class SteppedAPI:
    def __init__(self, api: Client, step: Step) -> None:
        self._api, self._step = api, step

    async def evict(self, key: Key, uid: str) -> None:
        await around(self._step.take, lambda: self._api.evict(key, uid))

    async def get(self, kind: Kind[Any], key: Key) -> Any:
        return await around(self._step.take, lambda: self._api.get(kind, key))

    async def get_path(self, path: str) -> bytes:
        return await around(self._step.take, lambda: self._api.get_path(path))


@asynccontextmanager
async def stepped(cluster: Cluster, endpoint: str, step: Step) -> AsyncIterator[APIEviction]:
    runtime = SteppedRuntime(endpoint, step.take)
    async with client(cluster.url, tries=1) as api:
        stop = CRIStop(runtime, cluster.exists, exit_s=0.3, settle_s=0.3)
        try:
            yield APIEviction(
                SteppedAPI(api, step), stop, Events(), lambda: cluster.emergency, cluster.left_s, cluster.tell, LONG
            )
        finally:
            runtime.close()


def _as_it_is(cluster: Cluster) -> None: ...


def _refused_once(cluster: Cluster) -> None:
    cluster.faults = [Fault("evict", status=429, reason="TooManyRequests")]


def _forbidden(cluster: Cluster) -> None:
    cluster.faults = [Fault("evict", status=403, reason="Forbidden")] * 2


def _pod_is_another(cluster: Cluster) -> None:
    cluster.replace_pod()


async def steps_of(is_reached: Callable[[int], Awaitable[bool]]) -> int:
    """How many steps there are, after each of them had its fault."""
    last = 0
    while await is_reached(last):
        last += 1
    return last


COURSES = [_as_it_is, _refused_once, _forbidden, _pod_is_another]


@pytest.mark.parametrize("course", COURSES)
async def test_cancelled_at_any_step_it_can_be_done_again(tmp_path: Path, course: Callable[[Cluster], None]) -> None:
    async def is_cut(last: int) -> bool:
        cluster = Cluster(tmp_path / str(last))
        async with cluster.serving(), cluster.fake.serving(tmp_path / "s") as endpoint:
            course(cluster)
            step = Step(last)
            async with stepped(cluster, endpoint, step) as by_api:
                task = asyncio.create_task(by_api.evict(ORDER))
                step.fault = task.cancel
                await asyncio.wait((task,))
                assert task.cancelled() is step.is_reached
                assert not [each for each in asyncio.all_tasks() if "APIEviction" in repr(each.get_coro())]
                await by_api.evict(ORDER)
        assert cluster.running == 0
        return step.is_reached

    assert await steps_of(is_cut) > 8


@pytest.mark.parametrize("course", COURSES)
async def test_an_emergency_at_any_step(tmp_path: Path, course: Callable[[Cluster], None]) -> None:
    async def is_met(last: int) -> bool:
        cluster = Cluster(tmp_path / str(last))
        async with cluster.serving(), cluster.fake.serving(tmp_path / "s") as endpoint:
            course(cluster)
            step = Step(last)
            step.fault = lambda: setattr(cluster, "emergency", LATE)
            async with stepped(cluster, endpoint, step) as by_api:
                async with asyncio.timeout(HANG_S):
                    await by_api.evict(ORDER)
        assert cluster.running == 0
        return step.is_reached

    assert await steps_of(is_met) > 8
