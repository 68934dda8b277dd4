"""Worked examples of the small scores that Koordinator adds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from koord.scheduling.plugins.koordinator import NodeResourcesFitPlus, ResourceScore, ScarceResourceAvoidance
from koord.scheduling.plugins.resources import least_allocated, most_allocated
from koord.scheduling.podinfo import PodInfo
from tests.scheduling.clusters import node, pod
from tests.scheduling.test_plugins import scores, state_of

GPU, RDMA = "nvidia.com/gpu", "koordinator.sh/rdma"
MIXED = {"cpu": ResourceScore(least_allocated, 1), GPU: ResourceScore(most_allocated, 2)}


@pytest.mark.parametrize(
    ("resources", "waiting", "score"),
    [
        # CPU: (10000-6000)*100/10000 = 40, weight 1; GPU: 3*100/4 = 75, weight 2; (40+150)/3
        pytest.param(MIXED, pod("p", {"cpu": "2", GPU: "1"}), 63, id="spread by CPU, pack by GPU"),
        pytest.param(MIXED, pod("p", {"cpu": "2"}), 40, id="what is not requested does not count"),
        pytest.param(MIXED, pod("p", {"memory": "1Gi"}), 100, id="nothing that is requested is scored"),
        pytest.param(MIXED, pod("p"), 100, id="no requests"),
        pytest.param({}, pod("p", {"cpu": "2"}), 100, id="no resources"),
        pytest.param(MIXED, pod("p", {"cpu": "20"}), 0, id="more than there is"),
        pytest.param({RDMA: ResourceScore()}, pod("p", {RDMA: "1"}), 0, id="the node has none"),
        pytest.param({"cpu": ResourceScore(weight=0)}, pod("p", {"cpu": "2"}), 100, id="no weight"),
    ],
)
def test_fit_plus(resources: Mapping[str, ResourceScore], waiting: PodInfo, score: int) -> None:
    there = pod("x", {"cpu": "4", GPU: "2"}, nodeName="n1")
    state = state_of(node("n1", "10", allocatable={GPU: "4"}), pods=[there])
    assert scores(NodeResourcesFitPlus(resources), state, waiting) == [score]


@pytest.mark.parametrize(
    ("scarce", "waiting", "score"),
    [
        pytest.param((GPU, RDMA), pod("p", {"cpu": "1", "memory": "1Gi"}), 0, id="all that is left is scarce"),
        pytest.param((GPU,), pod("p", {"cpu": "1", "memory": "1Gi"}), 50, id="half of it"),
        pytest.param((GPU,), pod("p", {"cpu": "1"}), 66, id="a third of it, rounded down"),
        pytest.param((GPU,), pod("p", {"cpu": "1", GPU: "1"}), 100, id="the scarce one is requested"),
        pytest.param((), pod("p", {"cpu": "1"}), 100, id="nothing is scarce"),
        pytest.param((GPU,), pod("p", {"cpu": "1", "memory": "1", GPU: "1", RDMA: "1"}), 100, id="all is requested"),
    ],
)
def test_scarce_resources_are_avoided(scarce: tuple[str, ...], waiting: PodInfo, score: int) -> None:
    state = state_of(node("n1", allocatable={GPU: "4", RDMA: "100"}), node("n2"))
    found = scores(ScarceResourceAvoidance(frozenset(scarce)), state, waiting)
    assert found == [score, 100]
