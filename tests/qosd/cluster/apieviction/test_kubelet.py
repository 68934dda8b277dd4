"""kubelet ends a pod whose eviction the API server agrees to, or which the API server no longer has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qosd.act.evictor import EvictionFailed, EvictionRefused
from tests.qosd.cluster.apieviction.webpod import ENDS, LONG, ORDER, Cluster, executor


async def test_an_eviction_that_the_api_server_agrees_to(cluster: Cluster, tmp_path: Path) -> None:
    async with executor(cluster, tmp_path, LONG) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops, cluster.count("evict")) == (0, [], 1)
    assert cluster.steps == [("stopping", ENDS)]
    assert events.said == [("default/web uid-web", "Warning", "evictPodSuccess", ORDER.why)]


async def test_it_has_not_come_about_before_the_cgroups_are_gone(cluster: Cluster, tmp_path: Path) -> None:
    """kubelet has removed the pod, and the runtime has forgotten it, but a cgroup of it is left."""

    def forget() -> None:
        for id_ in list(cluster.fake.containers):
            del cluster.fake.containers[id_]

    cluster.kubelet = forget
    async with executor(cluster, tmp_path) as (by_api, _):
        with pytest.raises(EvictionFailed, match=r"its cgroup .* is still there") as caught:
            await by_api.evict(ORDER)
    assert not isinstance(caught.value, EvictionRefused)


def _pod_is_gone(cluster: Cluster) -> None:
    cluster.lose_pod()


def _pod_is_another(cluster: Cluster) -> None:
    cluster.replace_pod()


@pytest.mark.parametrize(
    ("setting", "says"),
    [(_pod_is_gone, "no longer has the pod"), (_pod_is_another, "has another pod of that name")],
)
async def test_a_pod_that_the_api_server_does_not_have_is_kubelets_to_end(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], None], says: str
) -> None:
    setting(cluster)
    async with executor(cluster, tmp_path) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops) == (0, [])
    assert cluster.steps == [("stopping", f"the API server {says}, and kubelet ends the pod")]
    assert len(cluster.objects.get(("/api/v1", "pods"), {})) == (setting is _pod_is_another), "the other one stays"
