"""The runtime waits for the pod's own grace period, but not in an emergency."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.qosd.cluster.apieviction.webpod import LATE, ORDER, Cluster, executor
from tests.support.waiting import HANG_S


class GracefulPod:
    """kubelet ends the pod ``ends_s`` after the agreement; its grace period ends after ``grace_s``."""

    def __init__(self, cluster: Cluster, grace_s: float, ends_s: float) -> None:
        self._cluster, self._grace_s, self._ends_s = cluster, grace_s, ends_s
        cluster.kubelet = self.terminate

    def terminate(self) -> None:
        loop = asyncio.get_running_loop()
        self._cluster.grace_end_s = loop.time() + self._grace_s
        loop.call_later(self._ends_s, self._cluster.end_pod)


@pytest.mark.parametrize(
    ("grace_s", "ends_s", "stops"),
    [
        (9, 0.5, 0),  # longer than gone_s
        (0.05, 0.12, 0),  # over before gone_s is
        (0.5, 9, 2),  # kubelet does not keep to it
    ],
)
async def test_the_runtime_stops_nothing_before_the_pods_own_grace_period_is_over(
    cluster: Cluster, tmp_path: Path, grace_s: float, ends_s: float, stops: int
) -> None:
    GracefulPod(cluster, grace_s, ends_s)
    begin_s = asyncio.get_running_loop().time()
    async with executor(cluster, tmp_path) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, stops)
    assert asyncio.get_running_loop().time() - begin_s >= min(grace_s, ends_s)


async def test_an_emergency_waits_for_no_grace_period(cluster: Cluster, tmp_path: Path) -> None:
    GracefulPod(cluster, grace_s=9, ends_s=9)
    cluster.step_told = lambda: setattr(cluster, "emergency", LATE)
    async with executor(cluster, tmp_path) as (by_api, _):
        async with asyncio.timeout(HANG_S):
            await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
