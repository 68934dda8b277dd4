"""In an emergency the runtime stops the containers at once, and nobody is asked or waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kube.server import Fault
from tests.qosd.cluster.apieviction.webpod import FALLEN_BACK, LATE, LONG, ORDER, Cluster, executor
from tests.support.waiting import HANG_S, until


async def test_in_an_emergency_nobody_is_asked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    cluster.emergency = LATE
    async with executor(cluster, tmp_path, LONG) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops), cluster.count("evict")) == (0, 2, 0)
    assert cluster.steps == [("stopping", f"{FALLEN_BACK} {LATE}")]
    assert events.said[0][3] == f"{ORDER.why}; {FALLEN_BACK} {LATE}"


def _while_refused(cluster: Cluster) -> None:
    cluster.protected.add("web")


def _while_kubelet_ends_it(cluster: Cluster) -> None:
    cluster.kubelet = lambda: None


@pytest.mark.parametrize("setting", [_while_refused, _while_kubelet_ends_it])
async def test_an_emergency_in_the_middle_ends_the_wait(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], None]
) -> None:
    setting(cluster)
    cluster.step_told = lambda: setattr(cluster, "emergency", LATE)
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        async with asyncio.timeout(HANG_S):
            await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
    assert cluster.steps[-1] == ("stopping", f"{FALLEN_BACK} {LATE}")


async def test_an_emergency_while_the_api_server_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", hang=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        task = asyncio.create_task(by_api.evict(ORDER))
        await until(lambda: cluster.count("evict") == 1)
        cluster.emergency = LATE
        async with asyncio.timeout(HANG_S):
            await task
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
