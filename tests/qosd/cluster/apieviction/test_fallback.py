"""The runtime stops the containers where the API server or kubelet does not end the pod in time, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kube.server import Fault
from tests.qosd.cluster.apieviction.webpod import ENDS, FALLEN_BACK, LONG, ORDER, Cluster, executor


def _no_server(cluster: Cluster) -> str:
    return "http://127.0.0.1:9"


def _lasting(status: int, reason: str) -> Callable[[Cluster], str]:
    def setting(cluster: Cluster) -> str:
        cluster.faults = [Fault("evict", status=status, reason=reason)] * 50
        return ""

    return setting


def _hanging(cluster: Cluster) -> str:
    """kubelet does not end the pod."""
    cluster.kubelet = lambda: None
    return ""


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (_no_server, "the API server has not done it in 0.2 s: Cannot connect"),
        (_lasting(503, "ServiceUnavailable"), "the API server has not done it in 0.2 s: 503 ServiceUnavailable"),
        (_lasting(401, "Unauthorized"), "the API server does not do it: 401 Unauthorized"),
        (_lasting(403, "Forbidden"), "the API server does not do it: 403 Forbidden"),
        (_hanging, "kubelet has not ended it in 0."),
    ],
)
async def test_without_the_api_the_runtime_stops_the_containers(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], str], says: str
) -> None:
    url = setting(cluster)
    async with executor(cluster, tmp_path, url=url) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
    assert cluster.steps[-1][1].startswith(f"{FALLEN_BACK} {says.partition('(')[0]}")
    assert events.said[0][2:] == ("evictPodSuccess", f"{ORDER.why}; {cluster.steps[-1][1]}")


async def test_an_api_server_that_comes_back_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", drop=True), Fault("evict", status=503), Fault("evict", drop=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops, cluster.steps) == (0, [], [("stopping", ENDS)])


async def test_a_lost_answer_is_an_eviction_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", drop=True, done=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops) == (0, [])
