"""A PodDisruptionBudget's refusal is waited on, and the runtime stops nothing meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from qosd.act.evictor import EvictionRefused
from tests.qosd.cluster.apieviction.webpod import ORDER, Cluster, executor


async def test_a_budgets_refusal_is_waited_on_and_nothing_is_stopped(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    async with executor(cluster, tmp_path) as (by_api, events):
        with pytest.raises(EvictionRefused, match=r"refused by a PodDisruptionBudget: needs 2 pods, for 0.2 s"):
            await by_api.evict(ORDER)
    refusal = "api eviction refused by a PodDisruptionBudget: needs 2 pods"
    assert (cluster.running, cluster.fake.stops, cluster.steps) == (2, [], [("refused", refusal)])
    assert events.said == [
        ("default/web uid-web", "Warning", "evictPodFail", f"{ORDER.why}; {refusal}, for 0.2 s"),
    ]


async def test_a_budget_that_gives_way(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    cluster.step_told = cluster.protected.clear
    async with executor(cluster, tmp_path) as (by_api, events):
        await by_api.evict(ORDER)
    assert [result for result, _ in cluster.steps] == ["refused", "stopping"]
    assert (cluster.count("evict"), events.said[0][2], cluster.fake.stops) == (2, "evictPodSuccess", [])
